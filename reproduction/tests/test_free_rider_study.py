"""What one bad member costs the others."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedegoists.federation import SimulatedFederation
from fedegoists.learning.datasets import load
from fedegoists.learning.own_models import model_parts
from reproduction import RESULTS, real_data_commands
from reproduction.__main__ import _application
from reproduction.free_rider_study import (
    BEHAVIOURS,
    RULES,
    TASKS,
    Loss,
    behaving,
    decided,
    losses_csv,
    losses_of,
    read_losses,
    rider_page,
)
from reproduction.real_data_commands import origins


def small(data_dir=None, seed=0):
    return load("synthetic-weak", seed=seed)


def test_only_the_bad_member_has_other_data():
    data = small()
    name = data.participants[2]
    few = behaving(data, name, "one per cent", 1)
    for before, after in zip(data.silos, few.silos, strict=True):
        same = np.array_equal(before.train, after.train)
        assert same == (before.name != name)
        assert np.array_equal(before.test, after.test)
    assert len(few.silos[2].train) == 10
    shuffled = behaving(data, name, "random labels", 1)
    changed = data.samples.targets != shuffled.samples.targets
    silo = data.silos[2]
    assert changed[silo.train].mean() > 0.9
    assert not changed[silo.test].any()
    others = [one for one in data.silos if one.name != name]
    assert not any(changed[one.train].any() for one in others)
    assert behaving(data, name, "flipped", 1) is data


def test_flipped_updates_cost_averages_and_not_who_trains_alone(tmp_path):
    losses = losses_of(
        "synthetic-weak",
        (0,),
        ("local", "fedavg"),
        behaviours=("honest", "flipped"),
        rules=("everybody",),
        steps=100,
        load=small,
    )
    places = {(one.method, one.behaviour): one for one in losses}
    assert len(places) == len(losses) == 4
    # Others' own models do not depend on it; their average does.
    assert places["local", "honest"].metric == places["local", "flipped"].metric
    assert places["fedavg", "honest"].company > 1
    assert places["fedavg", "flipped"].metric < places["fedavg", "honest"].metric
    path = tmp_path / "losses.csv"
    path.write_bytes(losses_csv(losses))
    assert [one.metric for one in read_losses(path)] == pytest.approx(
        [one.metric for one in losses], rel=1e-5
    )


def test_who_helps_nobody_is_left_out_by_learned_benefits():
    """A planted case: its labels are shuffled, and all others have the same task."""
    data = {0: behaving(small(), "v1", "random labels", 0)}
    federation = SimulatedFederation(data, model_parts(data[0], "linear"))
    decisions = decided(data, federation, "learned", "linear")
    (own,) = (group for group in decisions.final if "v1" in {one.name for one in group})
    assert len(own) == 1
    assert any(len(group) > 1 for group in decisions.final)


def test_the_page_has_a_line_for_every_method_and_rule():
    rows = [
        Loss("heart", seed, rule, how, method, 0.8 - (how == "flipped") * 0.1, 3)
        for seed in range(2)
        for rule in RULES
        for how in BEHAVIOURS
        for method in ("local", "fedavg")
    ]
    page = rider_page(rows, "origin")
    assert "## heart, 2 repetitions" in page
    assert page.count("| fedavg | +0.000 (+0.000 to +0.000) |") == len(RULES)
    assert page.count("+0.100 (+0.100 to +0.100) |") == len(RULES)
    assert "| learned | 2 of 2 |" in page
    # Losses of models that have diverged stay readable.
    far = [replace(one, metric=-5e6) if one.behaviour == "flipped" else one for one in rows]
    assert "| +5,000,001 (+5,000,001 to +5,000,001) |" in rider_page(far, "origin")
    # What is not measured yet is left open.
    part = rider_page([one for one in rows if one.behaviour in BEHAVIOURS[:2]], "origin")
    assert "| learned | 2 of 2 | 2 of 2 | – | – | – |" in part
    assert "| +0.000 (+0.000 to +0.000) | – | – | – |" in part


def test_a_part_of_the_study_is_measured_and_not_again(tmp_path, monkeypatch):
    asked = []

    def measured(task, behaviours, rules, tell):
        asked.append((task, *behaviours, *rules))
        return [Loss(task, seed, *rules, *behaviours, "local", 0.5, 1) for seed in range(2)]

    monkeypatch.setattr(real_data_commands, "losses_of", measured)
    part = ["free-riders", "heart", "--behaviour", "one per cent", "--out", str(tmp_path)]
    for arguments in ([*part, "--rule", "learned"], part):
        assert CliRunner().invoke(_application(), arguments).exit_code == 0
    assert asked == [("heart", "one per cent", "learned"), ("heart", "one per cent", "everybody")]
    page = (tmp_path / "free-riders.md").read_text(encoding="utf-8")
    assert '`python -m reproduction free-riders heart --behaviour "one per cent"`' in page
    assert CliRunner().invoke(_application(), [*part, "--rule", "nothing"]).exit_code == 2
    # Another task is added, and the page still says how the first one was measured.
    first = ["free-riders", "synthetic-weak", "--behaviour", "honest", "--rule", "learned"]
    assert CliRunner().invoke(_application(), [*first, "--out", str(tmp_path)]).exit_code == 0
    commands = [line.split("`")[1] for line in origins((tmp_path / "free-riders.md").read_text())]
    assert [command.split()[4] for command in commands] == ["heart", "heart", "synthetic-weak"]


@pytest.mark.parametrize("page", sorted((RESULTS / "free-riders").glob("*.md")), ids=str)
def test_a_committed_page_is_derived_from_its_rows(page):
    written = page.read_text(encoding="utf-8")
    rows = read_losses(page.with_suffix(".csv"))
    assert {one.task for one in rows} <= set(TASKS)
    assert {one.repetition for one in rows} == set(range(10))
    assert rider_page(rows, "\n\n".join(origins(written))) == written
