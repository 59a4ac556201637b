"""Method ``best`` beside simple alternatives that get the same processor time.

    python -m benchmarks.bench_alternatives [--sizes N ...]

100 instances of 50 to 10,000 participants: most have ten benefit edges and five competitors each,
those of up to 300 also come dense. The alternatives, compiled like the search, begin again and
again until they have used as much processor time as ``best`` did:

annealing   moves of single participants to the coalition of a neighbour, at a falling temperature
moving      every participant moves to the best coalition until none gains, then whole coalitions
            unite, as in the methods of Louvain and Leiden; in a random order each time

Neither unites competitors. Members without a giver or a taker are put on their own at the end.
Method ``stable`` runs once.
"""
# ruff: noqa: NPY002 - the functions that compiled code knows

import argparse
import csv
import time

import numba
import numpy as np

from benchmarks.bench_best import processor_time
from benchmarks.measure import RESULTS, random_consortium, report
from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.exact.best_partition import load_searches
from fedegoists.coalitions.exact.reduction import usable_entries
from fedegoists.coalitions.welfare import welfare

# Size: sparse instances, dense instances, seconds for ``best``.
SIZES = {
    50: (10, 10, 0.6),
    100: (10, 10, 0.6),
    200: (10, 5, 0.6),
    300: (8, 2, 1.2),
    500: (10, 0, 1.2),
    1000: (10, 0, 1.2),
    2000: (8, 0, 2.0),
    5000: (4, 0, 5.0),
    10000: (3, 0, 10.0),
}


def sparse_consortium(n: int, seed: int, edges: int = 10, rivals: int = 5):
    """Everybody gives to ten others on average, and competes with five."""
    rng = np.random.default_rng([n, seed])
    names = [f"v{k}" for k in range(n)]
    ends = rng.integers(n, size=(2, n * edges))
    weights = dict(zip(zip(*ends.tolist(), strict=True), rng.random(n * edges), strict=True))
    benefit = BenefitGraph.from_edges(
        [(names[a], names[b], float(w)) for (a, b), w in weights.items() if a != b], names
    )
    pairs = {tuple(sorted(pair)) for pair in rng.integers(n, size=(n * rivals // 2, 2)).tolist()}
    return benefit, CompetitionGraph([(names[a], names[b]) for a, b in pairs if a != b], names)


@numba.njit(cache=True)
def allowed(i, group, label, rival_start, rival):
    for k in range(rival_start[i], rival_start[i + 1]):  # noqa: SIM110 - compiled
        if label[rival[k]] == group:
            return False
    return True


@numba.njit(cache=True)
def annealed(start, other, value, rival_start, rival, label, proposals, hot, cold, seed):
    """Move single participants at a temperature that falls geometrically."""
    np.random.seed(seed)
    n = len(label)
    empty = label.max() + 1
    for step in range(proposals):
        heat = hot * (cold / hot) ** (step / proposals)
        i = np.random.randint(n)
        degree = start[i + 1] - start[i]
        if degree == 0:
            continue
        new = label[other[start[i] + np.random.randint(degree)]]
        if np.random.random() < 0.02:
            new = empty
        if new == label[i] or not allowed(i, new, label, rival_start, rival):
            continue
        gain = 0.0
        for k in range(start[i], start[i + 1]):
            if label[other[k]] == new:
                gain += value[k]
            elif label[other[k]] == label[i]:
                gain -= value[k]
        if gain >= 0 or np.random.random() < np.exp(gain / heat):
            label[i] = new
            if new == empty:
                empty += 1


@numba.njit(cache=True)
def moved(start, other, value, rival_start, rival, label, seed):
    """Move everybody to its best coalition, in a random order, until nobody gains."""
    np.random.seed(seed)
    n = len(label)
    gain = np.zeros(2 * n + 1)
    changed = True
    while changed:
        changed = False
        for i in np.random.permutation(n):
            for k in range(start[i], start[i + 1]):
                gain[label[other[k]]] += value[k]
            best, most = label[i], gain[label[i]] + 1e-12
            for k in range(start[i], start[i + 1]):
                group = label[other[k]]
                if gain[group] > most and allowed(i, group, label, rival_start, rival):
                    best, most = group, gain[group]
            for k in range(start[i], start[i + 1]):
                gain[label[other[k]]] = 0.0
            if best != label[i]:
                label[i] = best
                changed = True


def as_lists(n, one, other, values):
    order = np.lexsort((other, one))
    start = np.concatenate(([0], np.cumsum(np.bincount(one, minlength=n))))
    return start, other[order], values[order]


class Instance:
    """A consortium as lists of neighbours."""

    def __init__(self, benefit, competition) -> None:
        self.graphs = benefit, competition
        self.weights = usable_entries(benefit.entries, competition.entries)
        self.n = benefit.n
        self.rivals = competition.entries
        self.lists = self.contracted(np.arange(self.n))

    def contracted(self, label):
        """Return the neighbours and rivals of the groups of a labelling."""
        one, other = label[self.weights.rows], label[self.weights.columns]
        between = one != other
        size = int(label.max()) + 1
        ends = np.concatenate((one[between], other[between]))
        far = np.concatenate((other[between], one[between]))
        both = np.concatenate((self.weights.values[between],) * 2)
        keys, place = np.unique(ends * size + far, return_inverse=True)
        totals = np.zeros(len(keys))
        np.add.at(totals, place, both)
        rivals = np.unique(label[self.rivals.rows] * size + label[self.rivals.columns])
        apart = as_lists(size, rivals // size, rivals % size, rivals)
        return *as_lists(size, keys // size, keys % size, totals), apart[0], apart[1]

    def annealing(self, seed: int):
        """Return the groups after a round, a short one first."""
        mean = float(self.lists[2].mean())
        label = np.arange(self.n)
        rounds = min(200 * self.n, 400_000) if seed else 40 * self.n
        annealed(*self.lists, label, rounds, mean, 0.05 * mean, seed)
        return label

    def moving(self, seed: int):
        """Return the groups after moves of single participants, and then of whole groups."""
        label = np.arange(self.n)
        moved(*self.lists, label, seed)
        while True:
            label = np.unique(label, return_inverse=True)[1]
            groups = np.arange(int(label.max()) + 1)
            moved(*self.contracted(label), groups, seed)
            if len(np.unique(groups)) == len(groups):
                return label
            label = groups[label]

    def repaired(self, label):
        """Put members without a giver or a taker on their own, until none is left."""
        while True:
            inside = label[self.weights.rows] == label[self.weights.columns]
            served = np.zeros((2, self.n), dtype=bool)
            served[0, self.weights.rows[inside]] = served[1, self.weights.columns[inside]] = True
            sizes = np.bincount(label)
            lonely = ~served.all(axis=0) & (sizes[label] > 1)
            if not lonely.any():
                return label
            label = label.copy()
            label[lonely] = label.max() + 1 + np.arange(lonely.sum())
            label = np.unique(label, return_inverse=True)[1]

    def best_of(self, method, limit: float) -> float:
        """Begin again until the processor time is used; return the highest welfare."""
        begin, reached, seed = time.process_time(), 0.0, 0
        while time.process_time() - begin < limit:
            label = self.repaired(method(seed))
            order = np.argsort(label, kind="stable")
            cuts = np.flatnonzero(np.diff(label[order])) + 1
            groups = [part.tolist() for part in np.split(order, cuts)]
            reached = max(reached, welfare(self.weights, groups))
            seed += 1
        return reached


def compared(name: str, n: int, seed: int, limit: float, graphs) -> tuple:
    instance = Instance(*graphs)
    begin = time.process_time()
    with processor_time():
        best = form(*graphs, time_limit=limit)
    used = time.process_time() - begin
    stable = form(*graphs, "stable").welfare
    others = [instance.best_of(way, used) for way in (instance.annealing, instance.moving)]
    highest = max(stable, *others)
    row = (name, n, seed, f"{used:.2f}", f"{best.welfare:.3f}", f"{stable:.3f}")
    return *row, *(f"{one:.3f}" for one in others), f"{best.welfare / highest:.4f}"


def instances():
    for n, (sparse, dense, limit) in SIZES.items():
        for seed in range(sparse):
            yield "sparse", n, seed, limit, lambda n=n, s=seed: sparse_consortium(n, s)
        for seed in range(dense):
            density, rivalry = [(0.3, 0.1), (1.0, 0.1), (0.1, 0.2), (1.0, 0.4), (0.3, 0.4)][
                seed % 5
            ]
            yield (
                f"{density:g}/{rivalry:g}",
                n,
                seed,
                limit,
                lambda n=n, d=density, r=rivalry, s=seed: random_consortium(n, d, r, s),
            )


def kept(sizes) -> list:
    """Return the rows of other sizes that an earlier run has left."""
    file = RESULTS / "alternatives.csv"
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return [row[:-1] for row in list(csv.reader(lines))[1:] if int(row[1]) not in sizes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    chosen = parser.parse_args()
    load_searches()
    warm = Instance(*sparse_consortium(20, 0))
    warm.annealing(0), warm.moving(0)
    rows = kept(chosen.sizes)
    for name, n, seed, limit, make in instances():
        if n in chosen.sizes:
            rows.append(compared(name, n, seed, limit, make()))
            print(*rows[-1], flush=True)
    rows.sort(key=lambda row: (int(row[1]), row[0], int(row[2])))
    head = ("instance", "n", "seed", "processor s", "best", "stable")
    columns = (*head, "annealing", "moving", "best / highest alternative")
    least = min(float(row[-1]) for row in rows)
    below = sum(float(row[-1]) < 1 for row in rows)
    title = f"{len(rows)} instances; best is below an alternative on {below}, by {1 - least:.2%}"
    report("alternatives", title, columns, rows)


if __name__ == "__main__":
    main()
