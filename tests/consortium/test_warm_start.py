"""A run starts from an earlier one's models, and carries nothing to a competitor that way."""

import json
import shutil

import pytest
import torch

from fedegoists.cli import main
from fedegoists.consortium import Consortium
from fedegoists.consortium.toml_text import config_toml
from fedegoists.consortium.warm_start import WarmStart
from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.parameters import ParameterSchema
from tests.consortium.reports import circle, make

NAMES = ["Alder", "Birch", "Cedar"]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Return a run of three that train together."""
    folder = tmp_path_factory.mktemp("before")
    return make(folder, NAMES, circle(NAMES), seeds=1, steps=40, methods=("fedavg",))


@pytest.fixture(scope="module")
def schema(before):
    return before.repetitions.federation.schema


def later(before, folder, names=NAMES, pairs=(), **training):
    """Return the settings of a run with some of the same files, and those of newcomers."""
    run = make(folder, names, circle(names), pairs, seeds=1, steps=20, methods=("local",))
    for name in set(names) & set(NAMES):
        shutil.copy(before.settings.data.source + f"/{name}.csv", folder / "data")
    wanted = {"methods": ("local", "fedavg"), "start": str(before.folder), **training}
    section = run.settings.training.model_copy(update=wanted)
    return run.settings.model_copy(update={"training": section, "name": "later"})


def test_members_start_from_their_models_and_newcomers_from_the_mean(before, schema):
    start = WarmStart.read(before.folder)
    begun = start.begin([["Alder", "Birch", "New"], ["Cedar"], ["Other"]], frozenset(), schema)
    for name in NAMES:
        torch.testing.assert_close(begun[name].parameters, schema.flatten(start.models[name]))
        assert begun[name].origins == set(NAMES)
    mean = (begun["Alder"].parameters + begun["Birch"].parameters) / 2
    torch.testing.assert_close(begun["New"].parameters, mean)
    assert begun["New"].origins == set(NAMES)
    assert begun["Other"].parameters is None
    assert begun["Other"].words == "afresh: it is new"
    assert "holds something of the data of Cedar" in begun["Alder"].words


def test_what_a_competitor_gave_earlier_does_not_reach_its_competitor(before, schema):
    start = WarmStart.read(before.folder)
    # Alder trained with Cedar before, and is now with New, which competes with Cedar.
    apart = frozenset([frozenset(("Cedar", "New"))])
    begun = start.begin([["Alder", "Birch", "New"], ["Cedar"]], apart, schema)
    for name in ("Alder", "Birch", "New"):
        assert begun[name].parameters is None
        assert begun[name].origins == set()
    assert "competitor of its coalition" in begun["Alder"].words
    assert begun["Cedar"].parameters is not None


def test_a_run_starts_better_than_afresh_and_says_how(before, tmp_path):
    names = [*NAMES[:2], "Dogwood"]
    warm = Consortium(later(before, tmp_path / "warm", names)).run()
    assert warm.begun["Alder"].startswith("from its own model")
    assert warm.begun["Dogwood"].startswith("from the mean of its coalition")
    page = (warm.folder / "report.html").read_text(encoding="utf-8")
    assert "starts from its own model" in page
    assert "Alder: starts from its own model" in (warm.folder / "log.txt").read_text()
    federation = warm.repetitions.federation
    row = [one.name for one in federation.participants].index("Alder")
    old = federation.schema.flatten(WarmStart.read(before.folder).models["Alder"])
    torch.testing.assert_close(warm.repetitions.warm[row], old)
    # Round 0 of fedavg is the old model; training alone starts afresh.
    losses = {
        method: next(
            one.value
            for one in warm.outcomes[method].rows
            if (one.participant.name, one.round, one.metric) == ("Alder", 0, "loss")
        )
        for method in ("local", "fedavg")
    }
    assert losses["fedavg"] != pytest.approx(losses["local"], rel=1e-6)
    # Cedar left, and its data is still in the models of the others.
    origins = json.loads((warm.folder / "origins.json").read_text())
    chosen = dict.fromkeys(names, warm.outcomes["fedavg"])
    assert chosen
    for name, own in origins.items():
        assert own in ([name], sorted({*NAMES, *names}))
        card = (warm.folder / "cards" / f"{name}.md").read_text(encoding="utf-8")
        said = "started from models of an earlier run, so it also holds something of the data of"
        assert (f"{said} Cedar." in card) == (len(own) > 1)
    cold = warm.settings.training.model_copy(update={"start": None})
    again = Consortium(warm.settings.model_copy(update={"training": cold})).run("cold")
    assert again.begun == {}
    assert again.repetitions.warm is None


def test_what_a_member_gave_is_measured_from_new_models(before, tmp_path):
    # Models of the earlier run have something of the member that is left out.
    started = later(before, tmp_path, contributions=True)
    section = started.training.model_copy(update={"start": None})
    fresh = started.model_copy(update={"training": section, "name": "fresh"})
    one, other = (
        (Consortium(settings).run().folder / "ledger.csv").read_bytes()
        for settings in (started, fresh)
    )
    assert one == other


def test_models_that_do_not_fit_are_named_before_anything_is_done(before, tmp_path):
    settings = later(before, tmp_path)
    data = tmp_path / "data"
    for path in data.glob("*.csv"):
        path.write_text(path.read_text().replace("a,b,y", "a,c,y", 1))
    schema = data / "schema.toml"
    text = schema.read_text()
    schema.write_text(text.replace('"b"', '"c"'))
    with pytest.raises(SettingsError, match="the model of Alder takes the columns a, b; this run"):
        Consortium(settings)
    schema.write_text(text.replace('"a", "b"', '"a"'))
    with pytest.raises(SettingsError, match=r"the model of Alder is .*features = 2.*features = 1"):
        Consortium(settings)
    start = WarmStart.read(before.folder)
    other = ParameterSchema.of(torch.nn.Linear(2, 1))
    with pytest.raises(SettingsError, match="the parameter bias of Alder has the shape None"):
        start.begin([["Alder"]], frozenset(), other)


def test_what_is_no_run_is_refused(before, tmp_path):
    with pytest.raises(FileError, match="not the folder of a finished run"):
        WarmStart.read(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(before.folder, copy)
    file = copy / "models" / "Alder.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(FileError, match="not the model that was written here"):
        WarmStart.read(copy)
    own = before.settings.training.model_copy(update={"start": str(before.folder)})
    with pytest.raises(SettingsError, match="would replace those models; use another --name"):
        Consortium(before.settings.model_copy(update={"training": own})).run()


def test_the_command_takes_a_run(before, tmp_path, monkeypatch, capsys):
    settings = later(before, tmp_path, start=None)
    (tmp_path / "c.toml").write_text(config_toml(settings), encoding="utf-8")
    given = ["run", str(tmp_path / "c.toml"), "--from", str(before.folder)]
    monkeypatch.setattr("sys.argv", ["fedegoists", *given])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert "Birch starts from its own model." in capsys.readouterr().out
    assert set(WarmStart.read(tmp_path / "runs" / "later").models) == set(NAMES)
