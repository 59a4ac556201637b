"""The silo.toml that an invitation brings: consent only where the consortium needs it, and why."""

import zipfile

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.exposure import needs_single_updates
from fedegoists.deploy.consortium_kits import make_deployment
from fedegoists.federation.flare.silo_settings import read_silo_settings
from tests.flare.loopback import write_tables

BY_SUMS = {
    "benefit": 'estimator = "everybody"',
    "formation": "fewest_members = 3",
    "training": 'methods = ["local", "fedavg+ft", "egomix"]',
    "deploy": 'privacy = "standard"\nparticipants = ["North", "South", "East"]\n'
    'schema_file = "data/schema.toml"',
}


def consortium(folder, **changes):
    write_tables(folder / "data", ["North"])
    sections = {**BY_SUMS, **changes}
    text = "".join(f"[{name}]\n{content}\n" for name, content in sections.items())
    (folder / "consortium.toml").write_text(f'[data]\nsource = "silos"\n{text}')
    return read_settings(folder / "consortium.toml")


def invited(folder, settings):
    """The limits in an invitation, and its text."""
    make_deployment(settings, folder / "deploy")
    with zipfile.ZipFile(folder / "deploy" / "invitations" / "South.zip") as archive:
        text = archive.read("silo.toml").decode()
    (folder / "silo.toml").write_text(text)
    return read_silo_settings(folder / "silo.toml").limits, text


def test_a_consortium_that_needs_only_sums_asks_for_no_more(tmp_path):
    limits, text = invited(tmp_path, consortium(tmp_path))
    assert limits.single_updates is False
    assert "needs no single updates" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"benefit": 'estimator = "auto"'}, "benefits are estimated"),
        ({"training": 'methods = ["scaffold"]'}, "the method scaffold shows single updates"),
        ({"training": 'methods = ["fedegoists+ft"]'}, "the method fedegoists+ft shows gradients"),
        ({"formation": "fewest_members = 2"}, "coalitions may have two members"),
        ({"deploy": BY_SUMS["deploy"] + '\nsecure_sums = "off"'}, "sums are not masked"),
    ],
)
def test_what_needs_single_updates_is_named(tmp_path, changes, reason):
    settings = consortium(tmp_path, **changes)
    (found,) = needs_single_updates(settings)
    assert found.startswith(reason)
    limits, text = invited(tmp_path, settings)
    assert limits.single_updates is True
    assert f"# This consortium needs it: {reason}" in text
