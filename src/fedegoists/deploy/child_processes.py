"""Ending the children of a process; loads little, so that it works when memory is short."""

from contextlib import suppress

PATIENCE = 8.0
"""Seconds for a process to end by itself."""


def end_children(pid: int, *, itself: bool = False, patience: float = PATIENCE) -> bool:
    """End the children of a process, and optionally itself; by force if they do not end.

    Returns whether there were any.
    """
    import psutil

    try:
        parent = psutil.Process(pid)
        processes = parent.children(recursive=True) + [parent] * itself
    except psutil.NoSuchProcess:
        return False
    found = bool(processes)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, processes = psutil.wait_procs(processes, timeout=patience)
    return found
