"""Kits for a consortium: certificates by FLARE, a ``silo.toml`` for everybody, next steps."""

import json
import shutil
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.kits import Deployment, make_kits
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.files import write_bytes
from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.own import SCHEMA_FILE

__all__ = ["make_deployment"]

SILO_TOML = """\
# What {participant} allows. This file stays on your machine; nobody else can change or read it.
participant = {name}

[data]
{data}
seed = {seed}            # the same in the whole consortium
position = {position}        # which organisation of the consortium this is
# device = "cpu"      # or cuda

[limits]
# What may be asked; everything else is refused and logged in silo.log.
operations = ["train", "loss_and_gradient", "evaluate", "describe", "keep"]
# How many answers may tell of training samples in a day (UTC): each trained model, each gradient
# and each loss of a part of the data is one. A method that trains 20 rounds with 5 seeds needs 100.
# rounds_per_day = 100000
# How many models may be measured on all validation or test data in a day; a run does both for every
# seed in every evaluated round of every method.
# evaluations_per_day = 100000
fewest_samples = 5        # an answer is about so many samples at least, or half of them
# models = ["mlp"]        # networks that may be trained

[privacy]
# What is done to everything that leaves; see the page "What each party must trust".
# gradient_clip = 1.0     # longest gradient of one sample; hides losses too. It does not cover
#                           trained models: set update_clip for those
# gradient_noise = 1.0    # noise on gradients, in multiples of what a sample can add
# update_clip = 10.0      # longest change of a model that leaves after training
# update_noise = 0.01     # noise on such a change, in multiples of update_clip
"""

NEXT_STEPS = """\
Kit of the silo {participant!r}.

1. Keep startup/client.key secret. Whoever has this folder can speak in your name.
2. pip install 'fedegoists[train,flare]'   (the version of the coordinator, see below)
3. Edit silo.toml: where your data is, what may be asked, what happens to what leaves.
4. Make sure that this machine can open {host}:{port} (outgoing TCP; nothing comes in).
5. fedegoists deploy start silo .
   It runs in the foreground, connects again by itself, and logs every request in silo.log.
6. After a run, for your whole model with the layers that never left: fedegoists deploy model .

Made with fedegoists {version}.
"""


def make_deployment(settings: ConsortiumSettings, folder: Path) -> Deployment:
    """Write kits for everybody; what is there already, like certificates, is kept.

    Raises
    ------
    SettingsError
        If it is not known who takes part.
    """
    section = settings.deploy
    participants = _participants(settings)
    if len(participants) < 2:
        raise SettingsError("a consortium needs at least two participants: set deploy.participants")
    folder.mkdir(parents=True, exist_ok=True)
    deployment = make_kits(
        folder,
        participants,
        name=settings.name,
        host=section.host,
        port=section.port,
        days=section.days,
    )
    for position, (participant, site) in enumerate(deployment.sites.items()):
        kit = folder / "silos" / site
        if not (kit / SILO_FILE).exists():
            _write_silo(settings, kit, participant, position)
    return deployment


def _participants(settings: ConsortiumSettings) -> tuple[str, ...]:
    if settings.deploy.participants:
        return settings.deploy.participants
    data = settings.data
    return load(data.source, data_dir=data.folder, seed=data.seed, **data.options).participants


def _write_silo(settings: ConsortiumSettings, kit: Path, participant: str, position: int) -> None:
    from fedegoists.version import __version__

    data = settings.data
    schema = settings.deploy.schema_file
    if Path(data.source).is_dir() and schema is None:
        schema = str(Path(data.source) / SCHEMA_FILE)
    if Path(data.source).is_dir() or settings.deploy.participants:
        where = (
            'file = "data.csv"      # your own file: CSV, Parquet or NPZ\nschema = "schema.toml"'
        )
    else:
        # A data set that everybody can load, for trying out: each silo takes its own part.
        where = f"source = {_quoted(data.source)}"
        if data.folder is not None:
            where += f"\nfolder = {_quoted(data.folder)}"
        if data.options:
            pairs = ", ".join(f"{key} = {_quoted(value)}" for key, value in data.options.items())
            where += f"\noptions = {{ {pairs} }}"
    text = SILO_TOML.format(
        participant=participant,
        name=_quoted(participant),
        data=where,
        seed=data.seed,
        position=position,
    )
    write_bytes(kit / SILO_FILE, text.encode())
    if schema is not None:
        shutil.copyfile(schema, kit / SCHEMA_FILE)
    steps = NEXT_STEPS.format(
        participant=participant,
        host=settings.deploy.host,
        port=settings.deploy.port,
        version=__version__,
    )
    write_bytes(kit / "readme.txt", steps.encode())


def _quoted(value: str | float | bool) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
