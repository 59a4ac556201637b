"""A small process between a kit's supervisor and FLARE, which leaves nothing behind.

``python -m fedegoists.deploy.kit_guard LIFELINE LOCK MODULE ARGUMENTS``, as `kit_launcher`.

FLARE starts a process for each job. A job whose parent is killed while it starts does not notice,
and stays. On Linux such orphans become children of this process, which ends them as soon as FLARE
or the supervisor has ended. If this process is killed itself, FLARE ends with it (`kit_launcher`).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import FrameType

from fedegoists.deploy.kit_launcher import end_all_children, wait_for_end

_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    """Run the module until it ends or the supervisor does; then end all that it started."""
    lifeline, lock, *command = sys.argv[1:]
    flare: subprocess.Popen[bytes] | None = None
    told = False

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal told
        told = True
        if flare is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(flare.pid, number)

    # First of all: a guard that ends before FLARE does would leave it with the kit's lock.
    signal.signal(signal.SIGTERM, pass_on)
    os.set_inheritable(int(lifeline), False)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    import psutil  # noqa: F401, now, as memory may be short when it is needed

    watched, own_lifeline = os.pipe()
    launcher = ["-m", "fedegoists.deploy.kit_launcher", str(watched), lock]
    flare = subprocess.Popen(  # noqa: S603 - the command is our own
        [sys.executable, "-u", *launcher, *command], pass_fds=(watched, int(lock))
    )
    os.close(watched)
    if told:  # while it was started
        flare.terminate()
    threading.Thread(target=_end_with_supervisor, args=(int(lifeline),), daemon=True).start()
    code = _ended(flare.pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another process may get its number
    end_all_children()
    os.close(own_lifeline)
    sys.exit(code)


def _ended(pid: int) -> int:
    """Wait for a child, and remove adopted ones that end before it; return its exit code."""
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:  # the other thread has ended it
            return 1
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code  # as shells say it for a signal


def _end_with_supervisor(lifeline: int) -> None:
    try:
        wait_for_end(lifeline)
        end_all_children()
    finally:
        os._exit(1)  # FLARE ends with this process, too


if __name__ == "__main__":
    main()
