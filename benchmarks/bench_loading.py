"""Loading a large table: time and peak memory of `load_own`, and of pandas alone.

    python -m benchmarks.bench_loading

The table has 200,000 rows and 100 columns of numbers, and a class. Every case runs in a process of
its own, so that its peak is its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import report

ROWS, COLUMNS = 200_000, 100
CASES = ("pandas", "load_own", "load_own and train")


def write(folder: Path) -> None:
    """Write the table of one organisation, and a schema."""
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(COLUMNS)]
    listed = ", ".join(f'"{name}"' for name in names)
    (folder / "schema.toml").write_text(
        f'features = [{listed}]\ntarget = "y"\ntask = "binary"\nclasses = ["no", "yes"]\n'
    )
    with (folder / "north.csv").open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for _ in range(0, ROWS, 10_000):
            values = rng.normal(100, 15, (10_000, COLUMNS)).round(4)
            yes = values[:, 0] + rng.normal(0, 15, 10_000) > 100
            for row, one in zip(values.tolist(), yes.tolist(), strict=True):
                file.write(",".join([*map(str, row), "yes" if one else "no"]) + "\n")


def run_case(case: str, folder: Path) -> None:
    start, worked = time.perf_counter(), time.process_time()
    if case == "pandas":
        import pandas as pd

        pd.read_csv(folder / "north.csv")
    else:
        from fedegoists.learning.datasets import load_own

        data = load_own(folder)
        if case.endswith("train"):
            from fedegoists.federation import SimulatedFederation, Train, TrainSettings
            from fedegoists.learning.models import build_model

            model = build_model("mlp", 0, features=COLUMNS, outputs=1)
            federation = SimulatedFederation(data, model)
            parameters = federation.schema.drawn(0)
            request = Train(parameters=parameters, settings=TrainSettings(steps=200))
            federation.call(dict.fromkeys(federation.participants, request))
    took, work = time.perf_counter() - start, time.process_time() - worked
    print(took, work, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=2, metavar=("CASE", "FOLDER"))
    given = parser.parse_args().case
    if given:
        run_case(given[0], Path(given[1]))
        return
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        size = (Path(name) / "north.csv").stat().st_size / 1e6
        for case in CASES:
            command = [sys.executable, "-m", "benchmarks.bench_loading", "--case", case, name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            took, work, peak = map(float, done.stdout.split())
            ratio = round(work / float(str(rows[0][2])), 1) if rows else 1.0
            rows.append((case, round(took, 1), round(work, 1), ratio, round(peak, 2)))
    report(
        "loading",
        f"A CSV file of {ROWS:,} rows and {COLUMNS} columns ({size:.0f} MB)",
        ("case", "seconds", "seconds of processors", "times pandas", "peak GB"),
        rows,
    )


if __name__ == "__main__":
    main()
