"""What is collected for doctests: two modules only run inside FLARE, where it is installed."""

from importlib.util import find_spec

FLARE = "src/fedegoists/federation/flare"
collect_ignore = [] if find_spec("nvflare") else [f"{FLARE}/client.py", f"{FLARE}/courier.py"]
