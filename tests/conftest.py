"""Settings for all tests."""

import torch

# The networks in tests are small: a second thread would only wait for the first.
torch.set_num_threads(1)
