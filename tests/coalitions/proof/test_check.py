"""The stand-alone checker: confirms what is true, refuses what is forged, needs no package."""

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, CurveValues, form
from fedegoists.coalitions.proof import check
from tests.instances import (
    as_positions,
    chain_of_pairs,
    chain_of_pairs_and_singles,
    graphs_and_coalitions,
    mergeable,
    random_graphs,
    single_beside_competing_rings,
    without_rivalry,
)


def instance(rng: random.Random, largest: int = 24):
    density = rng.choice([0.1, 0.2, 0.3, 0.5, 1.0])
    rivalry = rng.choice([0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
    return random_graphs(rng.randint(2, largest), density, rivalry, rng.randrange(10**6))


def sealed(document: dict) -> str:
    """The text of any document, with a digest of the file that fits."""
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text)


@pytest.mark.parametrize("method", ["best", "stable"])
@pytest.mark.parametrize("fewest_members", [1, 3])
def test_honest_certificates_are_confirmed(method, fewest_members):
    rng = random.Random(fewest_members)
    for _ in range(15):
        formation = form(*instance(rng), method, time_limit=5, fewest_members=fewest_members)
        fine, checked, lines = check.check(formation.certificate.to_json())
        assert fine, lines
        assert checked


def forged(rng: random.Random, document: dict) -> str | None:
    """Make one false claim in a certificate of an optimum, and return what kind it is."""
    kind = rng.choice(["bound", "prices", "swap", "welfare", "weight"])
    claims = {claim["claim"]: claim for claim in document["claims"]}
    groups = document["coalitions"]
    if kind == "bound":  # below what is possible
        claims["upper bound"]["value"] *= 1 - 1e-6
        claims["welfare"]["value"] *= 1 - 1e-6
    elif kind == "prices":  # too low to cover all coalitions
        if not document.get("proof"):
            return None
        entry = document["proof"][0]
        k = max(range(len(entry["prices"])), key=entry["prices"].__getitem__)
        entry["prices"][k] *= 0.5
    elif kind == "swap":  # a partition that is worse, said to be the best
        large = [group for group in groups if len(group) > 1]
        if not large:
            return None
        group = rng.choice(large)
        groups.append([group.pop()])
    elif kind == "welfare":
        claims["welfare"]["value"] *= 1 + 1e-6
        claims["upper bound"]["value"] *= 1 + 1e-6
    else:  # another graph, for which the claims do not hold
        edge = rng.choice(document["benefit"]["edges"])
        edge[2] += 1e6
    return kind


def test_forged_and_resealed_certificates_are_rejected():
    rng = random.Random(3)
    kinds = set()
    while len(kinds) < 5 or rng.random() < 0.97:
        formation = form(*instance(rng), time_limit=5)
        if not formation.optimal or not formation.welfare:
            continue
        document = json.loads(formation.certificate.to_json())
        kind = forged(rng, document)
        if kind is None:
            continue
        kinds.add(kind)
        if kind == "weight":
            competing = {frozenset(pair) for pair in document["competition"]["pairs"]}
            raised = [e for e in document["benefit"]["edges"] if e[2] >= 1e6]
            if frozenset(raised[0][:2]) in competing:
                continue  # a benefit between competitors changes nothing
            text = sealed(document)  # the digest of the graph shows it as well
        else:
            text = sealed(document)
        fine, _, lines = check.check(text)
        assert not fine, (kind, lines)
        assert not Certificate.from_json(text).check().ok


def test_it_runs_from_the_folder_of_a_certificate_without_the_package(tmp_path):
    formation = form(*random_graphs(18, 0.5, 0.1, seed=1), time_limit=5)
    certificate = tmp_path / "certificate.json"
    formation.certificate.save(certificate)
    shutil.copy(check.__file__, tmp_path / "check.py")

    def run() -> subprocess.CompletedProcess[str]:
        # Isolated mode: no environment, no user site, and not this project.
        command = [sys.executable, "-I", "-S", "check.py", "certificate.json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok     upper bound:" in done.stdout
    certificate.write_text(certificate.read_text().replace('"seed": 0', '"seed": 1'))
    done = run()
    assert done.returncode == 1
    assert "WRONG  unchanged" in done.stdout
    certificate.write_text("{}")
    assert run().returncode == 2
    assert "expected a certificate of version 1" in run().stderr


def test_decisions_on_expected_gains_are_said_not_to_be_checked():
    values = CurveValues([100, 100], [0.02, 0.04], [[0, 1], [1, 0]], ["North", "South"], unit="AUC")
    formation = form(values, CompetitionGraph([], ["North", "South"]))
    fine, checked, lines = check.check(formation.certificate.to_json())
    assert (fine, checked) == (True, False)
    assert "use fedegoists verify" in lines[0]


def test_an_objective_is_said_not_to_be_checked():
    formation = form(*random_graphs(8, 0.5, 0.2, seed=1), objective="fair")
    fine, checked, _ = check.check(formation.certificate.to_json())
    assert fine
    assert not checked


def test_mergers_are_searched_for_among_what_is_linked():
    """All at once, 60 copies of a – b – c with a and c competing would have 2^60 cases."""
    letters, edges, pairs = [], [], []
    for k in range(60):
        letters += [f"{one}{k}" for one in "abc"]
        edges += [(f"{x}{k}", f"{y}{k}", 1.0) for x, y in ("ab", "ba", "bc", "cb")]
        pairs.append((f"a{k}", f"c{k}"))
    benefit = BenefitGraph.from_edges(edges, letters)
    formation = form(benefit, CompetitionGraph(pairs, letters))
    document = json.loads(formation.certificate.to_json())
    assert formation.certificate.check().ok
    graphs = check.BothGraphs(document)
    groups = check.read_partition(graphs, document)
    assert check.check_stable(graphs, groups, False, check.StepCount(20_000)) == "yes"
    apart = [1 << i for group in groups[:2] for i in check.bits(group)] + groups[2:]
    with pytest.raises(check.RefutedError, match="2 coalitions would gain"):
        check.check_stable(graphs, apart, False, check.StepCount(20_000))


def read(benefit, competition, coalitions, least=1) -> tuple[check.BothGraphs, list[int]]:
    """Graphs and coalitions as a certificate states them."""
    document = {
        "benefit": benefit.to_dict(),
        "competition": competition.to_dict(),
        "coalitions": coalitions,
        "fewest_members": least,
    }
    graphs = check.BothGraphs(document)
    return graphs, check.read_partition(graphs, document)


def searched(instance) -> tuple[bool, int]:
    """Whether no coalitions can merge, and the steps after which the search says so."""
    steps = check.StepCount()
    try:
        check.check_stable(*read(*instance), False, steps)
    except check.RefutedError:
        return False, steps.left
    return True, steps.left


def test_what_competitors_could_give_each_other_links_nothing():
    """Each of 60 pairs helps a competitor in the next: 60 steps, instead of over 50 million."""
    benefit, competition, pairs = chain_of_pairs(60)
    assert check.check_stable(*read(benefit, competition, pairs), False, check.StepCount(60))
    certificate = form(benefit, competition).certificate
    assert certificate.check().ok
    assert check.check(certificate.to_json())[0]


def test_a_single_between_two_that_compete_joins_neither():
    """Its giver and its taker compete. 60 pairs take 238 steps, instead of over 50 million."""
    benefit, competition, coalitions = chain_of_pairs_and_singles(60)
    instance = read(benefit, competition, coalitions)
    assert check.check_stable(*instance, False, check.StepCount(238)) == "yes"
    certificate = form(benefit, competition).certificate
    assert certificate.check().ok
    assert check.check(certificate.to_json())[0]


@pytest.mark.parametrize("least", [1, 3])
def test_a_single_joins_a_coalition_that_is_its_giver_and_its_taker(least):
    instance = read(*single_beside_competing_rings(), least)
    with pytest.raises(check.RefutedError, match="2 coalitions would gain"):
        check.check_stable(*instance, False, check.StepCount())


@given(graphs_and_coalitions())
@settings(max_examples=300, deadline=None)
def test_mergers_are_those_of_brute_force(instance):
    benefit, competition, coalitions, least = instance
    stable, steps = searched(instance)
    groups = as_positions(coalitions, benefit.participants)
    assert stable is (mergeable(groups, benefit, competition, least) is None)
    kept = without_rivalry(benefit, competition, coalitions)
    assert searched((kept, competition, coalitions, least)) == (stable, steps)


def test_it_reads_a_certificate_from_standard_input():
    formation = form(*instance(random.Random(3)))
    done = subprocess.run(
        [sys.executable, check.__file__, "-"],
        input=formation.certificate.to_json(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok     unchanged: yes")
