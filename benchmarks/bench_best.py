"""How good and how proven method ``best`` is, beside the plain pair model and Algorithm 1.

    python -m benchmarks.bench_best [--processor-time] [--jobs N] [PART ...]

Prints, in one run on the same instances: the part of small instances that is proven in a second;
the proven gap at n = 50 after 10 s and at n = 100 after 60 s, with what the search alone reaches
after a second; the price of the published algorithm over densities and levels of competition,
also as a picture; how well time limits are kept while other processes use every core; and what the
first use costs. Parts are named small, price, n40, n50, n100, limits and first-use; all by default.

With --processor-time, time limits count the processor time of the run instead of the time that
passes: for a machine that is busy with other work. Solvers that look at the clock themselves then
stop early rather than late, and the pair model gets as much more time as the machine is slower.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks.measure import RESULTS, random_consortium, report
from benchmarks.pair_model import solve_pairs
from fedegoists import form, verify
from fedegoists.coalitions import OBJECTIVES
from fedegoists.coalitions.exact.best_partition import load_searches

COMPETITIONS = (0.05, 0.1, 0.2, 0.4)


JOBS = 1
"""How many instances are solved at the same time, where they are large."""

CLOCK = time.perf_counter


@contextlib.contextmanager
def processor_time():
    """Let everything that asks how much time has passed see the processor time instead."""
    time.perf_counter = time.process_time
    try:
        yield
    finally:
        time.perf_counter = CLOCK


def pairs(instance, limit: float, hint=()):
    """Return the plain pair model's welfare and upper bound after a time."""
    benefit, competition = instance
    solution = solve_pairs(
        benefit.weights, competition.matrix, seconds=limit, work=1e9, seed=0, hint=hint
    )
    reached = 0.0
    for group in solution.partition or ():
        reached += float(benefit.weights[group][:, group].sum())
    return reached, max(solution.upper_bound, reached), solution.optimal


def slowed(limit: float, spent: float, used: float) -> float:
    """Return the limit, longer by as much as the last run had to wait if processor time counts."""
    return limit * max(spent / used, 1.0) if time.perf_counter is not CLOCK else limit


def formed(instance, limit: float, objective: str = "welfare"):
    """Return method best's formation, checked, and the seconds and processor seconds it took."""
    start, used = CLOCK(), time.process_time()
    formation = form(*instance, time_limit=limit, objective=objective)
    spent, used = CLOCK() - start, time.process_time() - used
    checked = verify(*instance, formation.coalitions)
    assert not checked.free_riders
    assert not checked.conflicts
    return formation, spent, used


def small() -> None:
    rows = []
    for n in (12, 18, 24):
        times, work, proven, pair_times, pair_proven, worse = [], [], 0, [], 0, 0
        grid = itertools.product((0.1, 0.3, 0.5, 1.0), COMPETITIONS, range(2))
        for density, competition, seed in grid:
            instance = random_consortium(n, density, competition, seed)
            best, spent, used = formed(instance, 1.0)
            times.append(spent)
            work.append(used)
            proven += best.optimal
            start = time.process_time()
            welfare, bound, optimal = pairs(instance, slowed(1.0, spent, used))
            pair_times.append(time.process_time() - start)
            pair_proven += optimal
            worse += welfare > best.welfare * (1 + 1e-9)
            assert best.upper_bound >= welfare * (1 - 1e-9)
            assert bound >= best.welfare * (1 - 1e-9)
        rows.append(
            (
                n,
                len(times),
                f"{proven / len(times):.0%}",
                f"{statistics.median(times):.2f}",
                f"{max(times):.2f}",
                f"{statistics.median(work):.2f}",
                f"{max(work):.2f}",
                f"{pair_proven / len(times):.0%}",
                f"{statistics.median(pair_times):.2f}",
                worse,
            )
        )
    columns = (
        "n",
        "instances",
        "best: proven",
        "median s",
        "worst s",
        "median processor s",
        "worst processor s",
        "pair model: proven",
        "median processor s of it",
        "pair model better",
    )
    report("best_small", "Proven optimum within 1 s", columns, rows)


def large_row(n: int, density: float, competition: float, limit: float, pair_limit: float):
    instance = random_consortium(n, density, competition, seed=0)
    published = form(*instance, "published")
    quick, quick_spent, quick_used = formed(instance, 1.0)
    best, spent, used = formed(instance, limit)
    known = max(best.welfare, quick.welfare)
    pair_gap = "not run"
    if pair_limit:
        welfare, bound, _ = pairs(instance, slowed(pair_limit, spent, used))
        known = max(known, welfare)
        pair_gap = f"{1 - welfare / bound:.1%}"
    return (
        density,
        competition,
        f"{published.welfare:.2f}",
        f"{quick.welfare:.2f}",
        f"{1 - quick.welfare / known:.1%}",
        f"{best.welfare:.2f}",
        f"{best.upper_bound:.2f}",
        f"{best.gap:.1%}",
        f"{known / published.welfare:.2f}",
        pair_gap,
        f"{quick_spent:.2f}",
        f"{quick_used:.2f}",
        f"{spent:.1f}",
        f"{used:.1f}",
    )


def large(n: int, limit: float, pair_limit: float) -> None:
    cases = list(itertools.product((0.1, 1.0), COMPETITIONS))
    # Each has a process of its own, which takes over the clock chosen here.
    with ProcessPoolExecutor(JOBS, multiprocessing.get_context("fork")) as pool:
        futures = [pool.submit(large_row, n, *case, limit, pair_limit) for case in cases]
        rows = [future.result() for future in futures]
    columns = (
        "density",
        "competition",
        "published",
        "after 1 s",
        "below best known",
        f"after {limit:g} s",
        "upper bound",
        "gap",
        "best / published",
        "gap of pair model",
        "first took s",
        "processor s of it",
        "took s",
        "processor s",
    )
    report(f"best_n{n}", f"n = {n}", columns, rows)


@contextlib.contextmanager
def busy():
    """Keep every core busy with other processes."""
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for other in others:
            other.terminate()
            other.wait()


def limits() -> None:
    rows = []
    with busy():
        for n, objective, limit in itertools.product((18, 50, 100), OBJECTIVES, (1.0, 5.0)):
            over, part = [], []
            for density, competition in ((0.1, 0.2), (1.0, 0.05), (1.0, 0.4)):
                instance = random_consortium(n, density, competition, seed=1)
                _, spent, used = formed(instance, limit, objective)
                over.append(spent / limit - 1)
                part.append(used / spent)
            rows.append(
                (
                    n,
                    objective,
                    limit,
                    len(over),
                    f"{max(over):.1%}",
                    f"{statistics.mean(part):.0%}",
                )
            )
    columns = ("n", "objective", "limit s", "instances", "longest over limit", "share of a core")
    report("best_limits", "Time limits while every core is busy", columns, rows)


def first_use() -> None:
    code = (
        "import time; a = time.perf_counter(); b = time.process_time()\n"
        "from fedegoists.coalitions.exact.best_partition import load_searches; load_searches()\n"
        "print(time.perf_counter() - a, time.process_time() - b)"
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for use in ("first in an installation", "first in a process"):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
            rows.append((use, *(f"{float(value):.1f}" for value in done.stdout.split())))
    columns = ("use", "s", "processor s")
    report("best_first_use", "Loading the search for more than 14 participants", columns, rows)


def price_of_merging() -> None:
    densities = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
    competitions = (0.05, 0.1, 0.2, 0.3, 0.4)
    rows, grid = [], []
    for competition in competitions:
        line = []
        for density in densities:
            kept, proven = [], 0
            for seed in range(5):
                instance = random_consortium(20, density, competition, seed)
                best = form(*instance)
                proven += best.optimal
                if best.welfare:
                    kept.append(form(*instance, "published").welfare / best.welfare)
            line.append(statistics.mean(kept) if kept else float("nan"))
            worst = f"{min(kept):.2f}" if kept else ""
            rows.append((competition, density, f"{line[-1]:.3f}", worst, f"{proven} of 5"))
        grid.append(line)
    columns = ("competition", "density", "published / best", "worst", "proven")
    report("best_price", "Welfare the published algorithm keeps, n = 20", columns, rows)
    _plot(densities, competitions, grid)


def _plot(densities, competitions, grid) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 3.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(grid, cmap="viridis", vmin=0.5, vmax=1.0, aspect="auto", origin="lower")
    for y, x in itertools.product(range(len(competitions)), range(len(densities))):
        value = grid[y][x]
        if value == value:
            color = "black" if value > 0.8 else "white"
            axes.text(x, y, f"{value:.0%}", ha="center", va="center", color=color, fontsize=9)
    axes.set_xticks(range(len(densities)), [f"{d:g}" for d in densities])
    axes.set_yticks(range(len(competitions)), [f"{c:g}" for c in competitions])
    axes.set_xlabel("density of benefits")
    axes.set_ylabel("part of pairs that compete")
    axes.set_title("Welfare the published algorithm keeps of the optimum (n = 20)")
    figure.colorbar(image, ax=axes)
    figure.savefig(RESULTS / "best_price.png")


PARTS = {
    "first-use": first_use,
    "limits": limits,
    "small": small,
    "price": price_of_merging,
    "n40": lambda: large(40, 5.0, 0.0),
    "n50": lambda: large(50, 10.0, 10.0),
    "n100": lambda: large(100, 60.0, 0.0),
}


def main() -> None:
    global JOBS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    chosen = parser.parse_args()
    JOBS = chosen.jobs
    load_searches()
    for name in chosen.parts or PARTS:
        # Keeping limits, and loading, are about the time that passes.
        by_processor = chosen.processor_time and name not in ("limits", "first-use")
        with processor_time() if by_processor else contextlib.nullcontext():
            PARTS[name]()


if __name__ == "__main__":
    main()
