"""Certificates made to keep a checker busy or to fill its memory, each of one kind of attack.

Every generator takes a number of bytes and returns a text of about that many, sealed with digests
that fit, so that nothing ends its check early. The texts have no spaces: that leaves more room.
"""

import hashlib
import itertools
import json
import random
import struct
from collections.abc import Callable, Sequence

Edge = tuple[int, int, float]
Pair = tuple[int, int]

LONG_NAME = 190
"""Letters of a long name; names have at most 200."""


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def graph_digest(kind: str, names: Sequence[str], links: Sequence[Sequence[float]]) -> str:
    """Return the SHA-256 of a graph in canonical form."""
    if kind == "benefit":
        rows = sorted([int(a), int(b), struct.pack(">d", w).hex()] for a, b, w in links if w)
        graph = {"edges": rows, "kind": kind, "participants": list(names)}
    else:
        pairs = sorted(sorted(map(int, pair)) for pair in links)
        graph = {"kind": kind, "pairs": pairs, "participants": list(names)}
    canonical = json.dumps(graph, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def sealed_text(blank: str) -> str:
    """Return a text that ends with 64 zeros as its digest, with the digest that fits."""
    head, _ = blank.rsplit("0" * 64, 1)
    return head + hashlib.sha256(blank.encode()).hexdigest() + blank[len(head) + 64 :]


def certificate(
    names: Sequence[str],
    edges: Sequence[Edge],
    pairs: Sequence[Pair],
    coalitions: Sequence[Sequence[int]] | None = None,
    *,
    bound: float = 0.0,
    replaced: tuple[str, str] = ("", ""),
    **more: object,
) -> str:
    """Return a sealed certificate of these graphs; everybody is alone unless coalitions are given.

    Parameters
    ----------
    replaced : (str, str)
        A part of the text and what takes its place, for what no JSON writer would write.
    """
    groups = [[i] for i in range(len(names))] if coalitions is None else coalitions
    home = {i: k for k, group in enumerate(groups) for i in group}
    welfare = sum(w for a, b, w in edges if home[a] == home[b])
    given = {
        "format": "fedegoists certificate",
        "version": 1,
        "method": "best",
        "objective": "welfare",
        "seed": 0,
        "coalitions": [[names[i] for i in group] for group in groups],
        "claims": [
            *(
                {"claim": claim, "status": "proven"}
                for claim in ("no free riders", "no conflicts", "merge-stable")
            ),
            {"claim": "welfare", "status": "proven", "value": welfare},
            {"claim": "upper bound", "status": "proven", "value": max(bound, welfare)},
        ],
        "notes": [],
        "benefit": {
            "participants": names,
            "edges": [[names[a], names[b], w] for a, b, w in edges],
            "sha256": graph_digest("benefit", names, edges),
        },
        "competition": {
            "participants": names,
            "pairs": [[names[a], names[b]] for a, b in pairs],
            "sha256": graph_digest("competition", names, pairs),
        },
        "software": {},
        **more,
    }
    given["sha256"] = "0" * 64
    return sealed_text(compact(given).replace(*replaced) if replaced[0] else compact(given))


def numbered(n: int) -> list[str]:
    """Return n short names."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = itertools.chain(letters, map("".join, itertools.product(letters, repeat=2)))
    longer = map("".join, itertools.product(letters, repeat=3))
    return list(itertools.islice(itertools.chain(names, longer), n))


def long_names(n: int) -> list[str]:
    return [f"{i:06d}" + "x" * (LONG_NAME - 6) for i in range(n)]


PAIR = [(0, 1, 1), (1, 0, 1)]
"""Two participants that help each other."""


def with_text(place: str, text: str) -> str:
    """Return a small certificate in which a piece of text stands for a value."""
    return certificate(["a", "b"], PAIR, [], [[0, 1]], replaced=(place, text))


# What is hard to read ----------------------------------------------------------------------------


def nested_lists(size: int) -> str:
    return with_text('"notes":[]', f'"notes":{"[" * (size // 2)}{"]" * (size // 2)}')


def empty_lists(size: int) -> str:
    return with_text('["a","b",1]', ",".join(["[]"] * (size // 3)))


def empty_objects(size: int) -> str:
    return with_text('"notes":[]', f'"notes":[{",".join(["{}"] * (size // 3))}]')


def wrong_types(size: int) -> str:
    return with_text('"notes":[]', f'"notes":[{",".join(["0"] * (size // 2))}]')


def unknown_keys(size: int) -> str:
    return with_text('"notes":[]', ",".join(f'"{k}":0' for k in range(size // 10)) + ',"notes":[]')


def many_packages(size: int) -> str:
    listed = ",".join(f'"{k}":""' for k in range(size // 11))
    return with_text('"software":{}', f'"software":{{{listed}}}')


def repeated_keys(size: int) -> str:
    repeated = ",".join(['"a":0'] * (size // 6))
    return with_text('"software":{}', f'"software":{{{repeated}}}')


def long_integer(size: int) -> str:
    return with_text('"seed":0', f'"seed":{"9" * size}')


def many_long_integers(size: int) -> str:
    number = "1" + "0" * 300
    return with_text('["a","b",1]', ",".join([f'["a","b",{number}]'] * (size // 312)))


def long_decimal(size: int) -> str:
    return with_text('["a","b",1]', f'["a","b",1.{"7" * size}]')


def huge_exponents(size: int) -> str:
    return with_text('["a","b",1]', ",".join(['["a","b",1e400000000]'] * (size // 22)))


def hexadecimal_text(size: int) -> str:
    return with_text('"notes":[]', f'"notes":["{"a" * size}"]')


def spaces(size: int) -> str:
    return certificate(["a", "b"], PAIR, [], [[0, 1]])[:-1] + " " * size + "}"


def spaces_inside(size: int) -> str:
    """Return many places that look like the end of the file, each followed by spaces."""
    end = f'"{"0" * 64}"' + " " * 200
    return with_text('"notes":[]', f'"notes":[{",".join([end] * (size // len(end)))}]')


def other_format(size: int) -> str:
    return with_text('"fedegoists certificate"', f'"{"é" * (size // 2)}"')


def control_characters(size: int) -> str:
    return with_text('"fedegoists certificate"', '"' + "\\u001b" * (size // 6) + '"')


def half_characters(size: int) -> str:
    return with_text('"notes":[]', '"notes":["' + "\\ud800" * (size // 6) + '"]')


def long_claim(size: int) -> str:
    return with_text('"claim":"no conflicts"', f'"claim":"{"x" * size}"')


def one_long_name(size: int) -> str:
    return certificate(["a" * (size // 5), "b"], PAIR, [], [[0, 1]])


# Large graphs ------------------------------------------------------------------------------------


def many_participants(size: int) -> str:
    names = [f"{k:x}" for k in range(size // 28)]
    return certificate(names, [], [])


def pairs_of(n: int) -> list[Pair]:
    return list(itertools.combinations(range(n), 2))


def all_edges(n: int, weight: float = 1) -> list[Edge]:
    return [(a, b, weight) for a, b in itertools.permutations(range(n), 2)]


def complete(size: int) -> str:
    """Return all benefits, of which none conflicts, with everybody together."""
    n = int((size / 15) ** 0.5)
    return certificate(numbered(n), all_edges(n), [], [list(range(n))])


def complete_alone(size: int) -> str:
    """Return all benefits, and some competitors, with everybody alone."""
    n = int((size / 16) ** 0.5)
    return certificate(numbered(n), all_edges(n), pairs_of(n)[:: n // 2 or 1], bound=n * n)


def tiny_and_huge_numbers(size: int) -> str:
    n = int((size / 22) ** 0.5)
    rng = random.Random(1)
    edges = [(a, b, rng.choice((5e-324, 1e295))) for a, b, _ in all_edges(n)]
    return certificate(numbered(n), edges, [(0, 1)], [[i] for i in range(n)], bound=1e302)


def sparse(size: int) -> str:
    """Return the most participants with as many benefits as there is room for."""
    n = min(10_000, max(4, size // 100))
    count = max(1, (size - 40 * n) // 18 // n)
    edges = [(i, (i + 1 + 37 * k) % n, 1) for i in range(n) for k in range(count)]
    edges = sorted({(a, b): (a, b, w) for a, b, w in edges if a != b}.values())
    pairs = [(i, i + 1) for i in range(0, n - 1, 3)]
    return certificate(numbered(n), edges, pairs, bound=float(len(edges)))


def only_competitors(size: int) -> str:
    n = int((size / 6) ** 0.5)
    return certificate(numbered(n), [(0, 1, 1)], pairs_of(n)[1:])


# Violations, which have witnesses ----------------------------------------------------------------


def competing_ring(size: int) -> str:
    """Return a ring in which all compete, claimed as one coalition."""
    n = int((size / 6.5) ** 0.5)
    edges = [(i, (i + 1) % n, 1) for i in range(n)]
    return certificate(numbered(n), edges, pairs_of(n), [list(range(n))])


def long_free_riders(size: int) -> str:
    """Return one coalition with long names, in which nobody gives anything."""
    n = max(2, min(10_000, size // (3 * LONG_NAME + 10)))
    return certificate(long_names(n), [], [], [list(range(n))])


def long_conflicts(size: int) -> str:
    """Return a ring with long names, all in one coalition, in which the opposite compete."""
    n = max(4, min(10_000, size // (7 * LONG_NAME)) // 2 * 2)
    edges = [(i, (i + 1) % n, 1) for i in range(n)]
    pairs = [(i, i + n // 2) for i in range(n // 2)]
    return certificate(long_names(n), edges, pairs, [list(range(n))])


def long_merger(size: int) -> str:
    """Return a ring with long names, all alone: together they would gain."""
    n = max(4, min(10_000, size // (6 * LONG_NAME)))
    edges = [(i, (i + 1) % n, 1) for i in range(n)]
    return certificate(long_names(n), edges, [], bound=float(n))


# Questions about merging -------------------------------------------------------------------------


def hard_merger(size: int, forbidden: float = 0.15) -> str:
    """Return a ring of stages with two choices each, of which random pairs exclude one another."""
    rng = random.Random(1)
    length = max(2, int((size / 12 / (2 * forbidden)) ** 0.5))
    length = min(length, 500)
    stages = [[0], *([1 + 2 * k, 2 + 2 * k] for k in range(length)), [0]]
    edges = [(a, b, 1) for s, t in itertools.pairwise(stages) for a in s for b in t]
    pairs = [
        (a, b)
        for s, t in itertools.combinations(stages[1:-1], 2)
        for a in s
        for b in t
        if rng.random() < forbidden
    ]
    return certificate(numbered(1 + 2 * length), edges, pairs, bound=float(len(edges)))


def hard_merger_few_forbidden(size: int) -> str:
    return hard_merger(size, 0.02)


def demanded_members(size: int) -> str:
    """Return many participants without competitors, where at least three are demanded."""
    n = min(10_000, max(4, size // 40))
    edges = [(i, (i + 1) % n, 1) for i in range(n - 1)]
    claims = [
        {"claim": claim, "status": "proven"}
        for claim in ("no free riders", "no conflicts", "enough members", "merge-stable")
    ]
    claims += [
        {"claim": "welfare", "status": "proven", "value": 0.0},
        {"claim": "upper bound", "status": "proven", "value": float(n)},
    ]
    return certificate(numbered(n), edges, [], fewest_members=3, claims=claims)


# Proofs ------------------------------------------------------------------------------------------


def prices(names: Sequence[str], price: float, at_most: float, **more: object) -> dict[str, object]:
    members = list(names)
    return {"members": members, "prices": [price] * len(members), "at_most": at_most, **more}


def proven(n: int, rivals: Sequence[Pair], proof: object, bound: float) -> str:
    """Return a complete graph, everybody alone, with a proof of a bound."""
    return certificate(numbered(n), all_edges(n), rivals, bound=bound, proof=proof)


def long_listing(size: int) -> str:
    """Return prices that are so high that every set is listed."""
    n = min(400, max(16, int((size / 20) ** 0.5)))
    return proven(n, [(0, 1)], [prices(numbered(n), 2.0 * n, n * n / 2)], n * n / 2)


def sparse_listing(size: int) -> str:
    """Return the same for a ring of thousands of participants, all of which fit together."""
    n = min(10_000, max(16, size // 60))
    names = numbered(n)
    edges = [(i, (i + s) % n, 1) for i in range(n) for s in (1, -1)]
    proof = [prices(names, 3.0, 1.5 * n)]
    return certificate(names, edges, [(0, 1)], bound=1.5 * n, proof=proof)


def square_of_ones(size: int) -> str:
    """Return a square that makes every pair worth the same, and prices that exclude nothing."""
    n = min(1_000, max(16, size // 160))
    names = numbered(n)
    edges = [(i, (i + s) % n, w) for i in range(n) for s, w in ((1, 1), (2, 0.001), (7, 0.001))]
    rows = {"rows": ["square " + " ".join(["1"] * n)], "row_prices": [1.0]}
    proof = [{"members": names, "prices": [0.5 * n] * n, "at_most": 0.5 * n * n - 1, **rows}]
    return certificate(names, edges, [], bound=1.0, proof=proof)


def listing_of_pairs(size: int) -> str:
    """Return two sides of competitors and prices by which all pairs across are listed."""
    n = min(1_000, max(16, int((size / 9) ** 0.5) // 2 * 2))
    sides = range(n // 2), range(n // 2, n)
    pairs = [pair for side in sides for pair in itertools.combinations(side, 2)]
    across = list(itertools.product(*sides))
    random.Random(0).shuffle(across)
    kept = across[: 4 * len(across) // 5]
    edges = [edge for a, b in kept for edge in ((a, b, 1), (b, a, 1))]
    names = numbered(n)
    proof = [{"members": names, "prices": [3] * n, "at_most": 1}]
    return certificate(names, edges, pairs, bound=1.0, proof=proof)


def different_triples(size: int) -> str:
    """Return prices for as many different triples as there is room for."""
    n = min(1_000, max(16, size // 100))
    names = numbered(n)
    rng = random.Random(1)
    triples = [[*(names[i] for i in rng.sample(range(n), 3)), 1] for _ in range(size // 20)]
    proof = [{"members": names, "prices": [1] * n, "at_most": 0, "triples": triples}]
    return certificate(names, [(i, (i + 1) % n, 1) for i in range(n)], [], bound=1.0, proof=proof)


def hard_cover(size: int) -> str:
    """Return two sides of which one is larger by one: no pairs cover all, hard to see."""
    side = min(120, max(8, int((size / 40) ** 0.5)))
    n = 2 * side + 1
    edges = [edge for a in range(side) for b in range(side, n) for edge in ((a, b, 1), (b, a, 1))]
    rivals = pairs_of(side) + [(a + side, b + side) for a, b in pairs_of(side + 1)]
    names = numbered(n)
    proof = [prices(names, 1.0, 2.0 * side)]
    return certificate(names, edges, rivals, bound=2.0 * side, proof=proof)


def inequalities(size: int, kind: str, n: int, count: int) -> str:
    """Return a sparse graph with inequalities, each over as many participants as may be."""
    names = numbered(n)
    edges = [(i, (i + s) % n, 1) for i in range(n) for s in (1, -1)]
    if kind == "square":
        row = "square" + " 1" * n
    else:
        row = " ".join([kind, *map(str, range(min(n, 200)))])
    row_count = max(1, min(count, size // (len(row) + 7)))
    rows = {"rows": [row] * row_count, "row_prices": [0.001] * row_count}
    proof = [prices(names, 3.0, 1.5 * n, **rows)]
    return certificate(names, edges, [(0, 1)], bound=1.5 * n, proof=proof)


def many_stars(size: int) -> str:
    return inequalities(size, "star", 300, 10**6)


def many_givers(size: int) -> str:
    return inequalities(size, "givers", 2_000, 10**6)


def square_of_thousands(size: int) -> str:
    return inequalities(size, "square", min(2_700, max(16, size // 100)), 1)


def many_squares(size: int) -> str:
    return inequalities(size, "square", min(10_000, max(16, size // 200)), 10**6)


def many_triples(size: int) -> str:
    """Return a price for a triple, as often as there is room for."""
    names = numbered(20)
    triples = [["a", "b", "c", 0]] * (size // 16)
    return proven(20, [(0, 1)], [prices(names, 19.0, 190.0, triples=triples)], 190.0)


def many_entries(size: int) -> str:
    entry = {"members": ["a"], "prices": [0], "at_most": 0}
    return proven(20, [(0, 1)], [entry] * (size // 45), 190.0)


def many_small_components(size: int) -> str:
    """Return hundreds of components that are small enough for all their partitions."""
    rng = random.Random(1)
    count = min(700, max(1, size // 6_000))
    edges: list[Edge] = []
    pairs: list[Pair] = []
    for first in range(0, 14 * count, 14):
        inside = range(first, first + 14)
        edges += [(a, b, round(rng.random(), 3)) for a, b in itertools.permutations(inside, 2)]
        pairs += [pair for pair in itertools.combinations(inside, 2) if rng.random() < 0.05]
    return certificate(numbered(14 * count), edges, pairs, bound=3.0 * len(edges) / 8)


# Methods and objectives whose claims need more ---------------------------------------------------


def objective_claims(value: float) -> list[dict[str, object]]:
    names = ("no free riders", "no conflicts", "merge-stable")
    claims: list[dict[str, object]] = [{"claim": name, "status": "proven"} for name in names]
    claims.append({"claim": "welfare", "status": "proven", "value": 0.0})
    claims.append({"claim": "upper bound", "status": "proven", "value": 1e6})
    claims.append({"claim": "objective", "status": "proven", "value": value})
    return claims


def fairest_of_many(size: int) -> str:
    """Return small components, in which the search for a fairer partition tries everything."""
    count = min(830, max(1, size // 2_000))
    edges = []
    for first in range(0, 12 * count, 12):
        inside = range(first, first + 12)
        edges += [(a, b, 1) for a, b in itertools.permutations(inside, 2)]
    pairs = [(first, first + 1) for first in range(0, 12 * count, 12)]
    claims = objective_claims(0.0)
    names = numbered(12 * count)
    return certificate(names, edges, pairs, objective="fair", claims=claims)


def participation_of_thousands(size: int) -> str:
    n = min(10_000, max(20, size // 40))
    edges = [(i, (i + 1) % n, 1) for i in range(n)]
    claims = objective_claims(float(n))
    names = numbered(n)
    return certificate(names, edges, [(0, 2)], objective="participation", claims=claims)


def truthful_of_thousands(size: int) -> str:
    n = min(10_000, max(20, size // 60))
    edges = [(i, (i + 1) % n, 1) for i in range(n)]
    pairs = [(i, i + 1) for i in range(0, n - 1, 2)]
    names = ("no free riders", "no conflicts", "merge-stable", "strategy-proof")
    claims: list[dict[str, object]] = [{"claim": name, "status": "proven"} for name in names]
    claims.append({"claim": "welfare", "status": "proven", "value": 0.0})
    claims.append({"claim": "upper bound", "status": "proven", "value": float(n)})
    return certificate(numbered(n), edges, pairs, method="truthful", claims=claims)


def without_a_proof(size: int) -> str:
    """Return a certificate as earlier versions wrote it: the search is repeated."""
    n = min(200, max(16, int((size / 30) ** 0.5)))
    rng = random.Random(1)
    edges = [(a, b, round(rng.random(), 9)) for a, b, _ in all_edges(n)]
    pairs = [pair for pair in pairs_of(n) if rng.random() < 0.05]
    return certificate(numbered(n), edges, pairs, bound=1.0)


ATTACKS: dict[str, Callable[[int], str]] = {
    attack.__name__.replace("_", " "): attack
    for attack in (
        nested_lists,
        empty_lists,
        empty_objects,
        wrong_types,
        unknown_keys,
        many_packages,
        repeated_keys,
        long_integer,
        many_long_integers,
        long_decimal,
        huge_exponents,
        hexadecimal_text,
        spaces,
        spaces_inside,
        other_format,
        control_characters,
        half_characters,
        long_claim,
        one_long_name,
        many_participants,
        complete,
        complete_alone,
        tiny_and_huge_numbers,
        sparse,
        only_competitors,
        competing_ring,
        long_free_riders,
        long_conflicts,
        long_merger,
        hard_merger,
        hard_merger_few_forbidden,
        demanded_members,
        long_listing,
        sparse_listing,
        square_of_ones,
        listing_of_pairs,
        different_triples,
        hard_cover,
        many_stars,
        many_givers,
        square_of_thousands,
        many_squares,
        many_triples,
        many_entries,
        many_small_components,
        fairest_of_many,
        participation_of_thousands,
        truthful_of_thousands,
        without_a_proof,
    )
}
