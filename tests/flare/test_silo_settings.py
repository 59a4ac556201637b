"""A silo's settings and its data."""

import pytest

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.learning.datasets import load_own
from tests.flare.silo_kit import (
    NAMES,
    kit,
)


def test_a_silo_alone_has_the_rows_it_has_among_all(tmp_path):
    path = kit(tmp_path) / "silo.toml"
    path.write_text(path.read_text().replace("[data]", "[data]\nposition = 2"))  # an earlier kit
    alone = load_silo(read_silo_settings(path))
    everybody = load_own(
        {name: tmp_path / f"{name}.csv" for name in sorted(NAMES)}, tmp_path / "schema.toml", seed=1
    )
    for split in ("train", "validation", "test"):
        one, other = alone.part("South", split), everybody.part("South", split)
        assert (one.inputs[0] == other.inputs[0]).all()
        assert (one.targets == other.targets).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("participant = 'x'\n", "data: Field required"),
        ("participant = 'x'\n[data]\n", "either file"),
        ("participant = 'x'\n[data]\nfile = 'a.csv'\n", "needs the schema.toml"),
        ("participant = 'x'\n[data]\nsource = 'y'\nmore = 1\n", "data.more"),
        (
            "participant = 'x'\n[data]\nsource = 'y'\n[privacy]\nlevel='none'\nupdate_noise = 1\n",
            "update_noise is measured by update_clip",
        ),
        (
            "participant = 'x'\n[data]\nsource = 'y'\n[privacy]\nlevel = 'none'\nepsilon = 3\n",
            "epsilon is a budget for answers with noise",
        ),
        ("participant = 'x'\n[data]\nsource = 'y'\n[privacy]\nlevel = 'low'\n", "privacy.level"),
        # A silo without a choice does not start: protection is never off silently.
        ("participant = 'x'\n[data]\nsource = 'y'\n[privacy]\n", "choose how answers are"),
        ("participant = 'x'\n[data]\nsource = 'y'\n", "choose how answers are protected: level"),
        (
            "participant = 'x'\n[data]\nsource = 'y'\n[limits]\noperations = ['shell']\n",
            "limits.operations.0",
        ),
        ("participant = ", "not a TOML file"),
    ],
)
def test_a_wrong_silo_toml_says_what_is_wrong(tmp_path, text, message):
    (tmp_path / "silo.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_silo_settings(tmp_path / "silo.toml")


@pytest.mark.parametrize("level", ["strict", "standard", "none"])
def test_a_level_sets_what_it_says_and_each_setting_can_be_changed(tmp_path, level):
    path = kit(tmp_path, f'[privacy]\nlevel = "{level}"\nloss_bound = 7.0\n') / "silo.toml"
    privacy = read_silo_settings(path).privacy
    protected = level != "none"
    assert (privacy.epsilon is not None) == protected
    for noise in ("train_noise", "gradient_noise", "evaluation_noise", "count_noise"):
        assert (getattr(privacy, noise) > 0) == protected
    assert privacy.loss_bound == 7.0
