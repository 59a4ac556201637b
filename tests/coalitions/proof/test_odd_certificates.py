"""Whatever a file holds, neither checker confirms a false claim or ends in a traceback."""

import contextlib
import copy
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from fedegoists import (
    BenefitGraph,
    Certificate,
    CompetitionGraph,
    CurveValues,
    UncertainBenefits,
    form,
)
from fedegoists.coalitions.proof import check
from fedegoists.coalitions.proof.coalition_listing import Allowance, ProofError
from fedegoists.coalitions.proof.price_proof import ExactConsortium, PriceProof
from fedegoists.errors import CertificateError, FedEgoistsError
from tests.instances import partitions, random_graphs

TOO_LARGE = "@1e999@"  # written without quotes: a number that is read as infinity
ODD = [
    *(float("nan"), float("inf"), -float("inf"), TOO_LARGE, 10**400, -(10**400), 10**18, -(10**18)),
    *(-1, 0, -0.0, 1, 2, 3, 0.5, 1e-320, -1e-320, 1e308, True, False, None),
    *("", "1", "NaN", "-2.4e-324", "v0", "v1", "v9", "star 0 1", "wheel 0 1 2 3", "proven"),
    *("\ud800", "a\nok     upper bound: 9", "not proven", "truthful", "fair"),
    *([], [[]], {}, ["v0"], ["v0", "v1"], ["v0", "v1", "v2", 1.0], {"v0": 1}, [[[[]]]]),
]
SECONDS = 5.0


def instance(rng: random.Random) -> tuple[BenefitGraph, CompetitionGraph]:
    return random_graphs(
        rng.randint(3, 6), rng.choice([0.5, 0.8, 1.0]), rng.choice([0.1, 0.3]), rng.randrange(10**6)
    )


def worth(document: dict, groups: list[list[str]]) -> float:
    home = {name: k for k, group in enumerate(groups) for name in group}
    return sum(w for a, b, w in document["benefit"]["edges"] if home[a] == home[b])


def is_fine(document: dict, group: list[str]) -> bool:
    """Whether a coalition is valid, by the definition."""
    edges = {(a, b) for a, b, w in document["benefit"]["edges"] if w > 0}
    rivals = {frozenset(pair) for pair in document["competition"]["pairs"]}
    if len(group) == 1:
        return True
    return (
        len(group) >= document.get("fewest_members", 1)
        and not any({a, b} in rivals for a in group for b in group)
        and all(
            any((a, b) in edges for b in group) and any((b, a) in edges for b in group)
            for a in group
        )
    )


def all_valid(document: dict) -> Iterator[list[list[str]]]:
    names = document["benefit"]["participants"]
    for partition in partitions(list(range(len(names)))):
        groups = [[names[k] for k in group] for group in partition]
        if all(is_fine(document, group) for group in groups):
            yield groups


def is_true(document: dict) -> bool:
    """Whether the coalitions are valid, and the welfare and the upper bound are right."""
    claims = {claim["claim"]: claim for claim in document["claims"]}
    assert len(claims) == len(document["claims"])
    groups = document["coalitions"]
    names = sorted(name for group in groups for name in group)
    best = max(worth(document, one) for one in all_valid(document))
    own = worth(document, groups)
    return (
        names == sorted(document["benefit"]["participants"])
        and all(is_fine(document, group) for group in groups)
        and claims["welfare"]["value"] == pytest.approx(own, rel=1e-9, abs=0)
        and claims["upper bound"]["value"] >= best * (1 - 1e-9)
        and (claims["merge-stable"]["status"] != "proven" or is_stable(document, groups))
    )


def is_stable(document: dict, groups: list[list[str]]) -> bool:
    """Whether no coalitions gain by merging."""
    for size in range(2, len(groups) + 1):
        for chosen in combinations(range(len(groups)), size):
            merged = [name for k in chosen for name in groups[k]]
            others = [group for k, group in enumerate(groups) if k not in chosen]
            gains = worth(document, [merged, *others]) > worth(document, groups) * (1 + 1e-12)
            if gains and is_fine(document, merged):
                return False
    return True


def with_prices(rng: random.Random, document: dict, both) -> None:
    """State prices for the components, with triples and inequalities, so that they are checked."""
    least = document.get("fewest_members", 1)
    entries = []
    for one in ExactConsortium(*both, least).components():
        n = len(one.members)
        if n < 3:
            continue
        rows = [f"{rng.choice(['star', 'givers', 'takers'])} 0 1 2", "star 1 0 2"]
        price = [0.25 * float(p) for p in one.plain_prices()]
        entry = PriceProof(
            one.members,
            tuple(rng.choice([2, 4]) * p for p in price),
            float(one.highest_welfare(Allowance())) / one.in_units(1.0) * (1 + 1e-14),
            (one.members[:3],),
            (price[0],),
            tuple(rows),
            (price[1], price[2]),
        )
        try:
            one.confirm(entry, Allowance())
        except ProofError:
            continue
        entries.append(json.loads(json.dumps(entry.to_dict())))
    if entries:
        document["proof"] = entries


def made_false(rng: random.Random, document: dict) -> None:
    """Claim that other coalitions are the best."""
    groups = rng.choice(list(all_valid(document)))
    document["coalitions"] = groups
    for claim in document["claims"]:
        if claim["claim"] in ("welfare", "upper bound"):
            claim["value"] = float(worth(document, groups))
    for entry in document.get("proof", []):
        members = set(entry["members"])
        inside = [[name for name in group if name in members] for group in groups]
        others = [[name] for group in groups for name in group if name not in members]
        entry["at_most"] = float(worth(document, inside + others))


def places(value: object) -> Iterator[tuple[dict | list, str | int]]:
    """Every entry of a document: where it is, and its key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        if key not in ("sha256", "software", "notes"):
            yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def mutated(rng: random.Random, document: dict) -> None:
    """Replace, drop or repeat an entry; a key with @@ is written twice."""
    fields = {}
    for where, key in places(document):  # as many chances for a number as for long lists
        fields.setdefault(key if isinstance(key, str) else type(where[key]).__name__, []).append(
            (where, key)
        )
    where, key = rng.choice(fields[rng.choice(sorted(fields))])
    kind = rng.choice(["replace", "replace", "replace", "drop", "repeat", "demand", "list"])
    if kind == "drop":
        del where[key]
    elif kind == "repeat" and isinstance(where, dict):
        where[f"{key}@@"] = copy.deepcopy(rng.choice([where[key], *ODD]))
    elif kind == "repeat":
        where.insert(key, copy.deepcopy(where[key]))
    elif kind == "demand":
        document["fewest_members"] = rng.choice(ODD)
    elif kind == "list" and isinstance(where[key], list) and where[key]:
        where[key][rng.randrange(len(where[key]))] = copy.deepcopy(rng.choice(ODD))
    else:
        where[key] = copy.deepcopy(rng.choice(ODD))


def resealed(document: dict) -> str:
    """The text, with digests that fit as far as there are graphs."""
    for kind, graph in (("benefit", BenefitGraph), ("competition", CompetitionGraph)):
        # Of something else than a graph there is no digest.
        with contextlib.suppress(
            FedEgoistsError, LookupError, TypeError, AttributeError, OverflowError
        ):
            plain = {key: one for key, one in document[kind].items() if key != "sha256"}
            document[kind]["sha256"] = graph.from_dict(plain).sha256
    document.pop("sha256", None)
    text = json.dumps({**document, "sha256": "0" * 64}, indent=1) + "\n"
    text = text.replace('@@":', '":').replace(f'"{TOO_LARGE}"', "1e999")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text)


def confirmed_alone(text: str, path: Path, monkeypatch) -> bool:
    path.write_text(text)
    monkeypatch.setattr(sys, "argv", ["check.py", str(path)])
    code = check.main()
    assert code in (0, 1, 2, 3)
    return code == 0


def confirmed(text: str) -> bool:
    try:
        return Certificate.from_json(text).check(time_limit=SECONDS).ok
    except FedEgoistsError:
        return False


def honest(rng: random.Random) -> tuple[dict, bool]:
    """A certificate, and whether it has prices."""
    both = instance(rng)
    formation = form(*both, "best", fewest_members=rng.choice([1, 1, 3]))
    document = json.loads(formation.certificate.to_json())
    with_prices(rng, document, both)
    return document, "proof" in document


def fuzz(rng: random.Random, path: Path, monkeypatch) -> tuple[int, int]:
    """Judge one mutated certificate: how many checkers confirm it, of those that it has prices."""
    document, priced = honest(rng)
    if rng.random() < 0.6:
        made_false(rng, document)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        mutated(rng, document)
    text = resealed(document)
    found = [confirmed_alone(text, path, monkeypatch), confirmed(text)]
    if any(found):
        document = json.loads(text, object_pairs_hook=check.without_repeats)
        assert is_true(document), (found, document)
    return sum(found), sum(found) * priced


@pytest.mark.slow
def test_no_odd_certificate_is_confirmed_with_a_false_claim(tmp_path, monkeypatch):
    rng = random.Random(4)
    found = [fuzz(rng, tmp_path / "certificate.json", monkeypatch) for _ in range(400)]
    assert sum(one for one, _ in found) > 40
    assert sum(one for _, one in found) > 10
    assert sum(not one for one, _ in found) > 200


def decided_by_gains(rng: random.Random) -> dict:
    names = ["v0", "v1", "v2"]
    if rng.random() < 0.5:
        gains = CurveValues(
            [100, 100, 50], [0.02, 0.04, 0.03], [[0, 1, 1], [1, 0, 1], [1, 1, 0]], names, unit="AUC"
        )
    else:
        weights, errors = [[0.0, 0.4, 0.2], [0.4, 0.0, 0.1], [0.3, 0.2, 0.0]], [[0.1] * 3] * 3
        errors = [[0.1 * (i != j) for j in range(3)] for i in range(3)]
        gains = UncertainBenefits(weights, errors, names)
    formation = form(gains, CompetitionGraph([("v0", "v2")], names), scenarios=20)
    return json.loads(formation.certificate.to_json())


def test_odd_certificates_of_expected_gains_end_in_no_traceback(tmp_path, monkeypatch):
    rng = random.Random(5)
    for _ in range(60):
        document = decided_by_gains(rng)
        mutated(rng, document)
        text = resealed(document)
        assert not confirmed_alone(text, tmp_path / "certificate.json", monkeypatch)
        confirmed(text)


# One by one ---------------------------------------------------------------------------------------


NAMES = list("abcd")
WORTH = {("a", "b"): 2.0, ("b", "c"): 3.0, ("c", "d"): 2.0, ("a", "d"): 1.0}
EDGES = [edge for (a, b), w in WORTH.items() for edge in ((a, b, w), (b, a, w))]
RING = (
    BenefitGraph.from_edges(EDGES, NAMES),
    CompetitionGraph([("a", "c"), ("b", "d")], NAMES),
)


def ring(**more: object) -> dict:
    """A certificate of {a, b} {c, d}, worth 8, with other entries."""
    return json.loads(form(*RING).certificate.to_json()) | more


def claim(document: dict, coalitions: list[list[str]], welfare: float) -> dict:
    document["coalitions"] = coalitions
    for one in document["claims"]:
        if one["claim"] in ("welfare", "upper bound"):
            one["value"] = welfare
    return document


def exit_and_text(document: dict, path: Path, monkeypatch, capsys) -> tuple[int, str]:
    confirmed(resealed(document))  # the package ends in no traceback, either
    path.write_text(resealed(document))
    monkeypatch.setattr(sys, "argv", ["check.py", str(path)])
    code = check.main()
    out, err = capsys.readouterr()
    return code, out + err


def priced(**entry: object) -> dict:
    return ring(proof=[{"members": NAMES, "prices": [9, 9, 9, 9], "at_most": 8.0, **entry}])


@pytest.mark.parametrize(
    ("document", "code", "problem"),
    [
        (ring(), 0, "ok     enough members: yes, any number"),
        (claim(ring(fewest_members=float("nan")), [["a", "d"], ["b"], ["c"]], 2.0), 2, "a number"),
        (ring(fewest_members=True), 1, "not a number of 1 or more"),
        (ring(fewest_members="1"), 1, "not a number of 1 or more"),
        (ring(fewest_members=0), 1, "not a number of 1 or more"),
        (ring(fewest_members=2.0), 1, "not a number of 1 or more"),
        (claim(ring(fewest_members=3), [[n] for n in NAMES], 0.0), 0, "yes, at least 3"),
        (priced(), 0, "ok     upper bound: 8"),
        (priced(prices=[10**400, 9, 9, 9]), 2, "too large"),
        (priced(prices=[TOO_LARGE, 9, 9, 9]), 2, "infinite"),
        (priced(prices=["9", 9, 9, 9]), 2, "not of its type"),
        (priced(prices=[True, 9, 9, 9]), 2, "not of its type"),
        (priced(at_most=float("inf")), 2, "infinite"),
        (priced(rows=["star 0 1 3"], row_prices=["-2.4e-324"]), 2, "not of its type"),
        (priced(rows=["star 0 1 3"], row_prices=[10**400]), 2, "too large"),
        (priced(triples=[["a", "b", "c"]]), 2, "not of its type"),
        (priced(triples=[["a", "b", "c", 10**400]]), 2, "too large"),
        (priced(members="abcd"), 2, "not of its type"),
        (priced(**{"at_most@@": 7.0}), 2, "a key occurs twice"),
        (claim(ring(), [["a", "b"], ["c", "d"]], float("inf")), 2, "infinite"),
        (claim(ring(), [["a", "b"], ["c", "d"]], True), 2, "not stated as a number"),
        (claim(ring(), [["a", "b"], ["c", "d"]], "8"), 2, "not stated as a number"),
        (claim(ring(), ["ab", "cd"], 8.0), 2, "not of its type"),
        (ring(confidence=0.99), 2, "confidence"),
        (ring(claims=ring()["claims"] + ring()["claims"][:1]), 2, "a claim is stated twice"),
        (
            ring(claims=[*ring()["claims"], {"claim": "envy-free\nok", "status": "proven"}]),
            3,
            "       envy-free\\nok: not checked by this program",
        ),
        (ring(competition={"participants": NAMES, "pairs": [["a", "a"]], "sha256": ""}), 1, "self"),
        (ring(format="another"), 2, "version 1"),
    ],
)
def test_what_is_odd_is_told(document, code, problem, tmp_path, monkeypatch, capsys):
    found, text = exit_and_text(document, tmp_path / "certificate.json", monkeypatch, capsys)
    assert (found, problem in text) == (code, True), text


@pytest.mark.parametrize(
    "entry",
    [
        {"prices": [10**400, 9, 9, 9]},
        {"at_most": 10**400},
        {"rows": ["star 0 1 3"], "row_prices": [10**400]},
        {"triples": [["a", "b", "c", 10**400]]},
    ],
)
def test_the_package_refuses_numbers_that_are_no_floats(entry):
    with pytest.raises(CertificateError, match="a number is too large"):
        Certificate.from_json(resealed(priced(**entry)))


def test_the_package_refuses_halves_of_characters():
    with pytest.raises(CertificateError, match="half of a character"):
        Certificate.from_json(resealed(ring(notes=["\ud800"])))
    assert confirmed(resealed(ring(notes=["\ud83d\ude00"])))


def test_prices_are_numbers_even_where_no_file_is_read():
    """Read as floats they are no less than zero; as fractions they would be."""
    both = {"benefit": RING[0].to_dict(), "competition": RING[1].to_dict()}
    found = check.BothGraphs(json.loads(json.dumps(both)))
    entry = {"members": NAMES, "prices": [9.0] * 4, "at_most": 8.0}
    assert check.priced_bound(found, 15, entry, check.StepCount()) == 8 * found.unit
    entry |= {"rows": ["star 0 1 3"], "row_prices": ["-2.4e-324"]}
    with pytest.raises(check.RefutedError, match="negative or not a number"):
        check.priced_bound(found, 15, entry, check.StepCount())


# The work -----------------------------------------------------------------------------------------


def hubs_and_leaves(hubs: int, leaves: int) -> tuple[BenefitGraph, CompetitionGraph]:
    """Each hub is with one leaf at best, worth 2; all hubs compete, and so do all leaves."""
    names = [f"h{k}" for k in range(hubs)], [f"l{k}" for k in range(leaves)]
    pairs = {}
    for k, leaf in enumerate(names[1]):
        pairs[names[0][(k + 1) % hubs], leaf] = 0.25
        pairs[names[0][k % hubs], leaf] = 1.0 if k < hubs else 0.25
    edges = [edge for (a, b), w in pairs.items() for edge in ((a, b, w), (b, a, w))]
    rivals = [pair for kind in names for pair in combinations(kind, 2)]
    everybody = [*names[0], *names[1]]
    return BenefitGraph.from_edges(edges, everybody), CompetitionGraph(rivals, everybody)


def test_hundreds_of_coalitions_are_put_together():
    benefit, competition = hubs_and_leaves(12, 640)
    (component,) = ExactConsortium(benefit, competition, 1).components()
    both = {"benefit": benefit.to_dict(), "competition": competition.to_dict()}
    found = check.BothGraphs(json.loads(json.dumps(both)))
    price = 2.0 + 2**-40  # the bound is proven by what is left, and that has to be combined
    prices = [price if name[0] == "h" else 2.0**-60 for name in component.members]
    entry = PriceProof(component.members, tuple(prices), 24.0)
    component.confirm(entry, Allowance())
    written, part = json.loads(json.dumps(entry.to_dict())), (1 << 652) - 1
    assert check.priced_bound(found, part, written, check.StepCount()) == 24 * found.unit
    written["at_most"] = 23.99
    with pytest.raises(check.RefutedError, match="a higher welfare"):
        check.priced_bound(found, part, written, check.StepCount())


@pytest.mark.parametrize("kind", ["givers", "takers"])
def test_givers_and_takers_are_counted_as_steps(kind):
    """Each of 20 inequalities has one other and 60 givers or takers of the centre."""
    names = [f"v{k}" for k in range(61)]
    edges = [edge for b in names[1:] for edge in (("v0", b, 1.0), (b, "v0", 1.0))]
    benefit, competition = BenefitGraph.from_edges(edges, names), CompetitionGraph([], names)
    both = {"benefit": benefit.to_dict(), "competition": competition.to_dict()}
    found = check.BothGraphs(json.loads(json.dumps(both)))
    entry = {"members": names, "prices": [1.0] * 61, "at_most": 120.0}
    entry |= {"rows": [f"{kind} 0 1"] * 20, "row_prices": [0.0] * 20}
    steps = check.StepCount()
    check.remaining_values(found, (1 << 61) - 1, entry, steps)
    assert check.MOST_STEPS - steps.left == 20 * (1 + 1 + 60)
    (component,) = ExactConsortium(benefit, competition, 1).components()
    rows = PriceProof(
        tuple(names), (1.0,) * 61, 120.0, rows=tuple(entry["rows"]), row_prices=(0.0,) * 20
    )
    component._remaining_values(rows, Allowance(20 * (1 + 61 // 8)))
    with pytest.raises(ProofError, match="more steps"):
        component._remaining_values(rows, Allowance(20 * (1 + 61 // 8) - 1))
