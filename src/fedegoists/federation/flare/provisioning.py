"""FLARE's provisioning: the coordinator's certificates and files, and a silo's files.

Each side has its own files written here, by the FLARE that is installed on its machine. They name
classes that FLARE loads, so no silo takes them from the coordinator.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nvflare.lighter.ctx import CtxKey
from nvflare.lighter.provision import prepare_builders, prepare_project
from nvflare.lighter.provisioner import Provisioner

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.certificate_authority import AUTHORITY_FILE, organisation

ROOT_DAYS = 3650
"""Validity of a consortium's root in days; certificates of members are renewed meanwhile."""


def project_name(name: str) -> str:
    """Return the name of a consortium as FLARE's projects can have it.

    Examples
    --------
    >>> project_name("two words, 1")
    'two_words_1'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)[:60].strip("_") or "consortium"


def project(name: str, host: str, port: int, operator: str) -> dict[str, object]:
    """Return FLARE's description of the coordinator's part: the server and its operator."""
    own = {"name": operator, "type": "admin", "org": "coordinator", "role": "lead"}
    certificates = {
        "path": "nvflare.lighter.impl.cert.CertBuilder",
        "args": {"root_valid_days": ROOT_DAYS},
    }
    return _description(name, host, port, [own], [certificates])


def _description(
    name: str,
    host: str,
    port: int,
    participants: Sequence[Mapping[str, object]],
    builders: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    server = {
        "name": host,
        "type": "server",
        "org": "coordinator",
        "fed_learn_port": port,
        "admin_port": port,
    }
    known = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": name,
        "description": "A consortium of FedEgoists",
        "participants": [server, *participants],
        "builders": [
            {
                "path": f"{known}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{known}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            *builders,
        ],
    }


def silo_configuration(name: str, host: str, port: int, site: str) -> dict[str, bytes]:
    """Return the files with which FLARE starts a silo, by their paths in its kit.

    Parameters
    ----------
    name : str
        The consortium, see `project_name`.
    host, port : str and int
        The address of the coordinator's server.
    site : str
        The silo's name in certificates.
    """
    own = {"name": site, "type": "client", "org": organisation(site)}
    with tempfile.TemporaryDirectory() as folder:
        made = _built(Path(folder), _description(name, host, port, [own])) / site
        return {
            path.relative_to(made).as_posix(): path.read_bytes()
            for part in ("startup", "local")
            for path in sorted((made / part).rglob("*"))
            if path.is_file() and path.suffix != ".sh"  # `deploy start` needs no script
        }


def provisioned(folder: Path, description: Mapping[str, object]) -> Path:
    """Let FLARE make the coordinator's kits; return where they are.

    The authority's key stays in `folder`. The caller removes the second parent of the returned
    folder.
    """
    name = str(description["name"])
    state = folder / "authority"
    work = Path(tempfile.mkdtemp(prefix=".kits-", dir=folder))
    if state.is_dir():
        shutil.copytree(state, work / name / "state")
    try:
        made = _built(work, description)
    except SettingsError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    # Hidden before they are copied: no other user can read a key in between.
    (work / name / "state").chmod(0o700)
    (work / name / "state" / AUTHORITY_FILE).chmod(0o600)
    state.mkdir(mode=0o700, exist_ok=True)
    shutil.copytree(work / name / "state", state, dirs_exist_ok=True)
    return made


def _built(folder: Path, description: Mapping[str, object]) -> Path:
    """Let FLARE's builders write into a folder; return where the participants' files are."""
    content = json.loads(json.dumps(description))
    messages = _Messages()
    try:
        provisioner = Provisioner(str(folder), prepare_builders(content), None)
        context = provisioner.provision(prepare_project(content), logger=messages)
    except (ValueError, RuntimeError) as error:
        raise SettingsError(f"FLARE cannot make kits: {error}") from None
    if context.get(CtxKey.BUILD_ERROR):
        raise SettingsError(f"FLARE cannot make kits: {'; '.join(messages.errors)}")
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
