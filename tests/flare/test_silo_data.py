"""A silo's data that is no table: a folder of images, or an approved function of its own."""

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.deploy.consortium_kits import _silo_files, make_deployment
from fedegoists.deploy.flare_engine import described, hindrance
from fedegoists.deploy.kit_process import KitProcess
from fedegoists.deploy.local_deployment import join_all
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.approved_code import approve
from fedegoists.federation.flare.invitations import _of_a_model
from fedegoists.federation.flare.messages import About, Answers, Call
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.flare.wire import pack, unpack
from fedegoists.learning.datasets import load, load_own
from fedegoists.learning.own_models import file_digest
from tests.learning.datasets.pictures import scans

CODE = """\
import numpy as np

def load(organisation=None, folder=None):
    names = {"North": 1, "South": 2}
    found = {}
    for name in names if organisation is None else [organisation]:
        rng = np.random.default_rng(names[name])
        found[name] = {"inputs": rng.normal(size=(40, 3)), "targets": np.arange(40) % 2}
    if folder is not None:
        found["asked for " + folder] = found["South"]
    return {"task": "binary", "classes": 2, "organisations": found}
"""
SILO = (
    'participant = "South"\n[data]\nsource = "data.py:load"\nseed = 3\n[privacy]\nlevel = "none"\n'
)


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "data.py").write_text(CODE)
    (tmp_path / "silo.toml").write_text(SILO)
    return tmp_path


def loaded(kit):
    return load_silo(read_silo_settings(kit / "silo.toml"))


def test_only_an_approved_loader_runs(kit):
    (kit / "data.py").write_text(
        CODE + "\n(__import__('pathlib').Path(__file__).parent / 'ran').touch()\n"
    )
    with pytest.raises(SettingsError, match=r"data.py has not been approved.*approve KIT data.py"):
        loaded(kit)
    assert not (kit / "ran").exists()
    approve(kit, "data.py", file_digest(kit / "data.py"))
    assert loaded(kit).participants == ("South",)
    assert (kit / "ran").exists()
    (kit / "data.py").write_text(CODE + "\n# another line\n")
    with pytest.raises(SettingsError, match=r"data.py has changed since it was approved"):
        loaded(kit)
    (kit / "data.py").unlink()
    with pytest.raises(SettingsError, match=r"data.py is not in this kit"):
        loaded(kit)


@pytest.mark.parametrize("source", ["../data.py:load", "/tmp/data.py:load", "a/data.py:load"])
def test_a_loader_lies_in_the_kit(kit, source):
    (kit / "silo.toml").write_text(SILO.replace("data.py:load", source))
    with pytest.raises(SettingsError, match="no function of a file in this kit"):
        read_silo_settings(kit / "silo.toml")


def test_a_silo_has_the_samples_it_has_among_all(kit):
    approve(kit, "data.py", file_digest(kit / "data.py"))
    everybody, alone = load(f"{kit / 'data.py'}:load", seed=3), loaded(kit)
    for split in ("train", "validation", "test"):
        one, other = alone.part("South", split), everybody.part("South", split)
        assert (one.inputs[0] == other.inputs[0]).all()
        assert (one.targets == other.targets).all()


def test_a_silo_tells_the_hash_of_its_loader(kit):
    digest = file_digest(kit / "data.py")
    approve(kit, "data.py", digest)
    call = Call(operation="about", run="r", model="", schema_is="", repetitions=1, asked=())
    answers = unpack(Answers, SiloService(kit).answer("server", pack(call)))
    assert answers.about is not None, answers.refused
    assert answers.about.loader == digest


def about(name, loader="", **limits):
    return About(
        participant=name,
        version="1",
        task="binary",
        classes=2,
        shapes=[[3]],
        kinds=["f4"],
        sizes=[30, 5, 5],
        digest="d",
        loader=loader,
        **limits,
    )


def test_all_silos_load_by_the_file_of_the_consortium(kit):
    digest, source = file_digest(kit / "data.py"), f"{kit / 'data.py'}:load"
    fine = {name: about(name, digest) for name in ("North", "South")}
    assert described(source, fine).name == "data.py:load"
    other = {**fine, "South": about("South", "0" * 64)}
    with pytest.raises(SettingsError, match="South loads its data by another file than the coord"):
        described(source, other)
    with pytest.raises(SettingsError, match="South loads its data by another file than North"):
        described("own", other)
    with pytest.raises(SettingsError, match="SHA-256 none and"):
        described(source, {name: about(name, "") for name in fine})


def test_kits_have_the_loader_and_how_to_approve_it(kit):
    (kit / "consortium.toml").write_text('[data]\nsource = "data.py:load"\n')
    files = _silo_files(read_settings(kit / "consortium.toml"), "South")
    assert files["data.py"].decode() == CODE
    text = files["silo.toml"].decode()
    assert (
        'source = "data.py:load"  # read it, and approve it: fedegoists deploy approve . d' in text
    )
    (kit / "silo.toml").write_text(text)
    approve(kit, "data.py", file_digest(kit / "data.py"))
    assert loaded(kit).participants == ("South",)


def test_a_folder_of_images_is_a_silos_data(tmp_path):
    folder = scans(tmp_path / "scans")
    (tmp_path / "consortium.toml").write_text('[data]\nsource = "scans"\n')
    files = _silo_files(read_settings(tmp_path / "consortium.toml"), "South")
    text = files["silo.toml"].decode()
    assert 'file = "data"          # your own folder, as schema.toml describes it' in text
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "schema.toml").write_bytes(files["schema.toml"])
    (kit / "silo.toml").write_text(text)
    (folder / "South").rename(kit / "data")
    alone = loaded(kit)
    (kit / "data").rename(folder / "South")
    everybody = load_own(folder)
    for split in ("train", "validation", "test"):
        assert (
            alone.part("South", split).inputs[0] == everybody.part("South", split).inputs[0]
        ).all()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("data.py", True),
        ("my-model.v2.py", True),
        ("json.py", False),
        ("nvflare.py", False),
        ("startup/data.py", False),
        ("backbone.safetensors", True),
        ("data.sh", False),
        (".py", False),
    ],
)
def test_an_invitation_brings_code_that_shadows_nothing(name, code):
    assert _of_a_model(name) == code


def test_an_invitation_with_a_loader_is_accepted(kit):
    (kit / "consortium.toml").write_text('[data]\nsource = "data.py:load"\n')
    deployment = make_deployment(read_settings(kit / "consortium.toml"), kit / "deploy")
    join_all(kit / "deploy", deployment)
    for site in deployment.sites.values():
        own = kit / "deploy" / "silos" / site
        assert (own / "data.py").read_text() == CODE
        with pytest.raises(SettingsError, match=r"data.py has not been approved"):
            KitProcess("silo", own, print)


def test_a_silo_tells_its_limits(kit):
    limits = "[limits]\nsingle_updates = true\nrounds_per_day = 7\n"
    (kit / "silo.toml").write_text(SILO.replace('"none"', '"standard"') + limits)
    approve(kit, "data.py", file_digest(kit / "data.py"))
    call = Call(operation="about", run="r", model="", schema_is="", repetitions=1, asked=())
    told = unpack(Answers, SiloService(kit).answer("server", pack(call))).about
    assert (told.single_updates, told.noisy, told.rounds_per_day) == (True, True, 7)


@pytest.mark.parametrize(
    ("limits", "models", "told"),
    [
        ({"single_updates": True}, True, ""),
        ({"single_updates": True, "rounds_per_day": 100}, True, ""),
        ({}, True, "South lets no model of its own leave"),
        ({}, False, ""),
        ({"single_updates": True, "noisy": True}, True, "South adds noise"),
        ({"noisy": True}, False, "South adds noise"),
        ({"single_updates": True, "rounds_per_day": 99}, True, "South answers 99 times a day, and"),
        ({"rounds_per_day": 99}, False, "South answers 99 times a day, and"),
    ],
)
def test_limits_of_one_silo_hinder_all(limits, models, told):
    fine = about("North", single_updates=True)
    found = hindrance({"North": fine, "South": about("South", **limits)}, 100, models=models)
    assert found.startswith(told)
    assert bool(found) == bool(told)
