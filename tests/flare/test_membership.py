"""Joining: keys stay where they are made, and what was changed on the way is noticed."""

import datetime
import os
import re
import zipfile

import pytest
from typer.testing import CliRunner

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.cli import app
from fedegoists.deploy.membership import (
    SOON,
    certificate_state,
    install,
    issued,
    join,
    renew,
    revoke,
    sign,
)
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare import certificate_authority
from fedegoists.federation.flare.approved_code import model_here
from fedegoists.federation.flare.certificate_authority import read_authority
from fedegoists.federation.flare.invitations import read_invitation, write_invitation
from fedegoists.federation.flare.kit_identity import (
    IdentityError,
    fingerprint,
    read_trust,
    silo_identity,
    spoken,
)
from fedegoists.federation.flare.kits import make_kits
from fedegoists.federation.flare.provisioning import silo_configuration


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("consortium")
    make_kits(folder, ["North Bank", "South"], name="c", host="localhost", port=8002)
    return folder


@pytest.fixture
def consortium(made, tmp_path):
    import shutil

    return shutil.copytree(made, tmp_path / "deploy")


def invitation(consortium, site="South"):
    return consortium / "invitations" / f"{site}.zip"


def do(*arguments, answer=None):
    return CliRunner().invoke(app, ["deploy", *map(str, arguments)], input=answer)


def test_a_newcomer_joins_with_four_commands(consortium, tmp_path):
    kit = tmp_path / "south"
    joined = do("join", invitation(consortium), "--kit", kit)
    assert joined.exit_code == 0, joined.output
    shown = do("fingerprints", "--out", consortium)
    root = spoken(fingerprint(read_trust(kit).root))
    assert root in joined.output
    assert root in shown.output
    request = kit / "South.csr"
    signed = do("sign", request, "--out", consortium, answer="y\n")
    assert signed.exit_code == 0, signed.output
    told = next(part for part in joined.output.split() if part.count("-") == 7 and part != root)
    assert told in signed.output
    assert "Did South itself read this fingerprint" in signed.output
    installed = do("install", kit / "South.crt", kit)
    assert installed.exit_code == 0, installed.output
    assert "deploy start silo" in installed.output
    identity = silo_identity(kit)
    read_trust(consortium / "coordinator").check(identity.certificate, "South")
    assert spoken(fingerprint(identity.certificate)) == told
    assert told in do("fingerprints", "--out", consortium).output
    assert not request.exists()
    do("renew", kit)
    do("sign", request, "--out", consortium, answer="y\n")
    again = do("install", kit / "South.crt", kit)
    assert "A running silo connects again" in again.output
    assert "deploy start silo" not in again.output


def test_fingerprints_that_differ_stop_everything(consortium, tmp_path):
    kit, wrong = tmp_path / "south", "-".join(["0000"] * 8)
    refused = do("join", invitation(consortium), "--kit", kit, "--fingerprint", wrong)
    assert isinstance(refused.exception, SettingsError)
    assert not kit.exists()
    join(invitation(consortium), kit)
    refused = do("sign", kit / "South.csr", "--out", consortium, "--fingerprint", wrong)
    assert isinstance(refused.exception, SettingsError)
    declined = do("sign", kit / "South.csr", "--out", consortium, answer="n\n")
    assert declined.exit_code == 1
    assert not (kit / "South.crt").exists()
    assert issued(consortium / "coordinator", "South") == []


def changed(path, target, name, content):
    """Copy a ZIP file with one of its files changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for one in {*old.namelist(), name}:
            new.writestr(one, content if one == name else old.read(one))
    return target


def test_an_invitation_that_was_changed_is_refused(consortium, tmp_path):
    good = invitation(consortium)
    other = tmp_path / "other.zip"
    for name, content, error, words in (
        ("startup/coordinator.crt", b"mine", IdentityError, "changed after"),
        ("startup/more.json", b"{}", IdentityError, "changed after"),
        ("invitation.json", b"{}", FileError, "not an invitation"),
        ("invitation.sig", b"x" * 256, IdentityError, "not signed by the root"),
    ):
        with pytest.raises(error, match=words):
            join(changed(good, other, name, content), tmp_path / "kit")
    with pytest.raises(FileError, match="not an invitation"):
        read_invitation(consortium / "coordinator" / "deploy.json")
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize(
    "name",
    [
        "local/resources.json.default",  # components, by class
        "local/log_config.json.default",  # handlers and formatters, by class
        "local/custom/evil.py",  # on the path of FLARE's processes
        "startup/fed_client.json",
        "startup/start.sh",
        "../outside",
        "json.py",  # would be imported in place of Python's own
        "nvflare.py",
        "sitecustomize.py",
    ],
)
def test_a_dishonest_coordinator_cannot_configure_a_silos_flare(consortium, tmp_path, name):
    """It signs what it likes, but a silo takes only texts and certificates from it."""
    good, other = read_invitation(invitation(consortium)), tmp_path / "other.zip"
    files = {**good.files, name: b'{"path": "subprocess.Popen"}'}
    write_invitation(other, read_authority(consortium / "authority"), good.contents, files)
    with pytest.raises(FileError, match=f"a file '{re.escape(name)}', which no invitation"):
        join(other, tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_an_own_model_and_its_weights_come_with_the_invitation(consortium, tmp_path):
    """They lie in the kit as they are; using them takes an approval."""
    good, other = read_invitation(invitation(consortium)), tmp_path / "other.zip"
    own = {"model.py": b"def build():\n    raise SystemExit\n", "w.safetensors": b"numbers"}
    files = {**good.files, **own}
    write_invitation(other, read_authority(consortium / "authority"), good.contents, files)
    join(other, tmp_path / "kit")
    for name, content in own.items():
        assert (tmp_path / "kit" / name).read_bytes() == content
    with pytest.raises(SettingsError, match=r"model.py has not been approved"):
        model_here(tmp_path / "kit", "model.py:build", "0" * 64)


def test_a_silo_writes_the_configuration_of_flare_itself(consortium, tmp_path):
    join(invitation(consortium), tmp_path / "kit")
    own = silo_configuration("c", "localhost", 8002, "South")
    assert {"startup/fed_client.json", "local/resources.json.default"} < own.keys()
    for name, content in own.items():
        assert (tmp_path / "kit" / name).read_bytes() == content
    brought = read_invitation(invitation(consortium)).files
    assert not own.keys() & brought.keys()


def test_another_consortiums_root_does_not_fit(consortium, tmp_path):
    """Everything replaced by an attacker: it fits together, but has another fingerprint."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    make_kits(theirs, ["North Bank", "South"], name="c", host="localhost", port=8002)
    good, forged = read_invitation(invitation(consortium)), read_invitation(invitation(theirs))
    assert fingerprint(good.trust.root) != fingerprint(forged.trust.root)
    kit = tmp_path / "south"
    _, request = join(invitation(consortium), kit)
    with pytest.raises(IdentityError, match="not valid in this consortium"):
        install(sign(theirs, request.file, tmp_path / "wrong.crt"), kit)


def member(consortium, kit):
    _, request = join(invitation(consortium), kit)
    install(sign(consortium, request.file), kit)
    return silo_identity(kit)


def test_renewal_makes_a_new_key_and_uses_the_old_one_until_then(consortium, tmp_path):
    kit = tmp_path / "south"
    first = member(consortium, kit)
    with pytest.raises(IdentityError, match="no key waits for a certificate"):
        install(kit / "South.crt", kit)
    (kit / "silo.toml").write_text("mine")
    request = renew(kit)
    assert silo_identity(kit).certificate == first.certificate
    old = tmp_path / "old.crt"
    old.write_bytes(first.pem)
    with pytest.raises(IdentityError, match="not for the key that waits"):
        install(old, kit)
    assert silo_identity(kit).certificate == first.certificate
    install(sign(consortium, request.file), kit)
    second = silo_identity(kit)
    assert second.certificate.public_key() != first.certificate.public_key()
    assert (kit / "silo.toml").read_text() == "mine"
    found = issued(consortium / "coordinator", "South")
    assert [one.certificate for one in found] == [first.certificate, second.certificate]
    with pytest.raises(FileError, match="there is something already"):
        join(invitation(consortium), kit)


def test_revocation_ends_all_or_all_but_the_newest(consortium, tmp_path):
    kit, server = tmp_path / "south", consortium / "coordinator"
    first = member(consortium, kit)
    install(sign(consortium, renew(kit).file), kit)
    second = silo_identity(kit)
    assert do("revoke", "South", "--out", consortium, "--keep-newest").exit_code == 0
    trust = read_trust(server)
    with pytest.raises(IdentityError, match="is revoked"):
        trust.check(first.certificate, "South")
    trust.check(second.certificate, "South")
    assert revoke(consortium, "South") == 1
    with pytest.raises(IdentityError, match="is revoked"):
        read_trust(server).check(second.certificate, "South")
    assert [one.state for one in issued(server, "South")] == ["revoked", "revoked"]
    with pytest.raises(SettingsError, match="no certificate that could be revoked"):
        revoke(consortium, "South")
    with pytest.raises(SettingsError, match="'West' is not in this consortium"):
        revoke(consortium, "West")


def test_the_newest_certificate_is_known_also_after_files_were_copied(
    consortium, tmp_path, monkeypatch
):
    kit, kept = tmp_path / "south", consortium / "coordinator" / "members" / "South"
    first = member(consortium, kit).certificate
    monkeypatch.setattr(certificate_authority, "EARLY", datetime.timedelta(seconds=-5))
    sign(consortium, renew(kit).file)
    os.utime(kept / f"{first.serial_number:x}.crt", (2**32, 2**32))
    earlier, newest = issued(consortium / "coordinator", "South")
    assert earlier.certificate == first
    assert newest.certificate != first


def test_nobody_uninvited_gets_a_certificate(consortium, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    make_kits(theirs, ["East", "West"], name="c", host="localhost", port=8002)
    _, request = join(invitation(theirs, "East"), tmp_path / "east")
    with pytest.raises(SettingsError, match="'East' is not invited"):
        sign(consortium, request.file)


def test_an_end_that_is_near_is_told(consortium, tmp_path):
    authority = read_authority(consortium / "authority")
    from fedegoists.federation.flare.certificate_authority import new_silo_key

    _, request = new_silo_key("South")
    near = authority.certify_silo(request, "South", "South", SOON.days - 1)
    far = authority.certify_silo(request, "South", "South", SOON.days + 1)
    assert certificate_state(near, frozenset()) == "expires soon"
    assert certificate_state(far, frozenset()) == "valid"
    assert certificate_state(far, frozenset({far.serial_number})) == "revoked"
