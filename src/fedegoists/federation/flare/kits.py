"""Kits: the folder of each organisation, made by FLARE's own provisioning.

A kit holds a certificate, a key, the server's address and its owner's permissions. No kit allows a
job to bring code: a job can only name the components that are listed here.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import private_folder, read_text, write_bytes

DEPLOY_FILE = "deploy.json"
OPERATOR = "operator"

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

COMMUNICATION = {"streaming_retry_timeout": 10.0, "streaming_retry_wait": 2.0}
"""Seconds for which FLARE resends a lost message. It remembers every message that arrived for as
long: with its own default, a minute, there would be thousands."""

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
    """

    project: str
    host: str
    port: int
    operator: str
    sites: Mapping[str, str]


def require() -> None:
    """Raise an error that says how to install FLARE, if it is missing."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "deployment needs NVIDIA FLARE: pip install 'fedegoists[flare]'"
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
) -> Deployment:
    """Write ``project.yml``, the coordinator's kit and one kit for each silo.

    A second call with more or fewer participants keeps the certificate authority and all kits that
    exist: only new kits are added.
    """
    require()
    import yaml

    project = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:60].strip("_") or "consortium"
    deployment = Deployment(
        project, host, port, f"{OPERATOR}@coordinator.local", site_names(participants)
    )
    for kit in ("coordinator", "silos"):
        if (folder / kit).exists() and not (folder / "authority").is_dir():
            raise FileError(f"{folder / kit}: is there already, but not its authority/; use --out")
    description = _project(deployment, days)
    write_bytes(folder / "project.yml", yaml.safe_dump(description, sort_keys=False).encode())
    made = _provisioned(folder, description, project)
    try:
        server = folder / "coordinator"
        if not server.exists():
            shutil.move(made / host, server)
            shutil.move(made / deployment.operator, server / OPERATOR)
            private_folder(server)
        for site in deployment.sites.values():
            target = folder / "silos" / site
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.move(made / site, target)
                private_folder(target)
                _hide_keys(target)
        _hide_keys(server)
    finally:
        shutil.rmtree(made.parents[1], ignore_errors=True)
    write_bytes(
        folder / "coordinator" / DEPLOY_FILE,
        (json.dumps(asdict(deployment), indent=2) + "\n").encode(),
    )
    return deployment


def renew_kit(folder: Path, participant: str) -> Path:
    """Renew a participant's key and certificate; return its kit, of which ``startup`` changed.

    Everything else in the kit stays. The old certificate is valid until it expires: where its key
    was stolen, have the server turn the site away and let the participant join under a new name.
    """
    require()
    import yaml

    deployment = read_deployment(folder / "coordinator")
    if participant not in deployment.sites:
        known = ", ".join(deployment.sites)
        raise SettingsError(f"{participant!r} is not in this consortium; {known} are")
    site = deployment.sites[participant]
    issued = folder / "authority" / "cert.json"
    content = json.loads(read_text(issued))
    content.pop(site, None)
    write_bytes(issued, json.dumps(content).encode(), private=True)
    made = _provisioned(
        folder, yaml.safe_load(read_text(folder / "project.yml")), deployment.project
    )
    try:
        kit = folder / "silos" / site
        shutil.rmtree(kit / "startup", ignore_errors=True)
        shutil.move(made / site / "startup", kit / "startup")
        _hide_keys(kit)
    finally:
        shutil.rmtree(made.parents[1], ignore_errors=True)
    return kit


def _hide_keys(kit: Path) -> None:
    for key in kit.glob("**/*.key"):
        key.chmod(0o600)


def _project(deployment: Deployment, days: int) -> dict[str, object]:
    """Return FLARE's description of the project."""
    silos: list[dict[str, object]] = [
        {"name": site, "type": "client", "org": re.sub(r"[^A-Za-z0-9_]", "_", site)}
        for site in deployment.sites.values()
    ]
    participants: list[dict[str, object]] = [
        {
            "name": deployment.host,
            "type": "server",
            "org": "coordinator",
            "fed_learn_port": deployment.port,
            "admin_port": deployment.port,
        },
        *silos,
        {"name": deployment.operator, "type": "admin", "org": "coordinator", "role": "lead"},
    ]
    builders = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": deployment.project,
        "description": "A consortium of FedEgoists",
        "participants": participants,
        "builders": [
            {
                "path": f"{builders}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{builders}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": f"{builders}.cert.CertBuilder", "args": {"root_valid_days": days}},
            {"path": f"{builders}.signature.SignatureBuilder", "args": {}},
        ],
    }


def _provisioned(folder: Path, description: Mapping[str, object], project: str) -> Path:
    """Let FLARE make all kits; return where they are. The authority's key stays in `folder`."""
    from nvflare.lighter.ctx import CtxKey
    from nvflare.lighter.provision import prepare_builders, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    state = folder / "authority"
    work = Path(tempfile.mkdtemp(prefix=".kits-", dir=folder))
    if state.is_dir():
        shutil.copytree(state, work / project / "state")
    content = json.loads(json.dumps(description))
    provisioner = Provisioner(str(work), prepare_builders(content), None)
    messages = _Messages()
    try:
        context = provisioner.provision(prepare_project(content), logger=messages)
    except (ValueError, RuntimeError) as error:
        shutil.rmtree(work, ignore_errors=True)
        raise SettingsError(f"FLARE cannot make kits: {error}") from None
    if context.get(CtxKey.BUILD_ERROR):
        shutil.rmtree(work, ignore_errors=True)
        raise SettingsError(f"FLARE cannot make kits: {'; '.join(messages.errors)}")
    # Hidden before they are copied: no other user can read a key in between.
    (work / project / "state").chmod(0o700)
    (work / project / "state" / "cert.json").chmod(0o600)
    state.mkdir(mode=0o700, exist_ok=True)
    shutil.copytree(work / project / "state", state, dirs_exist_ok=True)
    return Path(context[CtxKey.CURRENT_PROD_DIR])


class _Messages:
    """Collects the errors of provisioning."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, text: str) -> None:
        self.errors.append(text)

    def info(self, text: str) -> None:
        """Ignore messages that are no errors."""

    debug = warning = info


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
    private_folder(kit)
    defaults = kit / "local" / "resources.json.default"
    resources = json.loads(read_text(defaults))
    coordinator = role == "coordinator"
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
        streamers = "site_log_streamer"
        resources["components"] = [c for c in resources["components"] if c["id"] != streamers]
    write_bytes(kit / "local" / "resources.json", json.dumps(resources, indent=2).encode())
    write_bytes(kit / "local" / "comm_config.json", json.dumps(COMMUNICATION, indent=2).encode())
    write_bytes(kit / "local" / "authorization.json", json.dumps(PERMISSIONS, indent=2).encode())
