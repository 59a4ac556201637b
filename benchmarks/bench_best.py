"""How good and how proven method ``best`` is, beside the plain pair model and Algorithm 1.

    python -m benchmarks.bench_best

Prints, in one run on the same instances: the part of small instances that is proven in a second;
the proven gap at n = 50 after 10 s and at n = 100 after 60 s, with what the search alone reaches
after a second; and the price of the published algorithm over densities and levels of competition,
also as a picture.
"""

import itertools
import statistics
import time

from benchmarks.measure import RESULTS, random_consortium, report, seconds
from benchmarks.pair_model import solve_pairs
from fedegoists import form, verify
from fedegoists.coalitions.optimum import load_searches

COMPETITIONS = (0.05, 0.1, 0.2, 0.4)


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


def formed(instance, limit: float):
    """Return method best's formation, checked, and the seconds it took."""
    formations = []
    spent = seconds(lambda: formations.append(form(*instance, time_limit=limit)))
    checked = verify(*instance, formations[0].coalitions)
    assert not checked.free_riders
    assert not checked.conflicts
    return formations[0], spent


def small() -> None:
    rows = []
    for n in (12, 18, 24):
        times, proven, pair_times, pair_proven, worse = [], 0, [], 0, 0
        grid = itertools.product((0.1, 0.3, 0.5, 1.0), COMPETITIONS, range(2))
        for density, competition, seed in grid:
            instance = random_consortium(n, density, competition, seed)
            best, spent = formed(instance, 1.0)
            times.append(spent)
            proven += best.optimal
            start = time.perf_counter()
            welfare, bound, optimal = pairs(instance, 1.0)
            pair_times.append(time.perf_counter() - start)
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
        "pair model: proven",
        "median s of it",
        "pair model better",
    )
    report("best_small", "Proven optimum within 1 s", columns, rows)


def large(n: int, densities: tuple[float, ...], limit: float, pair_limit: float) -> None:
    rows = []
    for density, competition in itertools.product(densities, COMPETITIONS):
        instance = random_consortium(n, density, competition, seed=0)
        published = form(*instance, "published")
        quick, quick_spent = formed(instance, 1.0)
        best, spent = formed(instance, limit)
        known = max(best.welfare, quick.welfare)
        pair_gap = "not run"
        if pair_limit:
            welfare, bound, _ = pairs(instance, pair_limit)
            known = max(known, welfare)
            pair_gap = f"{1 - welfare / bound:.1%}"
        rows.append(
            (
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
                f"{spent:.1f}",
            )
        )
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
        "took s",
    )
    report(f"best_n{n}", f"n = {n}", columns, rows)


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


if __name__ == "__main__":
    load_searches()
    small()
    price_of_merging()
    large(40, (0.1, 1.0), 5.0, 0.0)
    large(50, (0.1, 1.0), 10.0, 10.0)
    large(100, (0.1, 1.0), 60.0, 0.0)
