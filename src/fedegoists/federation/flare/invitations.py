"""Invitations: the files with which a silo joins a consortium; there is no key in them.

An invitation is a ZIP file that the consortium's root has signed. A silo unpacks it into its kit,
adds a key of its own, and writes FLARE's configuration itself: that names classes to load, and a
dishonest coordinator would name others. Where the fingerprint of the root is compared over another
channel, no third party can have changed anything in it.
"""

import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from pydantic import Field, ValidationError

from fedegoists.errors import FileError, first_problem
from fedegoists.federation.flare.certificate_authority import Authority
from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_CERTIFICATE,
    REVOKED_FILE,
    ROOT_FILE,
    IdentityError,
    Trust,
    verify,
)
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.federation.validated import Validated
from fedegoists.files import private_folder, write_bytes
from fedegoists.learning.datasets.own import SCHEMA_FILE

CONTENTS_FILE = "invitation.json"
SIGNATURE_FILE = "invitation.sig"

FILES = frozenset(
    {
        ROOT_FILE,
        COORDINATOR_CERTIFICATE,
        REVOKED_FILE,
        SILO_FILE,
        SCHEMA_FILE,
        "readme.txt",
    }
)
"""What an invitation brings: certificates, and texts for the silo's operator to read."""
CODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}\.py")
"""Code of a model or loader, which a silo runs only after its operator has approved it. Nothing
imports it by its name: kits are not on Python's path (`PYTHONSAFEPATH`)."""
SHADOWED = ("fedegoists", "nvflare", "torch", "numpy", "pydantic", "sitecustomize", "usercustomize")

LARGEST_FILE = 10_000_000
MOST_FILES = 200


def _is_code(name: str) -> bool:
    """Return whether a file may be code for the operator to read, and shadows no module."""
    stem = name.partition(".")[0]
    return CODE.fullmatch(name) is not None and stem not in (*sys.stdlib_module_names, *SHADOWED)


class InvitationContents(Validated):
    """What an invitation is for, and the hashes of its files.

    Attributes
    ----------
    project : str
        The consortium, as FLARE calls it.
    participant, site : str
        The invited participant, and its name in certificates.
    host, port : str and int
        The address of the coordinator's server.
    version : str
        The version of this package that the coordinator runs.
    files : dict of str to str
        The SHA-256 of each file.
    """

    project: str = Field(pattern="^[A-Za-z0-9_]{1,60}$")
    participant: str
    site: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$")
    host: str
    port: int
    version: str
    files: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Invitation:
    """An invitation that has been checked.

    Attributes
    ----------
    contents : InvitationContents
        What it is for.
    files : mapping of str to bytes
        The files of the kit, by path.
    trust : Trust
        The consortium's root, which has signed the invitation.
    """

    contents: InvitationContents
    files: Mapping[str, bytes]
    trust: Trust

    def unpack(self, kit: Path, configuration: Mapping[str, bytes]) -> None:
        """Write the files, and FLARE's, into a folder that only its owner can read."""
        private_folder(kit)
        contents = self.contents.model_dump_json(indent=2).encode()
        for name, content in {**configuration, **self.files, CONTENTS_FILE: contents}.items():
            path = kit / name
            private_folder(path.parent)
            write_bytes(path, content, private=True)


def write_invitation(
    path: Path,
    authority: Authority,
    contents: InvitationContents,
    files: Mapping[str, bytes],
) -> None:
    """Write the invitation of a participant, signed by the consortium's root."""
    found = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    contents = contents.changed(files=found)
    text = json.dumps(contents.model_dump(), indent=2, sort_keys=True).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CONTENTS_FILE, text)
        archive.writestr(SIGNATURE_FILE, authority.identity.sign(_SIGNED + text))
        for name, content in sorted(files.items()):
            archive.writestr(name, content)
    write_bytes(path, packed.getvalue(), private=True)


_SIGNED = b"fedegoists invitation\n"
"""Before the signed text, so that no signature of something else fits."""


def read_invitation(path: Path) -> Invitation:
    """Read an invitation; everything in it must be as the consortium's root has signed it.

    Raises
    ------
    FileError, IdentityError
        If it is no invitation, or was changed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            packed = archive.infolist()
            if len(packed) > MOST_FILES or any(one.file_size > LARGEST_FILE for one in packed):
                raise FileError(f"{path}: too large for an invitation")
            found = {one.filename: archive.read(one) for one in packed}
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: not an invitation of `fedegoists deploy init`") from None
    try:
        text, signature = found.pop(CONTENTS_FILE), found.pop(SIGNATURE_FILE)
        contents = InvitationContents.model_validate_json(text)
        trust = Trust(x509.load_pem_x509_certificate(found[ROOT_FILE]))
    except ValidationError as error:
        raise FileError(f"{path}: not an invitation: {first_problem(error)}") from None
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: not an invitation of `fedegoists deploy init`: {error}") from None
    try:
        verify(trust.root, signature, _SIGNED + text)
    except IdentityError:
        raise IdentityError(f"{path}: not signed by the root of the consortium in it") from None
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    if hashes != contents.files:
        raise IdentityError(f"{path}: changed after the coordinator made it; ask for it again")
    others = sorted(name for name in found.keys() - FILES if not _is_code(name))
    if others:
        raise FileError(
            f"{path}: has a file {others[0]!r}, which no invitation of this version has; do not "
            "use it, and ask the coordinator for another"
        )
    return Invitation(contents, found, trust)
