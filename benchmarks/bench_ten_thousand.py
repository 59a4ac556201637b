"""Ten thousand participants: forming with method stable, verifying, explaining, auditing.

    python -m benchmarks.bench_ten_thousand

Each participant has ten benefits and five competitors on average. Every step runs in a process of
its own, with its start and the reading of files, so that time and peak memory are its own.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bench_hostile import command, measured
from benchmarks.measure import report

PARTICIPANTS, BENEFITS, COMPETITORS = 10_000, 10, 5


def write_graphs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(PARTICIPANTS, size=(2 * BENEFITS * PARTICIPANTS, 2)).tolist()
    different = dict.fromkeys((a, b) for a, b in ends if a != b)
    edges = list(different)[: BENEFITS * PARTICIPANTS]
    rows = [f"v{a},v{b},{rng.random()!r}" for a, b in edges]
    (folder / "b.csv").write_text("\n".join(["source,target,weight", *rows]) + "\n")
    ends = rng.integers(PARTICIPANTS, size=(COMPETITORS * PARTICIPANTS, 2)).tolist()
    different = dict.fromkeys((min(pair), max(pair)) for pair in ends if pair[0] != pair[1])
    pairs = list(different)[: COMPETITORS * PARTICIPANTS // 2]
    rows = [f"v{a},v{b}" for a, b in pairs]
    (folder / "c.csv").write_text("\n".join(["a,b", *rows]) + "\n")


FORM = """
import sys
from fedegoists import form, read_graphs
formation = form(*read_graphs(*sys.argv[1:3]), "stable")
print(formation.stable, len(formation.coalitions))
if len(sys.argv) > 3:
    formation.certificate.save(sys.argv[3])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_graphs(folder)
        graphs = [str(folder / "b.csv"), str(folder / "c.csv")]
        path = folder / "certificate.json"
        python = [sys.executable, "-c", FORM, *graphs]
        cases = {
            "form, method stable": python,
            "with the certificate": [*python, str(path)],
            "verify": command("verify", path, 10.0),
            "check.py": command("check.py", path, 60.0),
            "audit": command("audit", path, 10.0),
        }
        rows = []
        for case, arguments in cases.items():
            took, processor, peak, status, _ = measured(arguments, 120.0)
            rows.append((case, f"{took:.1f}", f"{processor:.1f}", f"{peak:.0f}", status))
    head = ("step", "seconds", "processor", "peak MB", "exit status")
    report("ten_thousand", "10,000 participants", head, rows)


if __name__ == "__main__":
    main()
