"""Commands that replace a finished result are killed at random moments; a whole one must be left.

    python -m benchmarks.chaos.results --kills 50 --seed 1 --write

Each command is called again and again to replace its own result by another one, in a process that
is forked from this one, so that a kill is as likely in its last milliseconds as in its imports.
After each kill every file must be there and belong to one result, the old one or the new one.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.measure import RESULTS, random_consortium
from fedegoists import Certificate
from fedegoists.cli import app
from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.sealed_files import KEY_FILE, LEDGER_FILE
from reproduction.table_commands import tables_command

__all__ = ["main"]

VARIANTS = ("old", "new")
VOLATILE = ("log.txt", "run.json", "report.html", KEY_FILE, LEDGER_FILE)
"""Files of a run that hold times, or keys of their own; that they are whole is checked apart."""


def in_child(work: Callable[[], None], seconds: float | None = None) -> tuple[bool, float]:
    """Do some work in a forked process, and kill it; return whether that hit, and the time."""
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            work()
        except SystemExit as error:
            os._exit(int(error.code or 0))
        except BaseException:
            os._exit(9)
        os._exit(0)
    done, status = 0, 0
    while seconds is not None and not done and time.perf_counter() < began + seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if seconds is not None and not done:
        os.kill(child, signal.SIGKILL)
    if not done:
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    return code != 0, time.perf_counter() - began


@contextlib.contextmanager
def redirected() -> Iterator[None]:
    """Context manager that drops what a command prints."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def contents(folder: Path, leave: tuple[str, ...] = ()) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in leave
    }


class Formations:
    """``fedegoists form … --out DIR --replace``."""

    def __init__(self, base: Path) -> None:
        self.base, self.place = base, base / "result"
        for k, name in enumerate(VARIANTS):
            benefit, competition = random_consortium(10, 0.5, 0.2, seed=k)
            (base / name).mkdir()
            (base / name / "benefit.csv").write_bytes(benefit.csv_bytes())
            (base / name / "competition.csv").write_bytes(competition.csv_bytes())

    def work(self, variant: str) -> None:
        own = self.base / variant
        graphs = [str(own / "benefit.csv"), str(own / "competition.csv")]
        app(["form", *graphs, "--out", str(self.place), "--replace"])

    def found(self) -> dict[str, bytes]:
        Certificate.load(self.place / "certificate.json")
        return contents(self.place)

    def disturb(self, rng: random.Random) -> None:
        pass


class Runs:
    """``fedegoists run … --replace``."""

    def __init__(self, base: Path) -> None:
        self.base, self.place = base, base / "runs" / "small"
        data = base / "data"
        data.mkdir()
        rng = random.Random(0)
        for name in ("North", "South", "East"):
            rows = [(rng.gauss(0, 1), rng.gauss(0, 1)) for _ in range(120)]
            lines = [f"{a:.3f},{b:.3f},{a + b + rng.gauss(0, 0.3):.3f}" for a, b in rows]
            (data / f"{name}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
        schema = 'features = ["a", "b"]\ntarget = "y"\ntask = "regression"\n'
        (data / "schema.toml").write_text(schema)
        edges = ["source,target,weight", "North,South,1", "South,North,1"]
        (base / "benefit.csv").write_text("\n".join(edges) + "\n")

    def work(self, variant: str) -> None:
        torch.set_num_threads(1)
        settings = ConsortiumSettings(
            name="small",
            data={"source": str(self.base / "data")},
            benefit={"estimator": "file", "file": str(self.base / "benefit.csv")},
            training={"methods": ("local", "fedavg"), "seeds": 1,
                      "steps": 20 if variant == "old" else 30, "weight_decay": 0.0},
            output={"folder": str(self.base / "runs")},
        )  # fmt: skip
        Consortium(settings).run(resume=False, replace=True)

    def found(self) -> dict[str, bytes]:
        assert json.loads((self.place / "run.json").read_text())["state"] == "finished"
        assert (self.place / "report.html").read_text().rstrip().endswith("</html>")
        assert Certificate.load(self.place / "certificate.json").check().ok
        return contents(self.place, VOLATILE)

    def disturb(self, rng: random.Random) -> None:
        """Forget what is kept of stages, now and then, so that kills hit training as well."""
        if rng.random() < 0.5:
            for path in (self.base / "runs").iterdir():
                if path.name.startswith(".") and path.name != ".replacing":
                    shutil.rmtree(path, ignore_errors=True)


class Tables:
    """``python -m reproduction TABLE --out DIR``, with cells that are trained already."""

    def __init__(self, base: Path) -> None:
        self.place = base / "results"
        cells = Path(__file__).parents[2] / "reproduction" / "results" / "cells"
        shutil.copytree(cells, self.place / "cells")

    def work(self, variant: str) -> None:
        sys.argv = ["reproduction"]
        repetitions = 3 if variant == "old" else 5
        tables_command(["principles"], out=self.place, repetitions=repetitions, resume=True)

    def found(self) -> dict[str, bytes]:
        return contents(self.place / "tables")

    def disturb(self, rng: random.Random) -> None:
        pass


KINDS = {"form --out": Formations, "run": Runs, "reproduction": Tables}


def killed(kind: str, base: Path, kills: int, rng: random.Random, until: float) -> dict[str, int]:
    """Kill a command until that hit often enough; return what was left each time."""
    base.mkdir()
    case = KINDS[kind](base)
    with contextlib.suppress(SystemExit), redirected():
        case.work("old")  # here, so that children do not spend their time on imports
    known, usual = {}, []
    for variant in (*VARIANTS, *VARIANTS):
        usual.append(in_child(lambda own=variant: case.work(own))[1])
        known[variant] = case.found()
    assert known["old"] != known["new"]
    count: Counter[str] = Counter()
    before, turn = known[VARIANTS[-1]], 0
    while count["kills"] < kills and time.monotonic() < until:
        case.disturb(rng)
        variant = VARIANTS[turn % 2]
        # Half of the kills at any moment, half near the end, where results change places.
        share = rng.uniform(0, 1.2) if rng.random() < 0.5 else rng.uniform(0.7, 1.1)
        moment = share * sorted(usual[-7:])[len(usual[-7:]) // 2]
        hit, seconds = in_child(lambda own=variant: case.work(own), moment)
        if not hit:
            usual.append(seconds)
        turn += 1
        count["kills" if hit else "finished before the kill"] += 1
        try:
            left = case.found()
        except Exception as error:
            count["lost"] += 1
            print(f"LOST {kind}: {error!r}", flush=True)
            continue
        whole = {
            name for name, content in left.items()
            if content in (known["old"].get(name), known["new"].get(name))
        }  # fmt: skip
        if left in known.values():
            count["whole: as before" if left == before else "whole: replaced"] += 1
            before = left
        else:
            count["torn"] += 1
            print(f"TORN {kind}: {sorted(set(left) - whole)}", flush=True)
    for variant in VARIANTS:
        in_child(lambda own=variant: case.work(own))
        left = {name: own for name, own in case.found().items() if name in known[variant]}
        count["repaired by a repeated call"] += left == known[variant]
    return dict(count)


def main() -> int:
    """Kill each command; return 1 if a result was lost or torn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.results")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-most", type=float, default=1800, help="seconds for each command")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results")
    given = parser.parse_args()
    rows, bad = [], 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        for k, kind in enumerate([given.only] if given.only else KINDS):
            rng = random.Random(f"{given.seed} {kind}")
            until = time.monotonic() + given.at_most
            found = killed(kind, Path(temporary) / str(k), given.kills, rng, until)
            print(kind, found, flush=True)
            bad += found.get("lost", 0) + found.get("torn", 0)
            rows += [(kind, what, times, given.seed) for what, times in sorted(found.items())]
    if given.write:
        with (RESULTS / "chaos_results.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("command", "what", "times", "seed"), *rows]
            )
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
