"""A consortium.toml: what it may say, and what is said about mistakes in it."""

import tomllib

import pytest

from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.consortium.toml_text import config_toml
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
        ("seeds = 2", 'model = "lmp"', "line 15: training.model is 'lmp': unknown model"),
        ("seeds = 2", 'seeds = "many"', "line 15: training.seeds is 'many': input should be a"),
        ("seeds = 2", "sedes = 2", "line 15: unknown key 'training.sedes'; keys of training are m"),
        ("[benefit]", "[benefits]", "line 10: unknown key 'benefits'; keys are name,"),
        ('source = "heart"', "", "line 3: data.source is missing"),
        (
            "threshold = 0.1",
            'estimator = "guess"',
            "benefit.estimator is 'guess': unknown estimator",
        ),
        ("threshold = 0.1", 'estimator = "file"', 'line 10: benefit: estimator = "file" and file'),
        ('name = "hospitals"', 'name = "../x"', "line 1: name is '../x': string should match"),
        ("[benefit]", "published = true\n[benefit]", "line 7: competition: give only one of pairs"),
        ("mu = 0.1", "mu = [1]", "line 18: training.settings"),
        ("threshold = 0.1", "threshold = inf", "line 11: benefit.threshold is inf: input should"),
        (
            'pairs = [["cleveland", "va"]]',
            'pairs = [\n    ["cleveland", "va"],\n    ["hungary", "va"]\n]\nfile = 3',
            "line 12: competition.file is 3: input should be a valid string",
        ),
        (
            "threshold = 0.1",
            'threshold = 0.1\n[formation]\nmethod = "published"\nfewest_members = 3',
            'formation: fewest_members = 3 needs method = "best" or "stable"',
        ),
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


def test_a_mistake_in_the_file_is_not_said_to_be_on_the_command_line(written):
    path = written("nmae = 1\n" + GOOD)
    with pytest.raises(SettingsError, match=r"consortium\.toml, line 1: unknown key 'nmae'"):
        read_settings(path, ["training.seeds=5"])
    path = written(GOOD.replace("methods =", "metods ="))
    with pytest.raises(SettingsError, match=r"line 14: unknown key 'training\.metods'"):
        read_settings(path, ["training.seeds=5"])
    with pytest.raises(SettingsError, match=r"^--set colours\.sky: unknown key 'colours'"):
        read_settings(written(GOOD), ["training.seeds=5", "colours.sky=blue"])


def test_any_name_can_be_written_and_read_again(written):
    pairs = r'[["Klinik 🏥 \"Nord\"", "銀\u007f"]]'
    path = written(GOOD.replace('[["cleveland", "va"]]', pairs))
    settings = read_settings(path)
    assert settings.competition.pairs == (('Klinik 🏥 "Nord"', "銀\x7f"),)
    again = ConsortiumSettings.model_validate(tomllib.loads(config_toml(settings)))
    assert again == settings


def test_allowed_values_are_listed(written):
    path = written(GOOD.replace("threshold = 0.1", 'estimator = "guess"'))
    with pytest.raises(SettingsError, match="estimators are auto, everybody, file, hypernetwork"):
        read_settings(path)


def test_accumulated_batches_are_larger_and_computed_in_passes():
    from fedegoists.learning.datasets import load
    from fedegoists.training.defaults import defaults_for, learn_settings

    section = ConsortiumSettings(
        data={"source": "x"},
        training={"batch_size": 32, "accumulate": 4, "precision": "bf16"},
    ).training
    data = load("synthetic-weak")
    train = defaults_for(data, 40, "mlp", section.changes).train
    assert (train.batch_size, train.passes, train.precision) == (128, 4, "bf16")
    local = learn_settings(data, training=section.changes).local
    assert (local.batch_size, local.passes) == (128, 4)
    plain = defaults_for(data, 40, "mlp", {"accumulate": 2}).train
    assert (plain.batch_size, plain.passes) == (2 * defaults_for(data).train.batch_size, 2)


def test_sharpness_aware_steps_are_taken_by_all_but_methods_of_plain_steps():
    from fedegoists.learning.datasets import load
    from fedegoists.training.defaults import defaults_for, learn_settings

    given = {"sam_radius": 0.05, "optimiser": "adamw"}
    section = ConsortiumSettings(data={"source": "x"}, training=given).training
    data = load("synthetic-weak")
    found = defaults_for(data, 40, "mlp", section.changes)
    assert found.train.sam_radius == found.tune.sam_radius == 0.05
    assert found.plain(found.train).sam_radius == 0  # scaffold and fedegoists
    assert learn_settings(data, training=section.changes).local.sam_radius == 0.05
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        ConsortiumSettings(data={"source": "x"}, training={"sam_radius": -0.1})
