"""Kits: the folder of each organisation, made by FLARE's own provisioning.

A kit holds a certificate, a key, the server's address and its owner's permissions. A silo's kit is
made from an invitation, and its key by the silo itself. No kit allows a job to bring code: a job
can only name the components that are listed here.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.federation.flare import drivers
from fedegoists.federation.flare.certificate_authority import (
    AUTHORITY_FILE,
    Authority,
    certificate_text,
    key_text,
    read_authority,
)
from fedegoists.federation.flare.invitations import InvitationContents, write_invitation
from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_CERTIFICATE,
    REVOKED_FILE,
    ROOT_FILE,
    SIGNING_KEY,
)
from fedegoists.files import private_folder, read_text, write_bytes
from fedegoists.install_hints import install_command
from fedegoists.version import __version__

DEPLOY_FILE = "deploy.json"
OPERATOR = "operator"
INVITATIONS = "invitations"

RELAY = "fedegoists.federation.flare.relay.Relay"
SILO_CLIENT = "fedegoists.federation.flare.silo_executor.SiloClient"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"

PERMISSIONS: dict[str, object] = {
    "format_version": "1.0",
    "permissions": {
        "project_admin": "none",
        "org_admin": "none",
        "lead": {
            "submit_job": "any",
            "clone_job": "none",
            "manage_job": "n:submitter",
            "download_job": "none",
            "view": "any",
            "operate": "o:site",
            "shell_commands": "none",
            "byoc": "none",
            "server-predeployed-flwr": "none",
        },
        "member": "none",
    },
}
"""The operator may submit jobs without code, look, and operate the coordinator's own server."""

COMMUNICATION: dict[str, object] = {
    "streaming_retry_timeout": 10.0,
    "streaming_retry_wait": 2.0,
    "comm_driver_path": str(Path(drivers.__file__).parent),
}
"""Seconds for which FLARE resends a lost message. It remembers every message that arrived for as
long: with its own default, a minute, there would be thousands. And where FLARE
finds our drivers."""

SOCKETS = "sockets"
"""Folder of a kit for the connections between its own processes."""

HEARTBEAT = 10
"""Seconds between two heartbeats of a silo, and to wait for the answer to one. FLARE waits 30, so
that the silo would count as away when a single answer is lost."""

AWAY = 30
"""Seconds without a heartbeat after which a silo counts as away."""


@dataclass(frozen=True)
class Deployment:
    """The description of the consortium in the coordinator's kit.

    Attributes
    ----------
    host, port : str and int
        The address of the server.
    operator : str
        The name under which runs are submitted.
    sites : mapping of str to str
        The name in certificates of each participant.
    days : int
        Validity of silos' certificates.
    """

    project: str
    host: str
    port: int
    operator: str
    sites: Mapping[str, str]
    days: int = 365


def require() -> None:
    """Raise an error that says how to install FLARE, if it is missing."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            f"deployment needs NVIDIA FLARE: {install_command('flare')}"
        ) from None


def site_names(participants: Sequence[str]) -> dict[str, str]:
    """Return a distinct name for certificates for each participant.

    Examples
    --------
    >>> site_names(["North Bank", "South", "北"])
    {'North Bank': 'North-Bank', 'South': 'South', '北': 'silo-3'}
    """
    found: dict[str, str] = {}
    for number, name in enumerate(participants, 1):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or f"silo-{number}"
        # An organisation called like the coordinator's would be the operator's to stop.
        taken = {site.casefold() for site in found.values()} | {"server", "coordinator"}
        while plain.casefold() in taken:
            plain = f"{plain}-{number}"
        found[name] = plain
    return found


def make_kits(
    folder: Path,
    participants: Sequence[str],
    *,
    name: str,
    host: str,
    port: int,
    days: int = 365,
    silo_files: Callable[[str], Mapping[str, bytes]] = lambda _participant: {},
) -> Deployment:
    """Write the coordinator's kit and an invitation for each silo.

    A second call with more or fewer participants keeps the certificate authority, the coordinator's
    kit and all invitations that exist: only new ones are added.

    Parameters
    ----------
    days : int
        Validity of silos' certificates.
    silo_files : callable
        Returns more files for the kit of a participant, by its name.
    """
    require()
    from fedegoists.federation.flare.provisioning import project, project_name, provisioned

    deployment = Deployment(
        project_name(name),
        host,
        port,
        f"{OPERATOR}@coordinator.local",
        site_names(participants),
        days,
    )
    server = folder / "coordinator"
    _check_authority(folder)
    made = provisioned(folder, project(deployment.project, host, port, deployment.operator))
    try:
        authority = read_authority(folder / "authority")
        if not server.exists():
            shutil.move(made / host, server)
            shutil.move(made / deployment.operator, server / OPERATOR)
            _make_signing_key(server, authority)
        for participant, site in deployment.sites.items():
            path = folder / INVITATIONS / f"{site}.zip"
            if not path.exists():
                private_folder(path.parent)
                files = {**_common_files(server), **silo_files(participant)}
                contents = InvitationContents(
                    project=deployment.project,
                    participant=participant,
                    site=site,
                    host=host,
                    port=port,
                    version=__version__,
                )
                write_invitation(path, authority, contents, files)
    finally:
        shutil.rmtree(made.parents[1], ignore_errors=True)
    write_bytes(server / DEPLOY_FILE, (json.dumps(asdict(deployment), indent=2) + "\n").encode())
    hide(server)
    return deployment


def _check_authority(folder: Path) -> None:
    server = folder / "coordinator"
    if server.exists() and not (folder / "authority").is_dir():
        raise FileError(f"{server}: is there already, but not its authority/; use --out")
    if server.exists() and not (server / SIGNING_KEY).is_file():
        raise FileError(
            f"{folder}: made by an earlier version, in which silos did not make their own keys; "
            "use --out to make a new consortium in another folder"
        )


def _make_signing_key(server: Path, authority: Authority) -> None:
    """Make the key with which the coordinator signs calls, and an empty revocation list."""
    key = Ed25519PrivateKey.generate()
    certificate = authority.certify_coordinator(key.public_key())
    write_bytes(server / SIGNING_KEY, key_text(key), private=True)
    write_bytes(server / COORDINATOR_CERTIFICATE, certificate_text(certificate))
    write_bytes(server / REVOKED_FILE, authority.revocation_list([], 1))


def _common_files(server: Path) -> dict[str, bytes]:
    """Return the files that every kit has: whose calls to answer, and whom not to believe."""
    names = (ROOT_FILE, COORDINATOR_CERTIFICATE, REVOKED_FILE)
    return {name: (server / name).read_bytes() for name in names}


def renew_coordinator(folder: Path) -> None:
    """Renew the certificates of the server and of the operator with new keys."""
    require()
    from fedegoists.federation.flare.provisioning import project, provisioned

    server = folder / "coordinator"
    deployment = read_deployment(server)
    issued = folder / "authority" / AUTHORITY_FILE
    content = json.loads(read_text(issued))
    for subject in (deployment.host, deployment.operator):
        content.pop(subject, None)
    write_bytes(issued, json.dumps(content).encode(), private=True)
    description = project(deployment.project, deployment.host, deployment.port, deployment.operator)
    made = provisioned(folder, description)
    try:
        for source, target, kind in (
            (deployment.host, server, "server"),
            (deployment.operator, server / OPERATOR, "client"),
        ):
            for name in (f"{kind}.key", f"{kind}.crt"):
                content_of = (made / source / "startup" / name).read_bytes()
                write_bytes(target / "startup" / name, content_of, private=True)
    finally:
        shutil.rmtree(made.parents[1], ignore_errors=True)


def hide(kit: Path) -> None:
    """Take all permissions on a kit from other users."""
    private_folder(kit)
    for path in kit.rglob("*"):
        with suppress(FileNotFoundError):  # a running kit writes and removes files
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)


def read_deployment(folder: Path) -> Deployment:
    """Read the description of the consortium in the coordinator's kit."""
    path = folder / DEPLOY_FILE
    if not path.is_file():
        raise FileError(f"{folder}: not a coordinator's kit; `fedegoists deploy init` makes one")
    try:
        return Deployment(**json.loads(read_text(path)))
    except (ValueError, TypeError) as error:
        raise FileError(f"{path}: not written by `fedegoists deploy init` ({error})") from None


def prepare_kit(kit: Path, role: str) -> None:
    """Write the permissions of this machine, whatever the kit came with: no code, few components.

    Parameters
    ----------
    role : {"coordinator", "silo"}
        The owner of the kit.
    """
    hide(kit)
    defaults = kit / "local" / "resources.json.default"
    resources = json.loads(read_text(defaults))
    coordinator = role == "coordinator"
    if coordinator:
        _check_certificates_at_server(kit)
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [CONTROLLER, RELAY] if coordinator else [EXECUTOR, SILO_CLIENT]
    resources["allow_log_streaming"] = False
    if coordinator:
        resources["servers"][0]["heart_beat_timeout"] = AWAY
        storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
        storage["root_dir"] = str(kit.resolve() / "snapshots")
        for component in resources["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(kit.resolve() / "jobs")
    else:
        resources["client"]["maint_msg_timeout"] = float(HEARTBEAT)
        streamers = "site_log_streamer"
        resources["components"] = [c for c in resources["components"] if c["id"] != streamers]
    write_bytes(kit / "local" / "resources.json", json.dumps(resources, indent=2).encode())
    write_bytes(kit / "local" / "comm_config.json", json.dumps(_communication(kit)).encode())
    write_bytes(kit / "local" / "authorization.json", json.dumps(PERMISSIONS, indent=2).encode())


def _communication(kit: Path) -> dict[str, object]:
    """Return the settings of FLARE's connections, with private sockets between its processes."""
    sockets = kit.resolve() / SOCKETS
    private_folder(sockets)
    for left in sockets.iterdir():  # of a process that was killed
        left.unlink()
    internal = {"scheme": "private", "resources": {"folder": str(sockets)}}
    return {**COMMUNICATION, "internal": internal}


def _check_certificates_at_server(kit: Path) -> None:
    """Have the server use the driver that knows revoked certificates."""
    path = kit / "startup" / "fed_server.json"
    content = json.loads(read_text(path))
    for one in content["servers"]:
        one["service"]["scheme"] = "revocable"
    write_bytes(path, json.dumps(content, indent=2).encode(), private=True)
