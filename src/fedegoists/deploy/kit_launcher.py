"""Runs a module of FLARE in a process that ends with its parent, however the parent ends.

``python -m fedegoists.deploy.kit_launcher LIFELINE LOCK MODULE ARGUMENTS``: the first two are file
descriptors, the read end of a pipe that the parent keeps open, and the kit's lock.

`fedegoists.deploy.kit_guard` starts it, and ends what a killed process of FLARE leaves.
"""

import os
import runpy
import sys
import threading
import time

from fedegoists.deploy.child_processes import end_children

GRACE = 3.0
"""Seconds that jobs have to end by themselves."""

QUIET = 5
"""Looks, a tenth of a second apart, that must find no job before a process ends."""


def main() -> None:
    """Run the module; end when the parent's end of the pipe is closed."""
    lifeline, lock, module, *arguments = sys.argv[1:]
    for descriptor in (int(lifeline), int(lock)):
        os.set_inheritable(descriptor, False)  # job processes watch this one themselves
    threading.Thread(target=_end_with_parent, args=(int(lifeline),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def wait_for_end(lifeline: int) -> None:
    """Return when the process that holds the other end of a pipe has ended."""
    while os.read(lifeline, 1):
        pass


def end_all_children() -> None:
    """End the children of this process, and those that start meanwhile.

    FLARE may be starting a job at this very moment. A job that starts when its parent is gone does
    not notice that, and would stay: so look until there was none for a while.
    """
    quiet = 0
    while quiet < QUIET:
        quiet = 0 if end_children(os.getpid(), patience=GRACE) else quiet + 1
        time.sleep(0.1)


def _end_with_parent(lifeline: int) -> None:
    try:
        wait_for_end(lifeline)
        end_all_children()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
