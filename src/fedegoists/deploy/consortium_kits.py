"""Kits of a consortium: the coordinator's, and invitations with ``silo.toml`` and next steps."""

import functools
import textwrap
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.exposure import needs_single_updates
from fedegoists.consortium.toml_text import toml_value
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.kits import Deployment, make_kits
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.own import SCHEMA_FILE, read_schema
from fedegoists.learning.own_models import is_own, own_entry, travelling_name
from fedegoists.learning.pretrained_weights import SUFFIX
from fedegoists.version import __version__

SILO_TOML = """\
# Limits of {participant}. This file stays on your machine; only you can read and change it.
participant = {name}

[data]
{where}
seed = {seed}            # the same in the whole consortium
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
# Whether trained models and gradients of this silo alone may leave, protected as [privacy] says.
# With true, a coordinator may ask for them at any time. With false, only sums over members of a
# coalition leave, and a run that needs more is refused before it starts.
{single_updates}
fewest_members = 3        # smallest number of members in a sum
largest_weight = 0.9      # largest fraction of one member in a sum
# personal = ["output."]  # layers that never leave, not even in a sum; other requests are refused
fewest_samples = 5        # smallest number of samples behind an answer, or half of it
# models = ["mlp"]        # allowed networks

[privacy]
# How all answers are protected. Choose one; nothing starts without a choice.
# "strict":   differential privacy with epsilon = 3 for every sample over all answers ever given.
#             Whether a single sample was in your data stays nearly unknown. Needs thousands of
#             samples to be useful, and few runs.
# "standard": the same with epsilon = 30: rows cannot be rebuilt, also not by a coordinator that
#             makes its own models and seeds. Whether a sample that the coordinator knows
#             was in your data may be found out.
# "none":     no noise. A dishonest coordinator can rebuild your rows from gradients, models
#             and losses. For data that is not confidential, or a coordinator that you trust fully.
# When the budget is spent, answers are refused: fedegoists deploy privacy KIT shows what is left.
level = {privacy}
# Settings of the level that you can change; see the page "Files" of the documentation.
# epsilon = 30.0          # the budget of a sample, at delta = 1e-5
# train_clip = 1.0        # largest gradient norm of a sample in training
# train_noise = 1.0       # noise in every step of training, in multiples of a sample's largest part
# gradient_clip = 1.0     # largest gradient norm of a sample; hides losses too
# gradient_noise = 2.0    # noise on gradients
# loss_bound = 2.0        # in evaluations, larger losses of a sample count as this
# evaluation_noise = 6.0  # noise on losses and scores
# count_noise = 3.0       # noise on label counts
# update_clip = 10.0      # largest norm of the change of a trained model
# update_noise = 0.01     # noise on this change, in multiples of update_clip
"""

OWN_FILE = '''\
file = "data.csv"      # your own file: CSV, Parquet, NPZ or Excel
schema = "schema.toml"'''
OWN_FOLDER = '''\
file = "data"          # your own folder, as schema.toml describes it
schema = "schema.toml"'''
OWN_FUNCTION = """\
source = {source}  # read it, and approve it: fedegoists deploy approve . {file}
# folder = "data"      # the folder of your data, which is given to the function"""

NEXT_STEPS = """\
Kit of the silo {participant!r}.

1. Keep startup/client.key secret. It was made on this machine and is nowhere else: with it, others
   can act in your name.
2. Send the request (the .csr file here) to the coordinator, and read the fingerprint of your key to
   it over another channel, such as the telephone. It sends a certificate back:
   fedegoists deploy install CERTIFICATE .
3. Edit silo.toml: the location of your data, your limits, and your privacy settings.
   If there are model.py or weights in this kit, look at them and approve them: the silo refuses to
   use them otherwise. fedegoists deploy approve . model.py
4. Make sure that this machine can connect to {deploy.host}:{deploy.port} (outgoing TCP only).
5. fedegoists deploy start silo .
   It runs in the foreground, reconnects by itself, and logs every request in silo.log.
6. After a run, to export your whole model, personal parameters included: fedegoists deploy model .
7. Before the certificate expires: fedegoists deploy renew .

Made with fedegoists {version}. All machines need the same version.
"""


def make_deployment(settings: ConsortiumSettings, folder: Path) -> Deployment:
    """Write the coordinator's kit and silos' invitations; existing ones are kept.

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
    return make_kits(
        folder,
        participants,
        name=settings.name,
        silo_files=functools.partial(_silo_files, settings),
        **server,
    )


def _single_updates(settings: ConsortiumSettings) -> str:
    """Return the setting that a consortium needs of its silos, and why."""
    reasons = needs_single_updates(settings)
    why = f"needs it: {'; '.join(reasons)}." if reasons else "needs no single updates."
    comment = textwrap.wrap(
        f"This consortium {why}", 100, initial_indent="# ", subsequent_indent="# "
    )
    return "\n".join([*comment, f"single_updates = {toml_value(bool(reasons))}"])


def _silo_files(settings: ConsortiumSettings, participant: str) -> dict[str, bytes]:
    """Return the files of a silo's kit that depend on the consortium."""
    data = settings.data
    schema = settings.deploy.schema_file
    if Path(data.source).is_dir() and schema is None:
        schema = str(Path(data.source) / SCHEMA_FILE)
    files = {}
    if is_own(data.source):
        path = own_entry(data.source).path
        files[path.name] = path.read_bytes()  # its operator reads and approves it
        name = toml_value(travelling_name(data.source))
        where = OWN_FUNCTION.format(source=name, file=path.name)
    elif Path(data.source).is_dir() or settings.deploy.participants:
        agreed = None if schema is None else read_schema(schema)
        folders = isinstance(agreed, ImageSchema) or (agreed and agreed.sequence)
        where = OWN_FOLDER if folders else OWN_FILE
    else:
        # A data set that all silos can load, for trying out: each takes its own part.
        where = f"source = {toml_value(data.source)}"
        if data.folder is not None:
            where += f"\nfolder = {toml_value(data.folder)}"
        if data.options:
            pairs = ", ".join(f"{key} = {toml_value(value)}" for key, value in data.options.items())
            where += f"\noptions = {{ {pairs} }}"
    own = {
        "participant": participant,
        "name": toml_value(participant),
        "privacy": toml_value(settings.deploy.privacy),
        "single_updates": _single_updates(settings),
    }
    text = SILO_TOML.format(where=where, seed=data.seed, **own)
    steps = {"participant": participant, "deploy": settings.deploy, "version": __version__}
    files |= {SILO_FILE: text.encode(), "readme.txt": NEXT_STEPS.format(**steps).encode()}
    if schema is not None:
        files[SCHEMA_FILE] = Path(schema).read_bytes()
    files |= {path.name: path.read_bytes() for path in model_files(settings)}
    return files


def model_files(settings: ConsortiumSettings) -> tuple[Path, ...]:
    """Return the files of an own model, which silos' operators look at and approve.

    These are its code, and all safetensors files beside it that the code names.
    """
    if not is_own(settings.training.model):
        return ()
    path = own_entry(settings.training.model).path
    code = path.read_text(encoding="utf-8", errors="replace")
    # Which one the code loads is known only when it has seen the data, which need not be here.
    beside = sorted(path.parent.glob(f"*{SUFFIX}"))
    return (path, *(one for one in beside if one.name in code))
