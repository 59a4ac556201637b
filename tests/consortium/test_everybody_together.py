"""The comparison with training all together: shown to the manager, given to nobody."""

import pytest

from fedegoists.consortium import ConsortiumSettings
from fedegoists.consortium.everybody_together import everybody_wanted
from tests.consortium.reports import Balance, make, pages_of

NAMES = ["Alder", "Birch", "Cedar"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return make(
        tmp_path_factory.mktemp("everybody"),
        NAMES,
        [("Alder", "Birch", 1), ("Birch", "Alder", 1)],
        [("Alder", "Cedar")],
        task="regression",
        rows=150,
        everybody=True,
    )


def test_every_participant_has_a_gain_also_who_trains_alone(compared):
    found = compared.everybody
    assert found.methods == ("fedavg", "fedavg+ft")
    assert {(one.method, one.participant) for one in found.gains} == {
        (method, name) for method in found.methods for name in NAMES
    }
    for one in found.gains:
        estimate = found.estimates[one.method, one.participant]
        assert one.gain == pytest.approx(estimate.value, rel=1e-3)
        assert one.low < one.gain < one.high
        assert one.gain == pytest.approx(one.alone - one.value)


def test_the_models_differ_from_those_of_coalitions_and_nobody_keeps_them(compared):
    # Alder and Birch train without Cedar, and all three had another average with it.
    values = {one.participant: one.value for one in compared.gains if one.method == "fedavg"}
    for one in compared.everybody.gains:
        if one.method == "fedavg" and one.participant in values:
            assert one.value != values[one.participant]
    assert set(compared.outcomes) == {"local", "fedavg"}
    assert all(one.card.method in ("local", "fedavg", "fedavg+ft")
               for one in compared.delivered.values())  # fmt: skip
    assert compared.delivered["Cedar"].card.method == "local"


def test_the_manager_reads_it_and_members_do_not(compared):
    pages = pages_of(compared)
    report = Balance(pages.pop("report.html")).text
    assert "If all 3 trained together (fedavg): on average the typical error is" in report
    assert "Gain if everybody trained together (fedavg)" in report
    assert "1 pair of competitors would learn from each other." in report
    assert not any("trained together" in page for page in pages.values())


def test_without_training_alone_there_is_nothing_to_compare_with():
    with pytest.raises(ValueError, match='add "local" to methods'):
        ConsortiumSettings(
            data={"source": "synthetic-weak"},
            training={"methods": ["fedavg"], "everybody": True},
        )


def test_trees_are_bagged_and_cannot_be_tuned():
    assert everybody_wanted("trees").methods == ("bagging",)
    assert everybody_wanted("arrays").methods == ("fedavg", "fedavg+ft")
