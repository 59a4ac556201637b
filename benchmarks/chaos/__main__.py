"""Chaos: kill -9 at random moments, full disks, jumping clocks, cut networks; then check.

    python -m benchmarks.chaos --kills 300 --seed 1
    python -m benchmarks.chaos --short

Runs small coordinators with members who report and join, a coordinator with queued runs, and a
deployment with a FLARE server, silos and their supervisors, all in folders of their own.
Afterwards nothing that was acknowledged may be lost, the audit log must verify, runs must end with
the bytes of undisturbed ones where these must be equal, and no process may be left. As root, disks
are small file systems that are filled, and silos live in network namespaces whose links are cut,
delayed and throttled; clocks jump where there is a C compiler. Without, these faults are left out,
and the table says so. `--write` adds a piece, under its seed, to ``benchmarks/results/chaos.csv``.
"""

import argparse
import csv
import datetime
import functools
import math
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.chaos.machine import COMPILER, ROOT
from benchmarks.chaos.members import kill_among_members
from benchmarks.chaos.runs import kill_among_runs
from benchmarks.chaos.tally import Tally
from benchmarks.measure import RESULTS

COLUMNS = ["kind", "what", "times", "violations", "command", "commit", "seed"]

SHARES = {"members": 0.5, "runs": 1.0, "deployment": 2.0}
"""Each part's share of the kills; a kill in a deployment takes the longest to get over."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="at least this many kills")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random moments")
    parser.add_argument("--at-least", type=float, default=0, help="seconds in which to go on")
    parser.add_argument("--at-most", type=float, default=1800, help="seconds after which to stop")
    parser.add_argument("--members", type=int, default=2, help="coordinators with members only")
    parser.add_argument("--no-runs", action="store_true", help="no coordinator with queued runs")
    parser.add_argument("--no-deployment", action="store_true", help="no FLARE deployment")
    parser.add_argument("--only-silos", action="store_true", help="kill in the deployment at silos")
    parser.add_argument("--short", action="store_true", help="under a minute, for CI")
    parser.add_argument("--keep", type=Path, help="a new folder to work in, which is kept")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results")
    return parser.parse_args()


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _commit() -> str:
    """Return the commit; results of pieces before this one do not make it dirty."""
    changed = _git("status", "--porcelain", "--", ":/", f":(exclude){RESULTS}")
    return _git("rev-parse", "--short=8", "HEAD") + ("-dirty" if changed else "")


def main() -> int:
    """Run the chaos; return 1 if anything was violated."""
    given = _arguments()
    if given.short:
        given.kills, given.at_most, given.members = 20, 30.0, 2
        given.no_runs = given.no_deployment = True
    tally, told, commit = Tally(), threading.Event(), _commit()
    signal.signal(signal.SIGTERM, lambda *_: told.set())  # nothing is left in the system then

    def enough(part: Tally, kills: float) -> bool:
        gone = time.monotonic() - tally.began
        late = told.is_set() or gone > given.at_most
        return late or (gone > given.at_least and part.all_kills >= kills)

    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as temporary:
        base = given.keep or Path(temporary)
        work: list[tuple[str, Callable[..., None]]] = [
            (f"members-{k}", kill_among_members) for k in range(given.members)
        ]
        if not given.no_runs:
            work.append(("runs", kill_among_runs))
        if not given.no_deployment:
            from benchmarks.chaos.deployment import kill_in_a_deployment

            kill = functools.partial(kill_in_a_deployment, only_silos=given.only_silos)
            work.append(("deployment", kill))

        shares = [SHARES[name.partition("-")[0]] for name, _ in work]

        def carry_out(name: str, what: Callable[..., None], seed: int, share: float) -> None:
            folder, part = base / name, Tally(tally)
            folder.mkdir(parents=True)
            kills = math.ceil(given.kills * share / sum(shares))
            try:
                what(folder, part, seed, lambda: enough(part, kills))
            except Exception:
                tally.check("the harness itself works", False, traceback.format_exc()[-500:])
                traceback.print_exc()

        threads = [
            threading.Thread(target=carry_out, args=(name, what, 1000 * given.seed + k, share))
            for k, ((name, what), share) in enumerate(zip(work, shares, strict=True))
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(10)
            print(
                f"{time.monotonic() - tally.began:5.0f} s: {tally.all_kills} kills, "
                f"{sum(tally.checks.values())} checks, {len(tally.violations)} violations",
                flush=True,
            )
    return _report(tally, given, commit)


def _report(tally: Tally, given: argparse.Namespace, commit: str) -> int:
    if not ROOT:
        tally.note("not root: no full disks, no network namespaces")
    if COMPILER is None:
        tally.note("there is no C compiler: no jumping clocks")
    rows = tally.rows()
    rows.append(("in all", "kills", tally.all_kills, len(tally.violations)))
    table = Table("", "what", "times", "violations", title="Chaos", title_justify="left")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=110).print(table)
    for text in tally.violations:
        print(f"VIOLATION {text}")
    own = " ".join(sys.argv[1:]).replace(f"--keep {given.keep}", "")  # where it worked is of no use
    command = " ".join(f"python -m benchmarks.chaos {own}".split())
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    minutes = f"{(time.monotonic() - tally.began) / 60:.0f} min"
    print(f"{command} at {commit}, seed {given.seed}, {minutes}, {day}")
    if given.write:
        _write([[*map(str, row), command, commit, str(given.seed)] for row in rows])
    return 1 if tally.violations else 0


def _write(rows: list[list[str]]) -> None:
    """Keep a piece; one with the same seed is replaced."""
    file, seed = RESULTS / "chaos.csv", rows[0][-1]
    before: list[list[str]] = []
    if file.exists():
        with file.open(newline="", encoding="utf-8") as known:
            before = [row for row in csv.reader(known) if row[-1] not in (seed, COLUMNS[-1])]
    with file.open("w", newline="", encoding="utf-8") as new:
        csv.writer(new, lineterminator="\n").writerows([COLUMNS, *before, *rows])


if __name__ == "__main__":
    sys.exit(main())
