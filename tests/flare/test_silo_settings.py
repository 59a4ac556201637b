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
    alone = load_silo(read_silo_settings(kit(tmp_path) / "silo.toml"))
    everybody = load_own(
        {name: tmp_path / f"{name}.csv" for name in sorted(NAMES)}, tmp_path / "schema.toml"
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
            "participant = 'x'\n[data]\nsource = 'y'\n[privacy]\nupdate_noise = 1\n",
            "measured by update_clip",
        ),
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
