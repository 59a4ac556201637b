"""The accounting of contributions in a run: ledger, report, member pages, command, refusals."""

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedegoists.cli.consortium_commands import _as_dict, _show_result
from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.errors import SettingsError
from fedegoists.learning.estimates import Interval
from tests.consortium.reports import Balance, make, pages_of, written

NAMES = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"]


@pytest.fixture(scope="module")
def accounted(tmp_path_factory):
    edges = [(a, b, 1) for a in NAMES[:3] for b in NAMES[:3] if a != b]
    return make(
        tmp_path_factory.mktemp("accounted"), NAMES,
        [*edges, ("Dogwood", "Elm", 1), ("Elm", "Dogwood", 1)],
        task="regression", rows=120, methods=("local", "fedavg+ft"), contributions=True,
        round_steps=5,
    )  # fmt: skip


def lines_of(run):
    return list(csv.DictReader(io.StringIO((run.folder / "ledger.csv").read_text())))


def test_a_run_leaves_a_ledger_for_its_owner(accounted):
    lines = lines_of(accounted)
    assert [line["participant"] for line in lines] == NAMES
    assert lines[0]["coalition"] == "Alder;Birch;Cedar"
    for group in (lines[:3], lines[3:]):
        assert sum(float(line["share_of_costs"]) for line in group) == pytest.approx(1, rel=1e-5)
        assert all(float(line["low"]) < float(line["gave"]) for line in group)
    assert (accounted.folder / "ledger.csv").stat().st_mode & 0o077 == 0
    assert accounted.ledger.method == "fedavg+ft"


def test_the_manager_sees_all_members_and_each_member_only_itself(accounted, tmp_path):
    # Numbers that occur nowhere else on the pages.
    strange = tuple(
        replace(
            one,
            gave=Interval(k + 0.7131, k + 0.1719, k + 0.9237),
            share_of_costs=(41 + k) / 100,
            redundant_with=("Birch",) if k == 0 else (),
        )
        for k, one in enumerate(accounted.ledger.contributions)
    )
    ledger = replace(accounted.ledger, contributions=strange)
    pages = written(replace(accounted, ledger=ledger), tmp_path)
    report = Balance(pages["report.html"]).text
    shown = [f"+{k}.71" for k in range(5)], [f"+{k}.17" for k in range(5)]
    assert all(number in report for numbers in shown for number in numbers)
    assert "same samples as Birch" in report
    assert "it is not known who had them first" in report
    for name in NAMES[3:]:  # in a coalition of two, it is the other's result
        assert "What it gave" not in Balance(pages[f"members/{name}.html"]).text
    for k, name in enumerate(NAMES[:3]):
        text = Balance(pages[f"members/{name}.html"]).text
        given = "+0.713 (95 % interval +0.172 to +0.924)"
        if k:  # three digits
            given = f"+{k}.71 (95 % interval +{k}.17 to +{k}.92)"
        assert given in text
        assert f"Its share of the costs: {41 + k} %" in text
        assert "same samples" not in text
        others = [n for n in range(5) if n != k]
        assert not any(f"+{n}.7" in text or f"{41 + n} %" in text for n in others)


def test_without_the_setting_there_is_nothing_of_it(accounted, banks):
    assert not (banks.folder / "ledger.csv").exists()
    assert banks.ledger is None
    assert "ontribution</h2>" not in "".join(pages_of(banks).values())
    assert "Its contribution" in pages_of(accounted)["members/Alder.html"]


def test_who_trains_alone_has_no_contribution(tmp_path):
    run = make(tmp_path, NAMES[:3], [], rows=60, contributions=True)
    assert lines_of(run) == []
    pages = pages_of(run)
    assert "there is nothing to account for" in pages["report.html"]
    assert "Its contribution" not in pages["members/Alder.html"]


def test_the_command_says_in_a_line_who_clearly_gave_nothing(accounted, capsys):
    known = accounted.ledger.contributions
    bad = replace(known[1], gave=Interval(-0.5, -0.75, -0.25), redundant_with=("Cedar",))
    contributions = (known[0], bad, *known[2:])
    run = replace(accounted, ledger=replace(accounted.ledger, contributions=contributions))
    _show_result(run)
    told = " ".join(capsys.readouterr().out.split())
    assert "Contributions: Birch: the others are not worse off without it (it gave -0.5," in told
    assert "Birch and Cedar: their samples are the same" in told
    rows = json.loads(json.dumps(_as_dict(run)))["contributions"]
    assert [row["gave_nothing"] for row in rows].count(True) >= 1
    assert rows[1]["gave"] == [-0.5, -0.75, -0.25]
    assert rows[1]["redundant_with"] == ["Cedar"]
    _show_result(replace(accounted, ledger=None))
    assert "Contributions:" not in capsys.readouterr().out
    assert _as_dict(replace(accounted, ledger=None))["contributions"] is None


def settings(**training):
    return ConsortiumSettings(
        data={"source": "synthetic-weak"}, training={"contributions": True, **training}
    )


def test_what_cannot_be_measured_is_refused_before_a_run():
    with pytest.raises(
        SettingsError, match=r"training\.contributions: .*add fedavg to the methods"
    ):
        Consortium(settings(methods=["local"]))
    with pytest.raises(SettingsError, match=r"training\.contributions: .*set no personal param"):
        Consortium(settings(personal=["output."]))
    inner = SimulatedEngine(settings())
    elsewhere = SimpleNamespace(local=False, absent=(), data=inner.data)
    with pytest.raises(SettingsError, match=r"training\.contributions is for simulations"):
        Consortium(settings(), elsewhere)


def elsewhere(accounted, folder, **training):
    """The same consortium with another folder of runs."""
    return accounted.settings.model_copy(
        update={
            "output": accounted.settings.output.model_copy(update={"folder": str(folder)}),
            "training": accounted.settings.training.model_copy(update=training),
        }
    )


def test_a_run_that_stops_while_it_measures_goes_on_to_the_same_ledger(accounted, tmp_path):
    class StopError(Exception):
        pass

    seen = []

    def stop(stage, what, done, *_):
        seen.append((stage, what))
        if what == "without a member" and done == 6:
            raise StopError

    consortium = Consortium(elsewhere(accounted, tmp_path))
    with pytest.raises(StopError):
        consortium.run(progress=stop)
    resumed = consortium.run(resume=True, progress=lambda *what: seen.append(what[:2]))
    assert lines_of(resumed) == lines_of(accounted)
    # All methods were trained before the stop, and none again.
    after = seen[[what for _, what in seen].index("without a member") :]
    assert not {"local", "fedavg"} & {what for _, what in after}


def test_models_are_the_same_with_and_without_the_setting(accounted, tmp_path):
    plain = Consortium(elsewhere(accounted, tmp_path, contributions=False)).run("plain")
    assert plain.ledger is None
    assert not (plain.folder / "ledger.csv").exists()
    for file in ("metrics.csv", "gains.csv", "delivered.csv"):
        assert (plain.folder / file).read_text() == (accounted.folder / file).read_text()
