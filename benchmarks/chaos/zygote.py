"""A process that has loaded the coordinator and forks it on demand, so that it starts quickly.

    python -m benchmarks.chaos.zygote

Reads one JSON list of arguments and a log's path per line from its input, and prints the process ID
of a child that runs ``fedegoists`` with these arguments. Its own environment, with the mark of its
instance and a clock that can be moved, is that of all its children.
"""

import json
import os
import signal
import sys

__all__: list[str] = []


def _become(arguments: list[str], log: str) -> None:
    """Run the command line in this process, a child."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(written, number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.argv = ["fedegoists", *arguments]
    from fedegoists.cli import main

    main()


def serve() -> None:
    """Fork a child for every line."""
    # What `fedegoists serve` would load in seconds.

    import fedegoists.coalitions
    import fedegoists.coordinator.server
    import fedegoists.coordinator.service.web_app  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    for line in sys.stdin:
        arguments, log = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _become(arguments, log)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            finally:
                sys.stdout.flush()
                os._exit(status)
        print(child, flush=True)


if __name__ == "__main__":
    serve()
