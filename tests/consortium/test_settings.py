"""A consortium.toml: what it may say, and what is said about mistakes in it."""

import tomllib

import pytest

from fedegoists.consortium.config import config_toml
from fedegoists.consortium.settings import ConsortiumSettings, read_settings
from fedegoists.errors import SettingsError

GOOD = """\
name = "hospitals"

[data]
source = "heart"
options = { fill = "mean" }

[competition]
pairs = [["cleveland", "va"]]

[benefit]
threshold = 0.1

[training]
methods = ["local", "fedprox"]
seeds = 2

[training.settings.fedprox]
mu = 0.1
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "consortium.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_is_read_and_written_again(written):
    settings = read_settings(written(GOOD))
    assert settings.competition.pairs == (("cleveland", "va"),)
    assert settings.training.settings == {"fedprox": {"mu": 0.1}}
    assert settings.formation.method == "best"
    again = ConsortiumSettings.model_validate(tomllib.loads(config_toml(settings)))
    assert again == settings


def test_the_command_line_goes_before_the_file_and_the_file_before_defaults(written):
    path = written(GOOD)
    changes = ["training.seeds=5", "formation.method=stable", "benefit.threshold=0.2", "name=x"]
    settings = read_settings(path, [*changes, 'training.methods=["local"]', "training.settings={}"])
    assert (settings.training.seeds, settings.formation.method) == (5, "stable")
    assert (settings.benefit.threshold, settings.name) == (0.2, "x")
    assert settings.training.methods == ("local",)


def test_paths_are_relative_to_the_file(written, tmp_path, monkeypatch):
    (tmp_path / "silos").mkdir()
    monkeypatch.chdir("/")
    text = GOOD.replace('"heart"', '"silos"').replace("options", "# options")
    text = text.replace('pairs = [["cleveland", "va"]]', 'file = "rivals.csv"')
    settings = read_settings(written(text))
    assert settings.data.source == str(tmp_path / "silos")
    assert settings.competition.file == str(tmp_path / "rivals.csv")
    assert settings.output.folder == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seeds = 0", "line 15: training.seeds is 0: input should be greater than"),
        ("seeds = 2", 'seeds = "many"', "line 15: training.seeds is 'many': input should be a"),
        ("seeds = 2", "sedes = 2", "line 13: unknown key 'training.sedes'; keys of training are m"),
        ("[benefit]", "[benefits]", "unknown key 'benefits'; keys at the top are name, data, com"),
        ('source = "heart"', "", "line 3: data.source is missing"),
        ("threshold = 0.1", 'estimator = "guess"', "line 11: benefit.estimator is 'guess': input"),
        ("threshold = 0.1", 'estimator = "file"', 'line 10: benefit: estimator = "file" and file'),
        ('name = "hospitals"', 'name = "../x"', "line 1: name is '../x': string should match"),
        ("[benefit]", "published = true\n[benefit]", "line 7: competition: give only one of pairs"),
        ("mu = 0.1", "mu = [1]", "training.settings"),
        ("[data]", "[data", "not a TOML file"),
    ],
)
def test_a_mistake_is_named_with_file_line_key_and_what_is_allowed(written, old, new, message):
    path = written(GOOD.replace(old, new))
    with pytest.raises(SettingsError) as error:
        read_settings(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.seeds", "expected KEY=VALUE"),
        ("name.first=x", "name is not a table"),
        ("training.seeds=none", "--set training.seeds: training.seeds is 'none'"),
        ("training.colour=red", "unknown key 'training.colour'"),
    ],
)
def test_a_mistake_on_the_command_line_is_said_to_be_there(written, change, message):
    with pytest.raises(SettingsError, match=message.replace(".", r"\.")):
        read_settings(written(GOOD), [change])


def test_allowed_values_are_listed(written):
    path = written(GOOD.replace("threshold = 0.1", 'estimator = "guess"'))
    with pytest.raises(SettingsError, match="'auto', 'transfer', 'hypernetwork'"):
        read_settings(path)
