"""What is collected for doctests: some modules only run with what is not installed everywhere."""

from importlib.util import find_spec

FLARE = "src/fedegoists/federation/flare"
collect_ignore = [] if find_spec("nvflare") else [f"{FLARE}/client.py", f"{FLARE}/courier.py"]
collect_ignore += [] if find_spec("triton") else ["src/fedegoists/learning/cnn_kernels.py"]
