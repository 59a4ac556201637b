"""Small consortia for tests, and what is true of them by brute force."""

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from benchmarks.measure import random_consortium as random_graphs
from fedegoists import BenefitGraph, CompetitionGraph, verify

__all__ = [
    "LAWS",
    "apart",
    "as_positions",
    "assert_sound",
    "best_welfare",
    "chain_of_pairs",
    "chain_of_pairs_and_singles",
    "consortium",
    "graphs",
    "graphs_and_coalitions",
    "is_valid",
    "mergeable",
    "partitions",
    "random_graphs",
    "single_beside_competing_rings",
    "utility",
    "valid_partitions",
    "welfare",
    "without_rivalry",
]

Graphs = tuple[BenefitGraph, CompetitionGraph]
Partition = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn, min_n: int = 0, max_n: int = 8) -> Graphs:
    """Any two graphs over the same few participants; weights include ties and tiny numbers."""
    n = draw(st.integers(min_n, max_n))
    weight = st.sampled_from([0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 2.0, 0.1, 0.2, 0.3, 1e-9])
    weights = np.zeros((n, n))
    for j, i in itertools.permutations(range(n), 2):
        weights[j, i] = draw(weight)
    pairs = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = [f"v{i}" for i in range(n)]
    return BenefitGraph(weights, names), CompetitionGraph(chosen, names)


def as_positions(coalitions, participants) -> Partition:
    position = {name: k for k, name in enumerate(participants)}
    return [[position[name] for name in group] for group in coalitions]


def is_valid(
    group: list[int], benefit: BenefitGraph, competition: CompetitionGraph, fewest_members: int = 1
) -> bool:
    """Principles 1 and 2 and the demanded size for one coalition, from their definitions."""
    w, c = benefit.weights, competition.matrix
    if 1 < len(group) < fewest_members:
        return False
    if any(c[i, j] for i, j in itertools.combinations(group, 2)):
        return False
    return len(group) == 1 or all(
        sum(w[i, j] for j in group if j != i) > 0 and sum(w[j, i] for j in group if j != i) > 0
        for i in group
    )


def utility(group: list[int], benefit: BenefitGraph) -> float:
    return sum(benefit.weights[j, i] for j in group for i in group)


def welfare(partition: Partition, benefit: BenefitGraph) -> float:
    return sum(utility(group, benefit) for group in partition)


def mergeable(
    partition: Partition,
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    fewest_members: int = 1,
) -> Partition | None:
    """A set of coalitions that should merge, by trying all subsets."""
    for size in range(2, len(partition) + 1):
        for groups in itertools.combinations(partition, size):
            union = [i for group in groups for i in group]
            # Not the difference of two sums: rounding would hide a tiny gain.
            gain = sum(
                benefit.weights[j, i]
                for one, other in itertools.permutations(groups, 2)
                for j in one
                for i in other
            )
            if gain > 0 and is_valid(union, benefit, competition, fewest_members):
                return list(groups)
    return None


@st.composite
def graphs_and_coalitions(draw: st.DrawFn):
    """Any two graphs, a demanded size, and valid coalitions of the participants."""
    benefit, competition = draw(graphs(min_n=1))
    least = draw(st.integers(1, 4))
    labels = draw(st.lists(st.integers(0, 3), min_size=benefit.n, max_size=benefit.n))
    coalitions = []
    for label in sorted(set(labels)):
        group = [i for i in range(benefit.n) if labels[i] == label]
        valid = is_valid(group, benefit, competition, least)
        coalitions += [group] if valid else [[i] for i in group]
    named = [[benefit.participants[i] for i in group] for group in coalitions]
    return benefit, competition, named, least


def without_rivalry(
    benefit: BenefitGraph, competition: CompetitionGraph, coalitions: list[list[str]]
) -> BenefitGraph:
    """The benefits without those between coalitions of which two members compete."""
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    apart = {frozenset((home[a], home[b])) for a, b in competition.pairs}
    kept = [
        edge for edge in benefit.edges() if frozenset((home[edge[0]], home[edge[1]])) not in apart
    ]
    return BenefitGraph.from_edges(kept, benefit.participants)


def chain_of_pairs(
    count: int,
) -> tuple[BenefitGraph, CompetitionGraph, list[list[str]]]:
    """Pairs {a, b} that are worth 20; b gives 1 to the next pair's a, which is its competitor."""
    pairs = [[f"a{k}", f"b{k}"] for k in range(count)]
    names = [name for pair in pairs for name in pair]
    edges = [(one, other, 10.0) for pair in pairs for one, other in (pair, pair[::-1])]
    steps = [(one[1], other[0]) for one, other in itertools.pairwise(pairs)]
    benefit = BenefitGraph.from_edges([*edges, *((b, a, 1.0) for b, a in steps)], names)
    return benefit, CompetitionGraph(steps, names), pairs


def chain_of_pairs_and_singles(
    count: int,
) -> tuple[BenefitGraph, CompetitionGraph, list[list[str]]]:
    """Pairs {a, b} that each compete with the next, and a single s between any such two.

    It gives 1 to the first pair's a, and takes 1 from the next pair's b: never in one coalition.
    """
    pairs = [[f"a{k}", f"b{k}"] for k in range(count)]
    singles = [f"s{k}" for k in range(count - 1)]
    names = [name for pair in pairs for name in pair] + singles
    edges = [(one, other, 10.0) for pair in pairs for one, other in (pair, pair[::-1])]
    for s, (one, other) in zip(singles, itertools.pairwise(pairs), strict=True):
        edges += [(s, one[0], 1.0), (other[1], s, 1.0)]
    rivals = [(one[1], other[0]) for one, other in itertools.pairwise(pairs)]
    coalitions = [*pairs, *([s] for s in singles)]
    return BenefitGraph.from_edges(edges, names), CompetitionGraph(rivals, names), coalitions


def single_beside_competing_rings() -> tuple[BenefitGraph, CompetitionGraph, list[list[str]]]:
    """Rings {a, b, c} and {d, e, f} that compete, and a single s that gives 1 to each.

    Only {a, b, c} gives 1 back, so s can join it, with a gain of 2, and not the other ring.
    """
    names = list("abcdefs")
    edges = ["ab", "bc", "ca", "de", "ef", "fd", "sa", "sd", "bs"]
    benefit = BenefitGraph.from_edges([(one, other, 1.0) for one, other in edges], names)
    return benefit, CompetitionGraph([("a", "d")], names), [["a", "b", "c"], ["d", "e", "f"], ["s"]]


def partitions(items: list[int]) -> Iterator[Partition]:
    """All partitions of a list."""
    if not items:
        yield []
        return
    first, *rest = items
    for partition in partitions(rest):
        yield [[first], *partition]
        for k, group in enumerate(partition):
            yield [*partition[:k], [first, *group], *partition[k + 1 :]]


def best_welfare(
    benefit: BenefitGraph, competition: CompetitionGraph, fewest_members: int = 1
) -> float:
    """The highest welfare of any valid partition, by trying all of them."""
    valid: dict[tuple[int, ...], float | None] = {}

    def value(group: list[int]) -> float | None:
        key = tuple(group)
        if key not in valid:
            ok = is_valid(group, benefit, competition, fewest_members)
            valid[key] = utility(group, benefit) if ok else None
        return valid[key]

    best = 0.0
    for partition in partitions(list(range(benefit.n))):
        total = 0.0
        for group in partition:
            worth = value(group)
            if worth is None:
                break
            total += worth
        else:
            best = max(best, total)
    return best


def valid_partitions(benefit, competition, fewest_members=1):
    for partition in partitions(list(range(benefit.n))):
        if all(is_valid(group, benefit, competition, fewest_members) for group in partition):
            yield partition


def apart(parts: int, size: int, competition: float):
    """Several components that have nothing to do with one another."""
    n = parts * size
    weights, rivals = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
    for k in range(parts):
        inside = slice(size * k, size * (k + 1))
        benefit, rival = random_graphs(size, 1.0, competition, seed=k)
        weights[inside, inside], rivals[inside, inside] = benefit.weights, rival.matrix
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random((n, n))


def heavy_tailed(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.pareto(1.2, (n, n))


def rows_summing_to_one(rng: np.random.Generator, n: int) -> np.ndarray:
    weights = rng.random((n, n))
    return weights / weights.sum(axis=1, keepdims=True)


LAWS = [uniform, heavy_tailed, rows_summing_to_one]
"""Distributions of weights."""


def consortium(law, n: int, seed: int):
    """A random instance: density 0.1 to 1, competition 0.05 to 0.4, weights by a law."""
    rng = np.random.default_rng([seed, n])
    edges = rng.random((n, n)) < rng.choice([0.1, 0.3, 0.6, 1.0])
    weights = np.where(edges, law(rng, n), 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < rng.choice([0.05, 0.2, 0.4]), 1)
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)


def assert_sound(formation) -> None:
    checked = verify(
        formation.benefit,
        formation.competition,
        formation.coalitions,
        fewest_members=formation.fewest_members,
    )
    assert checked.ok, str(checked)
    assert formation.upper_bound >= formation.welfare
