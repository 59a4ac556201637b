"""Settings for all tests."""

try:
    import torch
except ImportError:  # the core and its tests need none
    pass
else:
    # The networks in tests are small: a second thread would only wait for the first.
    torch.set_num_threads(1)
