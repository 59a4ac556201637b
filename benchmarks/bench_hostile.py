"""What hostile certificates cost: the longest time and the peak memory of each kind of attack.

    python -m benchmarks.bench_hostile [--size BYTES] [--limit SECONDS] [--only PART] [--commands …]

Every file is checked in a process of its own, by `fedegoists verify` and by the stand-alone
`check.py`, both with the same time limit; `--commands audit explain` measures these. A process that
takes twenty seconds more than its limit is ended.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Timer

from benchmarks.hostile_certificates import ATTACKS
from benchmarks.measure import report
from fedegoists.coalitions.proof import check

GRACE = 20.0
MOST_MEMORY = 6 * 2**30
"""What a process may take before it fails: the machine shall outlive the benchmark."""


def command(name: str, path: Path, limit: float) -> list[str]:
    limits = [str(path), "--time-limit", f"{limit:g}"]
    if name == "check.py":
        return [sys.executable, "-I", check.__file__, *limits]
    if name == "explain":
        limits.insert(1, "a")
    start = "import sys; from fedegoists.cli import main; main()"
    return [sys.executable, "-c", start, name, *limits]


def measured(arguments: list[str], most: float) -> tuple[float, float, float, int, str]:
    """Run a command; return seconds, processor seconds, peak MB, exit status and its last line."""
    began = time.perf_counter()

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))

    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            arguments, stdout=output, stderr=subprocess.STDOUT, preexec_fn=bounded
        )
        end = Timer(most, process.kill)
        end.start()
        _, status, usage = os.wait4(process.pid, 0)
        end.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - began
        output.seek(max(0, output.seek(0, os.SEEK_END) - 5000))
        told = output.read().decode(errors="replace")
    lines = [line for line in told.splitlines() if line.strip()] or [""]
    wrong = [line for line in lines if "Traceback" in line]
    last = (wrong or lines)[-1]
    processor = usage.ru_utime + usage.ru_stime
    return took, processor, usage.ru_maxrss / 1024, process.returncode, last.strip()[:70]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--commands", nargs="+", default=["verify", "check.py"])
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        for kind, attack in ATTACKS.items():
            if chosen.only and chosen.only not in kind:
                continue
            path.write_text(attack(chosen.size), encoding="utf-8")
            size = f"{path.stat().st_size / 1e6:.1f}"
            for name in chosen.commands:
                arguments = command(name, path, chosen.limit)
                took, processor, peak, status, last = measured(arguments, chosen.limit + GRACE)
                times = (f"{took:.1f}", f"{processor:.1f}", f"{peak:.0f}")
                rows.append((kind, size, name, *times, status))
                print(*rows[-1], last, sep=" | ", flush=True)
    head = ("attack", "MB", "command", "seconds", "processor", "peak MB", "exit status")
    title = f"Hostile certificates, time limit {chosen.limit:g} s"
    report("hostile" if not chosen.only else "hostile_part", title, head, rows)


if __name__ == "__main__":
    main()
