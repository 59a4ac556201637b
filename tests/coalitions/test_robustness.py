"""What users do by mistake, and what hostile files try: clear words, bounded work."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from fedegoists import (
    BenefitGraph,
    Certificate,
    CompetitionGraph,
    UncertainBenefits,
    form,
    sensitivity,
    verify,
    what_if,
)
from fedegoists.coalitions.core_stability import audit_core
from fedegoists.coalitions.explanation import explain, explain_alone
from fedegoists.errors import GraphError, SettingsError
from tests.instances import random_graphs

NAMES = ["North", "South", "East"]
BENEFIT = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], NAMES)
COMPETITION = CompetitionGraph([("South", "East")], NAMES)
UNCERTAIN = UncertainBenefits(BENEFIT.weights, BENEFIT.weights / 10, NAMES)


def explain_alone_of_east(formation):
    return explain_alone(formation, "East")


def test_numbers_of_numpy_are_numbers():
    plain = form(BENEFIT, COMPETITION, seed=3, time_limit=2, fewest_members=2)
    options = {
        "seed": np.int64(3),
        "time_limit": np.float32(2),
        "fewest_members": np.int32(2),
    }
    assert form(BENEFIT, COMPETITION, **options) == plain
    json.dumps(form(BENEFIT, COMPETITION, **options).to_dict())


def test_graphs_in_the_wrong_order_are_named():
    with pytest.raises(GraphError, match="the competition graph was given first"):
        form(COMPETITION, BENEFIT)
    with pytest.raises(GraphError, match="expected a BenefitGraph or coalition values first"):
        form(BENEFIT.weights, COMPETITION)
    with pytest.raises(GraphError, match="expected a CompetitionGraph second"):
        form(BENEFIT, BENEFIT)


def test_graphs_in_the_wrong_order_are_named_by_every_check():
    alone = [[name] for name in NAMES]
    for check in (verify, audit_core):
        with pytest.raises(GraphError, match="the competition graph was given first"):
            check(COMPETITION, BENEFIT, alone)
        with pytest.raises(GraphError, match="expected a CompetitionGraph second"):
            check(BENEFIT, alone, COMPETITION)
    with pytest.raises(GraphError, match="works on benefit graphs"):
        audit_core(UNCERTAIN, COMPETITION, alone)


@pytest.mark.parametrize(
    "ask", [what_if, sensitivity, lambda it: explain(it, "North", "South"), explain_alone_of_east]
)
def test_a_certificate_is_no_formation(ask):
    formation = form(BENEFIT, COMPETITION)
    ask(formation)
    with pytest.raises(SettingsError, match=r"Formation first.*certificate\.formation\(\)"):
        ask(formation.certificate)
    with pytest.raises(SettingsError, match=r"Formation first.*make one with form\(\)"):
        ask(BENEFIT)


def test_numbers_of_numpy_are_numbers_in_certificates_and_questions():
    options = {"scenarios": np.int64(20), "confidence": np.float32(0.5)}
    formation = form(UNCERTAIN, COMPETITION, **options)
    assert Certificate.from_json(formation.certificate.to_json()).check().ok
    decided = form(BENEFIT, COMPETITION)
    asked = what_if(decided, fewest_members=np.int64(3))
    assert asked.after == what_if(decided, fewest_members=3).after


def test_a_formation_as_plain_values():
    formation = form(BENEFIT, COMPETITION)
    value = json.loads(json.dumps(formation.to_dict()))
    assert value["coalitions"] == [["North", "South"], ["East"]]
    assert (value["welfare"], value["optimal"], value["stable"]) == (3.0, True, True)
    assert value["trace"][0]["sets"] == [["North"], ["South"]]


# Data frames -------------------------------------------------------------------------------------


def test_a_data_frame_is_aligned_by_its_names():
    frame = pd.DataFrame(BENEFIT.weights, index=NAMES, columns=NAMES)
    mixed = frame.loc[["East", "North", "South"], ["South", "East", "North"]]
    assert BenefitGraph(mixed, NAMES) == BENEFIT
    assert BenefitGraph(frame) == BENEFIT
    # Without a list, the rows give the order.
    assert BenefitGraph(mixed).participants == ("East", "North", "South")
    assert BenefitGraph(mixed).benefit("North", "South") == 2


def test_a_numbered_data_frame_is_a_plain_matrix():
    assert BenefitGraph(pd.DataFrame(BENEFIT.weights), NAMES) == BENEFIT


@pytest.mark.parametrize("columns", [["North", "South", "West"], [0, 1, 2]])
def test_a_data_frame_of_other_names_is_refused(columns):
    frame = pd.DataFrame(BENEFIT.weights, index=NAMES, columns=columns)
    with pytest.raises(GraphError, match="columns of the data frame are not those of the"):
        BenefitGraph(frame)


def test_a_data_frame_of_competitors_is_aligned_by_its_names():
    frame = pd.DataFrame(COMPETITION.matrix, index=NAMES, columns=NAMES)
    mixed = frame.loc[["East", "North", "South"], ["South", "East", "North"]]
    assert CompetitionGraph.from_numpy(mixed, NAMES) == COMPETITION
    assert CompetitionGraph.from_numpy(frame) == COMPETITION
    with pytest.raises(GraphError, match="rows of the data frame are not those of the"):
        CompetitionGraph.from_numpy(mixed, ["North", "South", "West"])


# Optimal, relative to what is at stake -----------------------------------------------------------


def test_one_large_benefit_does_not_hide_what_others_lose():
    """The pair is worth 1e12; the circle of others, linked to it, still has to be optimal."""
    benefit, competition = random_graphs(16, 0.6, 0.3, seed=4)
    weights = benefit.weights.copy()
    names = benefit.participants
    weights[0, 1] = weights[1, 0] = 1e12
    weights[2:, :2] = weights[:2, 2:] = 0.0
    weights[0, 2] = weights[2, 0] = 1e-3  # one component
    pairs = [pair for pair in competition.pairs if not {"v0", "v1"} & set(pair)]
    rivals = CompetitionGraph([*pairs, ("v1", "v2")], names)
    formation = form(BenefitGraph(weights, names), rivals, time_limit=2)
    rest = np.ix_(range(2, 16), range(2, 16))
    alone = form(
        BenefitGraph(weights[rest], names[2:]),
        CompetitionGraph(pairs, names[2:]),
        time_limit=2,
    )
    assert alone.optimal
    inside = [group for group in formation.coalitions if "v0" not in group]
    own = sum(
        weights[names.index(a), names.index(b)] for group in inside for a in group for b in group
    )
    assert not formation.optimal or own >= alone.welfare * (1 - 1e-6)


def test_a_quick_bound_that_is_reached_by_rounding_only_is_not_optimal():
    """The pair has 1e12 each way. c and d exchange 2, and their quick bound is 5.

    Benefits of 1 lead from d to e, on to f and back to c, but c and e compete, and so do d and f.
    """
    names = list("abcdef")
    pairs = [("a", "b", 1e12), ("b", "a", 1e12), ("c", "d", 1), ("d", "c", 1)]
    circle = [("d", "e", 1), ("e", "f", 1), ("f", "c", 1)]
    benefit = BenefitGraph.from_edges([*pairs, *circle], names)
    competition = CompetitionGraph([("c", "e"), ("d", "f")], names)
    formation = form(benefit, competition, "stable")
    assert formation.coalitions == (("a", "b"), ("c", "d"), ("e",), ("f",))
    assert formation.welfare >= formation.upper_bound * (1 - 1e-9)
    assert not formation.optimal
    small = form(benefit.restricted_to(["a", "b"]), CompetitionGraph([], ["a", "b"]), "stable")
    assert small.optimal


# Explanations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["fair", "participation"])
def test_no_time_limit_is_blamed_where_the_objective_decides(objective):
    sentences = []
    for seed in range(12):
        formation = form(*random_graphs(8, 0.4, 0.2, seed=seed), objective=objective)
        names = formation.participants
        sentences += [explain(formation, a, b).sentence for a in names for b in names if a < b]
    assert not any("longer time limit" in sentence for sentence in sentences)
    assert any(f"the objective '{objective}' puts" in sentence for sentence in sentences)


# Bounded work ------------------------------------------------------------------------------------


def ring(n: int):
    names = [f"v{i}" for i in range(n)]
    edges = [(names[i], names[(i + 1) % n], 1.0) for i in range(n)]
    pairs = [(names[i], names[j]) for i in range(n) for j in range(i)]
    return BenefitGraph.from_edges(edges, names), CompetitionGraph(pairs, names)


def test_twenty_witnesses_are_named_and_the_others_counted():
    benefit, competition = ring(60)
    found = verify(benefit, competition, [benefit.participants])
    assert len(found.conflicts) == 20
    assert found.further_conflicts == 60 * 59 - 20
    assert str(found).endswith("and 3,520 more conflicts")
    # The path goes round the ring.
    assert found.conflicts[0].path == tuple(benefit.participants[:2])


def test_twenty_free_riders_are_named_and_the_others_counted():
    names = [f"v{i}" for i in range(30)]
    nothing = BenefitGraph(np.zeros((30, 30)), names)
    found = verify(nothing, CompetitionGraph([], names), [names])
    assert len(found.free_riders) == 20
    assert found.further_free_riders == 40
    assert "and 40 more free riders" in str(found)


def test_a_certificate_states_at_most_twenty_witnesses_of_a_kind():
    benefit, competition = ring(40)
    honest = form(benefit, competition, "stable").certificate
    document = json.loads(honest.to_json())
    document["coalitions"] = [list(benefit.participants)]
    forged = Certificate.from_json(json.dumps(document))
    (claim,) = (one for one in forged.check().claims if one.claim == "no conflicts")
    assert not claim.ok
    assert claim.found.count("reaches its competitor") == 20
    assert claim.found.endswith("and 1,540 more")


def test_a_passed_deadline_ends_every_search():
    benefit, competition = random_graphs(30, 0.3, 0.2, seed=1)
    alone = [[name] for name in benefit.participants]
    late = time.perf_counter() - 1
    assert verify(benefit, competition, alone, deadline=late).stable is None
    assert audit_core(benefit, competition, alone, deadline=late).core_stable is None
