"""The released code's procedure: learn again inside each clique and each remainder."""

import numpy as np
import pytest

from fedegoists.benefit import BenefitEstimate, LearnSettings
from fedegoists.coalitions import form
from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, PartOfFederation, Train, TrainSettings
from fedegoists.graphs import CompetitionGraph
from fedegoists.training.learning_in_cliques import EdgeThreshold, learn_in_cliques, learning_among
from tests.silos import federation, silos

NAMES = ("a", "b", "c", "d", "e", "f")
PLANTED = {("a", "b"): 6.0, ("c", "d"): 2.0}
"""How much more than others, and than themselves, two like each other."""


def planted(asked):
    """Preferences in proportion to 1, or to what is planted: they sum to one over the members."""

    def learn_among(names):
        asked.append(names)
        raw = np.ones((len(names), len(names)))
        for (one, other), much in PLANTED.items():
            if one in names and other in names:
                j, i = names.index(one), names.index(other)
                raw[j, i] = raw[i, j] = much
        preferences = raw / raw.sum(0)  # [source, target]
        np.fill_diagonal(preferences, 0.0)
        runs = preferences[None, None]
        return BenefitEstimate(tuple(names), "hypernetwork", runs, runs, preferences)

    return learn_among


def test_who_remains_alone_is_asked_again_among_fewer():
    """With ε = 0.35: among six, a and b prefer each other at 6/11; c and d only at 2/7.

    Among the four that remain, c and d have 2/5 and find each other; then e and f have 1/2 each.
    """
    asked = []
    graph = learn_in_cliques(planted(asked), CompetitionGraph([], NAMES), EdgeThreshold(0.35))
    assert asked == [NAMES, ("c", "d", "e", "f"), ("e", "f")]
    edges = {(j, i): weight for j, i, weight in graph.edges()}
    pairs = {("a", "b"): 6 / 11, ("c", "d"): 2 / 5, ("e", "f"): 1 / 2}
    both = {**pairs, **{(i, j): weight for (j, i), weight in pairs.items()}}
    assert edges == pytest.approx(both)
    coalitions = form(graph, CompetitionGraph([], NAMES), "cliques").coalitions
    assert sorted(map(sorted, coalitions)) == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_a_relative_threshold_means_the_same_among_few_as_among_many():
    """With 1.5/m, c and d are above it among four (2/5 > 0.375), and e and f never are."""
    asked, relative = [], EdgeThreshold(1.5, relative=True)
    graph = learn_in_cliques(planted(asked), CompetitionGraph([], NAMES), relative)
    assert asked == [NAMES, ("e", "f")]  # 2/7 > 1.5/6 already among all
    assert {(j, i) for j, i, _ in graph.edges()} == {
        *(("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"))
    }


def test_competitors_are_never_learned_in_one_clique():
    """a and b compete: the cliques are a with the four others, and b alone."""
    asked = []
    rivals = CompetitionGraph([("a", "b")], NAMES)
    graph = learn_in_cliques(planted(asked), rivals, EdgeThreshold(0.3))
    assert asked == [NAMES, ("a", "c", "d", "e", "f"), ("a", "e", "f")]
    edges = {(j, i): weight for j, i, weight in graph.edges()}
    # Between cliques, edges are those learned among all; they can only lead to mergers.
    assert edges["a", "b"] == edges["b", "a"] == pytest.approx(6 / 11)
    assert edges["c", "d"] == pytest.approx(2 / 6)
    assert edges["e", "f"] == pytest.approx(1 / 3)
    for group in form(graph, rivals, "cliques").coalitions:
        assert not {"a", "b"} <= set(group)


def test_where_nobody_finds_anybody_learning_ends():
    asked = []
    graph = learn_in_cliques(planted(asked), CompetitionGraph([], NAMES), EdgeThreshold(0.9))
    assert asked == [NAMES]
    assert list(graph.edges()) == []
    alone = learn_in_cliques(planted(asked), CompetitionGraph([], ["a"]), EdgeThreshold(0.1))
    assert alone.participants == ("a",)


def test_real_preferences_sum_to_one_over_the_members_they_are_learned_among():
    both = federation("mlp", silos("mlp", sizes=(60, 50, 70, 80)))
    settings = LearnSettings(
        estimator="hypernetwork", steps=5, preference_steps=5, repeats=1, hidden=4,
        local=TrainSettings(steps=5),
    )  # fmt: skip
    learn_among = learning_among(both, settings)
    for names in (("s0", "s1", "s2", "s3"), ("s1", "s3")):
        estimate = learn_among(names)
        assert estimate.participants == names
        # All but what one gives oneself, which is not a benefit.
        sums = estimate.weights.sum(0)
        assert (sums > 0.2).all()
        assert (sums < 1).all()
        assert sums == pytest.approx(1 - 1 / len(names), abs=0.1)
    assert learn_among(("s3", "s1")) is learn_among(("s1", "s3"))  # each set once


def test_a_part_of_a_federation_calls_nobody_else():
    both = federation("mlp")
    part = PartOfFederation(both, ("s0", "s2"))
    assert part.participants == (Participant("s0"), Participant("s2"))
    request = Train(parameters=both.schema.drawn(0), settings=TrainSettings(steps=1))
    with pytest.raises(SettingsError, match="'s1' is not in this federation"):
        part.call({Participant("s1"): request})


def test_a_negative_threshold_is_refused():
    with pytest.raises(SettingsError, match="expected 0 or more"):
        EdgeThreshold(-0.1)


def test_deployed_silos_are_not_asked_in_cliques():
    """How often a silo is asked, and with whom, follows from the reports of others."""

    class Deployed:
        deployed = True

    with pytest.raises(SettingsError, match="who competes with them"):
        learning_among(Deployed(), LearnSettings())
