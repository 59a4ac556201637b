"""Solve the instances again, or print one; see the package."""

import csv
import itertools
import sys
from pathlib import Path

from benchmarks.measure import random_consortium
from fedegoists import form

INDEX = Path(__file__).parent / "index.csv"
FILES = Path(__file__).parent / "clique_partitioning"
COLUMNS = ("name", "n", "density", "competition", "seed", "benefit", "rivals", "welfare", "bound")
SIZES, DENSITIES, COMPETITIONS = (10, 16, 24, 35, 50), (0.1, 0.3, 1.0), (0.1, 0.4)
SECONDS = 3.0


def named(n: int, density: float, competition: float, seed: int = 0) -> str:
    return f"random-{n}-{round(100 * density):03}-{round(100 * competition):03}-{seed}"


ALL = {named(*one): one for one in itertools.product(SIZES, DENSITIES, COMPETITIONS)}


def known() -> dict[str, dict[str, str]]:
    if not INDEX.exists():
        return {}
    with INDEX.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def solve() -> None:
    """Solve all instances; keep what is better than before."""
    before, rows = known(), []
    for name, (n, density, competition) in ALL.items():
        graphs = random_consortium(n, density, competition, 0)
        formation = form(*graphs, time_limit=SECONDS)
        claims = {claim.claim: claim.value for claim in formation.certificate.claims}
        welfare, bound = formation.welfare, claims["upper bound"]
        if name in before:
            assert before[name]["benefit"] == graphs[0].sha256, "the generator has changed"
            welfare = max(welfare, float(before[name]["welfare"]))
            bound = min(bound, float(before[name]["bound"]))
        digests = (graphs[0].sha256, graphs[1].sha256)
        rows.append((name, n, density, competition, 0, *digests, repr(welfare), repr(bound)))
        print(name, welfare, bound, flush=True)
    with INDEX.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def as_clique_partitioning(name: str) -> str:
    """Return an instance as clique partitioning: the size, then the weights row by row."""
    benefit, competition = random_consortium(*ALL[name], 0)
    values = ((benefit.weights + benefit.weights.T) * 1e6).round().astype(int)
    values[competition.matrix] = -int(values.sum()) - 1
    rows = [" ".join(map(str, values[i, i + 1 :].tolist())) for i in range(benefit.n - 1)]
    return "\n".join((str(benefit.n), *rows, ""))


def write() -> None:
    """Write all instances as files."""
    FILES.mkdir(exist_ok=True)
    for name in ALL:
        (FILES / f"{name}.txt").write_text(as_clique_partitioning(name), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--files"]:
        write()
    elif len(sys.argv) > 1:
        print(as_clique_partitioning(sys.argv[1]), end="")
    else:
        solve()
