"""Kits of a consortium: certificates by FLARE, and a ``silo.toml`` and next steps for silos."""

import shutil
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.toml_text import toml_value
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.kits import Deployment, make_kits
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.files import write_bytes
from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.own import SCHEMA_FILE
from fedegoists.version import __version__

SILO_TOML = """\
# Limits of {participant}. This file stays on your machine; only you can read and change it.
participant = {name}

[data]
{where}
seed = {seed}            # the same in the whole consortium
position = {position}        # number of this organisation in the consortium
# device = "cpu"      # or cuda

[limits]
# Allowed operations; all others are refused and logged in silo.log.
operations = ["train", "loss_and_gradient", "evaluate", "describe", "keep"]
# Limit per day (UTC) of answers that depend on training samples: each trained model, each gradient
# and each loss on a part of the data counts. A method with 20 rounds and 5 repetitions needs 100.
# rounds_per_day = 100000
# Limit per day of evaluations on all validation or test data; a run does both for every repetition
# in every evaluated round of every method.
# evaluations_per_day = 100000
fewest_samples = 5        # smallest number of samples behind an answer, or half of it
# models = ["mlp"]        # allowed networks

[privacy]
# Protection of all answers; see the page "What each party must trust".
# gradient_clip = 1.0     # largest gradient norm of a sample; hides losses too. It does not cover
#                           trained models: set update_clip for those
# gradient_noise = 1.0    # noise on gradients, in multiples of a sample's largest part
# update_clip = 10.0      # largest norm of the change of a trained model
# update_noise = 0.01     # noise on this change, in multiples of update_clip
"""

OWN_FILE = '''\
file = "data.csv"      # your own file: CSV, Parquet or NPZ
schema = "schema.toml"'''

NEXT_STEPS = """\
Kit of the silo {participant!r}.

1. Keep startup/client.key secret: with this folder, others can act in your name.
2. pip install 'fedegoists[train,flare]'   (the version of the coordinator, see below)
3. Edit silo.toml: the location of your data, your limits, and your privacy settings.
4. Make sure that this machine can connect to {deploy.host}:{deploy.port} (outgoing TCP only).
5. fedegoists deploy start silo .
   It runs in the foreground, reconnects by itself, and logs every request in silo.log.
6. After a run, to export your whole model, personal parameters included: fedegoists deploy model .

Made with fedegoists {version}.
"""


def make_deployment(settings: ConsortiumSettings, folder: Path) -> Deployment:
    """Write kits for the coordinator and all silos; existing files, like certificates, are kept.

    Raises
    ------
    SettingsError
        If the participants are not known, or fewer than two.
    """
    section, data = settings.deploy, settings.data
    participants = section.participants
    if not participants:
        own = load(data.source, data_dir=data.folder, seed=data.seed, **data.options)
        participants = own.participants
    if len(participants) < 2:
        raise SettingsError("a consortium needs at least two participants: set deploy.participants")
    folder.mkdir(parents=True, exist_ok=True)
    server = section.model_dump(include={"host", "port", "days"})
    deployment = make_kits(folder, participants, name=settings.name, **server)
    for position, (participant, site) in enumerate(deployment.sites.items()):
        kit = folder / "silos" / site
        if not (kit / SILO_FILE).exists():
            _write_silo(settings, kit, participant, position)
    return deployment


def _write_silo(settings: ConsortiumSettings, kit: Path, participant: str, position: int) -> None:
    data = settings.data
    schema = settings.deploy.schema_file
    if Path(data.source).is_dir() and schema is None:
        schema = str(Path(data.source) / SCHEMA_FILE)
    if Path(data.source).is_dir() or settings.deploy.participants:
        where = OWN_FILE
    else:
        # A data set that all silos can load, for trying out: each takes its own part.
        where = f"source = {toml_value(data.source)}"
        if data.folder is not None:
            where += f"\nfolder = {toml_value(data.folder)}"
        if data.options:
            pairs = ", ".join(f"{key} = {toml_value(value)}" for key, value in data.options.items())
            where += f"\noptions = {{ {pairs} }}"
    own = {"participant": participant, "name": toml_value(participant), "position": position}
    text = SILO_TOML.format(where=where, seed=data.seed, **own)
    write_bytes(kit / SILO_FILE, text.encode())
    if schema is not None:
        shutil.copyfile(schema, kit / SCHEMA_FILE)
    steps = {"participant": participant, "deploy": settings.deploy, "version": __version__}
    write_bytes(kit / "readme.txt", NEXT_STEPS.format(**steps).encode())
