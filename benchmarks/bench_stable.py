"""How fast coalitions form, beside a literal Algorithm 1 that lists cliques, cycles and paths.

    python -m benchmarks.bench_stable

Prints, in one run: the worst case of every method at n = 100 over densities and levels of
competition; the ratio to the literal version on the same instances, with a time cap; and growth up
to n = 1,000 with the peak memory, also as a picture.
"""

import itertools
import statistics
import tracemalloc

from benchmarks.literal import OutOfTimeError, literal_algorithm_1
from benchmarks.measure import RESULTS, random_consortium, report, seconds
from fedegoists import form

DENSITIES = (0.02, 0.05, 0.1, 0.3, 0.5, 1.0)
COMPETITIONS = (0.05, 0.1, 0.2, 0.3, 0.4)
SEEDS = range(5)
CAP = 5.0


def worst_case_at_100() -> None:
    rows = []
    for method in ("stable", "cliques", "published"):
        times = {}
        proven = True
        for density, competition, seed in itertools.product(DENSITIES, COMPETITIONS, SEEDS):
            instance = random_consortium(100, density, competition, seed)
            formations = []
            times[density, competition, seed] = min(
                seconds(lambda: formations.append(form(*instance, method)))  # noqa: B023
                for _ in range(3)
            )
            proven &= formations[0].stable is not None and not formations[0].notes
        worst = max(times, key=times.get)
        rows.append(
            (
                method,
                len(times),
                f"{statistics.median(times.values()) * 1e3:.1f}",
                f"{times[worst] * 1e3:.1f}",
                worst[0],
                worst[1],
                "yes" if proven else "no",
            )
        )
    report(
        "formation_n100",
        "n = 100, densities 0.02 to 1, competition 0.05 to 0.4",
        ("method", "instances", "median ms", "worst ms", "at density", "competition", "all proven"),
        rows,
    )


def against_literal() -> None:
    rows = []
    for n in (8, 10, 12, 15, 20, 25, 30):
        ours, theirs, stopped = [], [], 0
        for density, seed in itertools.product((0.1, 0.3, 0.5), range(3)):
            instance = random_consortium(n, density, 0.3, seed)
            ours.append(seconds(lambda: form(*instance, "published")))  # noqa: B023
            try:
                theirs.append(seconds(lambda: literal_algorithm_1(*instance, cap=CAP)))  # noqa: B023
            except OutOfTimeError:
                theirs.append(CAP)
                stopped += 1
        ratio = sum(theirs) / sum(ours)
        rows.append(
            (
                n,
                f"{max(ours) * 1e3:.1f}",
                f"{max(theirs) * 1e3:.0f}",
                f"{stopped} of {len(theirs)}",
                f"{'over ' if stopped else ''}{ratio:.0f}",
            )
        )
    report(
        "formation_literal",
        f"Algorithm 1: published against a literal NetworkX version (cap {CAP:g} s)",
        ("n", "ours, worst ms", "literal, worst ms", "literal stopped", "literal / ours"),
        rows,
    )


def growth() -> None:
    rows, curves = [], {}
    for density, competition in ((0.02, 0.1), (0.3, 0.2), (1.0, 0.4)):
        curve = []
        for n in (25, 50, 100, 200, 400, 700, 1000):
            instance = random_consortium(n, density, competition, seed=0)
            spent = min(seconds(lambda: form(*instance, "stable")) for _ in range(3))  # noqa: B023
            tracemalloc.start()
            formation = form(*instance, "stable")
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            graphs = sum(graph.nbytes for graph in (instance[0].weights, instance[1].matrix))
            total = peak + graphs / 2**20
            curve.append((n, spent))
            rows.append(
                (
                    n,
                    density,
                    competition,
                    f"{spent * 1e3:.1f}",
                    f"{total:.0f}",
                    len(formation.coalitions),
                    "yes" if formation.stable else "no",
                )
            )
        curves[f"density {density:g}, competition {competition:g}"] = curve
    columns = ("n", "density", "competition", "ms", "MB at peak", "coalitions", "proven stable")
    report("formation_growth", 'Growth of form(method="stable")', columns, rows)
    _plot(curves)


def _plot(curves: dict[str, list[tuple[int, float]]]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, curve in curves.items():
        sizes, times = zip(*curve, strict=True)
        axes.loglog(sizes, [t * 1e3 for t in times], marker="o", label=label)
    sizes = [n for n, _ in curve]
    axes.loglog(sizes, [1e-4 * n**2 for n in sizes], ":", color="gray", label="n² for comparison")
    axes.set_xlabel("participants")
    axes.set_ylabel("milliseconds")
    axes.set_title('form(method="stable")')
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.savefig(RESULTS / "formation_growth.png")


if __name__ == "__main__":
    worst_case_at_100()
    against_literal()
    growth()
