"""Kits: who gets what, what a kit allows, and what stays when kits are made again."""

import json
import stat
import zipfile

import pytest
from typer.testing import CliRunner

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from cryptography import x509

from fedegoists.cli import app
from fedegoists.deploy.local_deployment import join_all
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.kits import (
    AWAY,
    make_kits,
    prepare_kit,
    read_deployment,
    renew_coordinator,
    site_names,
)
from fedegoists.federation.flare.silo_settings import read_silo_settings
from tests.flare.loopback import write_consortium

NAMES = ("North Bank", "South", "East")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits")
    file = write_consortium(folder, NAMES, port=8002)
    result = CliRunner().invoke(app, ["deploy", "init", str(file), "--out", str(folder / "deploy")])
    assert result.exit_code == 0, result.output
    join_all(folder / "deploy", read_deployment(folder / "deploy" / "coordinator"))
    return folder / "deploy", result.output


def certificate(kit):
    name = "server.crt" if (kit / "startup" / "server.crt").exists() else "client.crt"
    return x509.load_pem_x509_certificate((kit / "startup" / name).read_bytes())


def common_name(kit):
    return certificate(kit).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value


def test_no_two_have_one_name_in_certificates():
    names = site_names(["A", "A-3", "A ", "Server", "coordinator"])
    assert len({site.casefold() for site in names.values()}) == 5
    assert not {"server", "coordinator"} & {site.casefold() for site in names.values()}


def test_everybody_gets_a_kit_and_next_steps(consortium):
    folder, output = consortium
    deployment = read_deployment(folder / "coordinator")
    assert deployment.sites == {"East": "East", "North Bank": "North-Bank", "South": "South"}
    assert common_name(folder / "coordinator") == "localhost"
    for participant, site in deployment.sites.items():
        kit = folder / "silos" / site
        assert common_name(kit) == site
        settings = read_silo_settings(kit / "silo.toml")
        assert settings.participant == participant
        assert (kit / "schema.toml").is_file()
        assert "fedegoists deploy start silo" in (kit / "readme.txt").read_text()
    assert "Next steps" in output
    assert "8002" in output


def test_kits_can_be_read_by_their_owner_only(consortium):
    folder, _ = consortium
    keys = [*folder.glob("**/*.key"), folder / "authority" / "cert.json"]
    assert len(keys) == 7
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    for part in ("coordinator", "silos/North-Bank", "silos/South", "authority", "invitations"):
        for path in [folder / part, *(folder / part).rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_coordinator_has_no_private_key_of_a_silo(consortium):
    """Neither in a file of its own nor in an invitation; the only keys there are its own."""
    folder, _ = consortium
    silo_keys = [path.read_bytes() for path in folder.glob("silos/*/startup/client.key")]
    assert len(set(silo_keys)) == 3
    secrets = {
        key.split(b"\n")[12] for key in silo_keys
    }  # of its private half: certificates have the other
    with_keys = set()
    for path in folder.rglob("*"):
        if not path.is_file() or "silos" in path.relative_to(folder).parts:
            continue
        content = path.read_bytes()
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                content = b"".join(archive.read(name) for name in archive.namelist())
        assert not any(secret in content for secret in secrets), path
        if b"PRIVATE KEY" in content:
            with_keys.add(str(path.relative_to(folder)))
    assert with_keys == {
        "authority/cert.json",
        "coordinator/signing.key",
        "coordinator/startup/server.key",
        "coordinator/operator/startup/client.key",
    }
    kept = json.loads((folder / "authority" / "cert.json").read_text())
    assert set(kept) == {"root_cert", "root_pri_key", "localhost", "operator@coordinator.local"}


def test_a_silos_kit_holds_nothing_of_the_others(consortium):
    folder, _ = consortium
    for name in ("North-Bank", "South", "East"):
        text = "".join(
            path.read_text(errors="replace")
            for path in (folder / "silos" / name).rglob("*")
            if path.is_file() and path.name != "rootCA.pem"
        )
        for other in {"North-Bank", "South", "East"} - {name}:
            assert other not in text


def test_a_kit_allows_two_components_and_no_code(consortium):
    folder, _ = consortium
    for role, kit in (("coordinator", folder / "coordinator"), ("silo", folder / "silos" / "East")):
        prepare_kit(kit, role)
        resources = json.loads((kit / "local" / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert len(resources["class_allow_list"]) == 2
        if role == "silo":  # two answers may be lost before a silo counts as away
            assert 2 * resources["client"]["maint_msg_timeout"] < AWAY
        rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        assert rights["lead"]["byoc"] == rights["lead"]["shell_commands"] == "none"
        assert {rights[role] for role in rights if role != "lead"} == {"none"}


def test_made_again_kits_stay_and_newcomers_are_added(tmp_path):
    options = {"name": "c", "host": "localhost", "port": 8002}
    join_all(tmp_path, make_kits(tmp_path, ["A", "B"], **options))
    before = certificate(tmp_path / "silos" / "A")
    signing = (tmp_path / "coordinator" / "signing.key").read_bytes()
    deployment = make_kits(tmp_path, ["A", "B", "C"], **options)
    join_all(tmp_path, deployment)
    assert certificate(tmp_path / "silos" / "A") == before
    assert (tmp_path / "coordinator" / "signing.key").read_bytes() == signing
    newcomer = certificate(tmp_path / "silos" / "C")
    assert newcomer.issuer == before.issuer
    assert set(deployment.sites) == {"A", "B", "C"}
    server = certificate(tmp_path / "coordinator")
    renew_coordinator(tmp_path)
    renewed = certificate(tmp_path / "coordinator")
    assert renewed.public_key() != server.public_key()
    assert renewed.subject == server.subject
    (tmp_path / "coordinator" / "signing.key").unlink()
    with pytest.raises(FileError, match="made by an earlier version"):
        make_kits(tmp_path, ["A", "B"], **options)


def test_names_of_all_kinds_make_kits(tmp_path):
    names = ["北", "a/b", "a b", "Server", "x" * 70]
    deployment = make_kits(tmp_path, names, name="two words, 1", host="localhost", port=8002)
    assert list(deployment.sites) == names
    assert len(set(deployment.sites.values())) == len(names)
    for site in deployment.sites.values():
        assert (tmp_path / "invitations" / f"{site}.zip").is_file()


def test_what_is_no_kit_is_said(consortium, tmp_path):
    from fedegoists.deploy.kit_process import KitProcess

    folder, _ = consortium
    with pytest.raises(FileError, match="not the kit of a silo"):
        KitProcess("silo", folder / "coordinator")
    with pytest.raises(FileError, match="not a coordinator's kit"):
        read_deployment(tmp_path)
    with pytest.raises(FileError, match=r"data\.csv"):
        KitProcess("silo", folder / "silos" / "South")
    with pytest.raises(SettingsError, match="cannot make kits"):
        make_kits(tmp_path, ["A", "B"], name="c", host="not a host", port=8002)


def test_a_kit_that_was_stopped_does_not_start_again(consortium):
    from fedegoists.deploy.kit_process import KitProcess

    folder, _ = consortium
    process = KitProcess("coordinator", folder / "coordinator")
    process.stop()
    process.run()
    assert process.pid is None
