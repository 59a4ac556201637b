"""Settings for all tests."""

import os

# Wide enough that no sentence a test looks for is broken into lines, wherever the tests run.
os.environ["COLUMNS"] = "200"
# Processes that tests start have small networks, too: their threads would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

try:
    import torch
except ImportError:  # the core and its tests need none
    pass
else:
    # The networks in tests are small: a second thread would only wait for the first.
    torch.set_num_threads(1)
