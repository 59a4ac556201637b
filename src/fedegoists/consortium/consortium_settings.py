"""The settings in a consortium.toml, checked before anything runs.

The command line overrides the file, and the file overrides the defaults. The sections here are the
only declaration of the settings: `fedegoists init` writes their defaults and descriptions.
"""

import os
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from fedegoists.benefit.estimator_registry import CURVES, ESTIMATOR_ENTRIES, check_estimator
from fedegoists.coalitions.formation_options import FormationMethod
from fedegoists.errors import SettingsError
from fedegoists.files import read_text
from fedegoists.learning.model_registry import AUTO, model_named
from fedegoists.learning.own_models import is_own
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.learning.typed_settings import TypedSettings, first_problem

KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
HEADER = re.compile(rf"\s*\[{{1,2}}\s*({KEY}(?:\s*\.\s*{KEY})*)\s*\]{{1,2}}\s*(?:#.*)?")
"""The line of a table's name, which a line inside a list is not."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,79}$"


@dataclass(frozen=True)
class _PathMark:
    """Marks a setting that is a path, relative to the file."""


PathText = Annotated[str, _PathMark()]
OptionalPath = Annotated[str | None, _PathMark()]
Value = str | int | float | bool


class DataSection(TypedSettings):
    """The participants' data."""

    source: PathText
    """A data set (`fedegoists data list`), a folder with one file or one folder of images per
    organisation and a schema.toml, or a function in a file such as data.py:load."""
    options: dict[str, Value] = Field(default={}, examples=[{"participants": 10}])
    """Options of the data set, see `fedegoists data list`; or of your own function."""
    seed: int = Field(default=0, ge=0)
    """Divides samples into training, validation and test."""
    folder: OptionalPath = Field(default=None, examples=["data"])
    """The folder of real data sets; or set FEDEGOISTS_DATA."""


class CompetitionSection(TypedSettings):
    """Competitors, as reported in confidence. Nothing of one ever reaches the other."""

    pairs: tuple[tuple[str, str], ...] = Field(default=(), examples=[[["North", "West"]]])
    """Pairs of names."""
    file: OptionalPath = Field(default=None, examples=["competition.csv"])
    """Instead: a CSV with a,b."""
    published: bool = False
    """Instead: the pairs that the data set comes with."""

    @model_validator(mode="after")
    def _one_source(self) -> "CompetitionSection":
        if (self.file is not None) + bool(self.pairs) + self.published > 1:
            raise ValueError("give only one of pairs, file and published")
        return self


UNLEARNED = ("auto", "everybody", "file")
"""Names that stand for an estimator, or for none."""
ESTIMATORS = ", ".join((*UNLEARNED, *ESTIMATOR_ENTRIES))


class BenefitSection(TypedSettings):
    """The benefit graph: learned from models, losses and gradients; no data leaves a silo."""

    estimator: str = Field(default="auto", json_schema_extra={"choices": ESTIMATORS})
    """The estimator. Curves predicts gains in the units of the metric, and the coalitions
    with the highest expected gains are formed. Auto is curves for networks and linear models
    with formation.method = "best", unless threshold, confidence or clip is set or silos at their
    organisations have images or would not tell what it needs; where single benefits decide,
    hypernetwork for simulated images without competition; and otherwise transfer. The log
    says which, and why. With everybody, nothing is learned, and only competition keeps
    participants apart. Hypernetwork and pairs show all participants models made from the
    gradients of all, see mingling."""
    file: OptionalPath = Field(default=None, examples=["benefit.csv"])
    """For the estimator file: a CSV with source,target,weight and maybe error."""
    threshold: float | None = Field(default=None, ge=0, examples=[0.1])
    """A benefit counts where its weight is above this number."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Without a threshold, a benefit counts where it is above zero with this confidence. Curves
    needs neither: members are in a coalition where their expected gain is positive."""
    repeats: int | None = Field(default=None, ge=2, examples=[5])
    """Independent runs of the estimator, which show how sure a weight is."""
    steps: int | None = Field(default=None, ge=1, examples=[300])
    """Steps of the estimator's training: of the hypernetwork, or of each local model."""
    transfers: bool | None = Field(default=None, examples=[False])
    """For curves: whether silos judge one another's models, competitors' excepted, and train in a
    trial coalition. Without, only scores leave a silo, and others' samples are taken to be like
    one's own, as far as their classes are the same; that is the default for images of more than
    two classes."""
    clip: float | None = Field(default=None, gt=0, examples=[1.0])
    """For hypernetwork: largest norm of a sample's gradient that leaves a silo."""
    noise: float = Field(default=0.0, ge=0)
    """With clip: noise multiplier, for differential privacy."""
    mingling: bool = False
    """For hypernetwork and pairs: whether competitors may see models made from each other's
    gradients. Without it, both are refused where there is competition."""
    seed: int = Field(default=0, ge=0)
    """The estimator's seed."""

    @field_validator("estimator")
    @classmethod
    def _known(cls, name: str) -> str:
        return check_estimator(name, *UNLEARNED)

    @model_validator(mode="after")
    def _file_given(self) -> "BenefitSection":
        if (self.estimator == "file") != (self.file is not None):
            raise ValueError('estimator = "file" and file = "…" go together')
        if self.transfers is not None and self.estimator not in ("auto", CURVES):
            raise ValueError(f"transfers is for curves, not for {self.estimator}: leave it out")
        if self.estimator == CURVES and self.threshold is not None:
            raise ValueError(
                'a threshold is for benefits; estimator = "curves" predicts gains: leave it out'
            )
        return self


class FormationSection(TypedSettings):
    """How the coalitions are formed."""

    method: FormationMethod = "best"
    """The formation method; best has the highest total benefit."""
    time_limit: float | None = Field(default=None, gt=0, examples=[1.0])
    """Seconds for the method best."""
    fewest_members: int = Field(default=1, ge=1)
    """A coalition is one participant alone or has at least this number of members; 3 so that sums
    over members hide single ones."""
    risk: Literal["expected", "worst-decile", "ignore"] | None = Field(
        default=None, examples=["expected"]
    )
    """How standard errors of benefits are used by method best: expected forms the coalitions with
    the highest expected benefit, worst-decile those with the highest in the worst tenth of
    scenarios, ignore takes the weights as they are. By default expected, where benefits have errors
    and neither benefit.threshold nor benefit.confidence is set."""
    confidence: float | None = Field(default=None, ge=0.5, lt=1, examples=[0.9])
    """With errors: the least probability that nobody rides free in a coalition (default: 0.8). With
    curves: the least probability of gaining of each member (default: 0.6)."""
    seed: int = Field(default=0, ge=0)
    """The formation method's seed."""

    @model_validator(mode="after")
    def _enough_members(self) -> "FormationSection":
        if self.fewest_members > 2 and self.method not in ("best", "stable"):
            raise ValueError(
                f'fewest_members = {self.fewest_members} needs method = "best" or "stable"'
            )
        return self


class TrainingSection(TypedSettings):
    """The methods to compare, and how they train."""

    methods: tuple[str, ...] = Field(default=("local", "fedavg+ft", "fedegoists"), min_length=1)
    """`fedegoists methods` lists all; +ft fine-tunes on own data; gains are over local."""
    model: str = AUTO
    """The model: a name, a function in a file such as model.py:build, or auto, which suits the
    data."""
    model_settings: dict[str, Value] = Field(default={}, examples=[{"hidden": 200}])
    """Settings of a model that is chosen by name."""
    seeds: int = Field(default=3, ge=1, le=100)
    """Repetitions with other initial models and batches."""
    steps: int | None = Field(default=None, ge=1, examples=[2000])
    """Training steps; their number suits the data by default."""
    everybody: bool = False
    """In a simulation: also train with all participants in one coalition, competitors included, to
    compare. Nobody receives these models. Needs local among the methods."""
    contributions: bool = False
    """In a simulation: measure what every member gives to the others of its coalition, by training
    without it, and write a ledger for sharing costs. It takes as many more trainings of one method
    as the largest coalition has members, and one more."""
    start: OptionalPath = Field(default=None, examples=["runs/last-year"])
    """The folder of an earlier run whose models coalitions start from; local starts afresh."""
    epochs: float | None = Field(default=None, gt=0, examples=[20])
    """Instead of steps: passes over the training data of the participant in the middle."""
    round_steps: int | None = Field(default=None, ge=1, examples=[20])
    """Steps in a round, between two exchanges."""
    optimiser: Literal["sgd", "adam", "adamw"] | None = Field(default=None, examples=["adamw"])
    """The optimiser; its state starts anew in every round."""
    learning_rate: Literal["auto"] | Annotated[float, Field(gt=0)] | None = Field(
        default=None, examples=["auto"]
    )
    """The learning rate; with auto, silos try several for a few steps each."""
    schedule: Literal["cosine", "constant"] | None = Field(default=None, examples=["constant"])
    """Whether the learning rate falls to zero along a cosine, as it does by default."""
    momentum: float | None = Field(default=None, ge=0, lt=1, examples=[0.9])
    """The momentum; of Adam, its first decay rate."""
    weight_decay: Literal["auto"] | Annotated[float, Field(ge=0)] | None = Field(
        default=None, examples=[0.01]
    )
    """The weight decay; with auto, silos try several at home. In a simulation, linear models do so
    by default."""
    batch_size: int | None = Field(default=None, ge=1, examples=[64])
    """Samples in a step."""
    sam_radius: float = Field(default=0.0, ge=0)
    """The radius of sharpness-aware steps (SAM), such as 0.05; a step then takes two gradients, and
    twice the time."""
    accumulate: int = Field(default=1, ge=1, le=10_000)
    """Steps of this many times batch_size samples, which go through the network in as many passes:
    large batches in little memory."""
    precision: Literal["float32", "bf16"] = "float32"
    """Numbers in training steps; bf16 is faster and less exact. Evaluations have 32 bits."""
    class_weights: Literal["balanced"] | tuple[float, ...] | None = Field(
        default=None, examples=["balanced"]
    )
    """Weights of classes in the loss; balanced makes every class of a silo count alike."""
    early_stopping: int | None = Field(default=None, ge=1, examples=[5])
    """Stop early: evaluations (20 in a training) without a better model for anybody."""
    choose_by: ChooseBy = "metric"
    """What of its validation data decides which model a participant keeps: metric or loss."""
    execution: Literal["auto", "looped", "stacked"] = "auto"
    """In a simulation: one silo after the other, or all at once; auto takes the faster one."""
    personal: tuple[str, ...] | None = Field(default=None, examples=[["output."]])
    """Prefixes of parameters that never leave a silo."""
    device: str = "cpu"
    """The device: cpu, cuda or cuda:1."""
    settings: dict[str, dict[str, Value]] = Field(default={}, examples=[{"fedprox": {"mu": 0.1}}])
    """Settings of methods."""
    guard: bool | None = Field(default=None, examples=[False])
    """Protects coalitions from one bad member; by default only where silos are deployed."""
    norm_bound: float = Field(default=3.0, ge=1)
    """With guard: longest update, as a multiple of the coalition's median."""
    audit: float = Field(default=0.2, ge=0, le=1)
    """With guard: additional rounds in which members are audited, as a fraction of all."""
    rule: Literal["mean", "trimmed", "median"] = "mean"
    """With guard: how models become one where the server sees them."""

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        return name if name == AUTO or is_own(name) else model_named(name).name

    @model_validator(mode="after")
    def _fitting(self) -> "TrainingSection":
        if self.model_settings and is_own(self.model):
            raise ValueError("model_settings are for a model that is chosen by name")
        if self.model_settings and self.model != AUTO:
            model_named(self.model).set_to(self.model_settings)
        if self.everybody and "local" not in self.methods:
            raise ValueError('everybody is compared with training alone: add "local" to methods')
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give only one of steps and epochs")
        return self

    @property
    def changes(self) -> dict[str, object]:
        """The settings of local training that are set here."""
        names = {"optimiser", "schedule", "momentum", "batch_size", "class_weights"}
        given = self.model_dump(include=names, exclude_none=True)
        if self.accumulate > 1:
            given["accumulate"] = self.accumulate
        if self.precision != "float32":
            given["precision"] = self.precision
        if self.sam_radius:
            given["sam_radius"] = self.sam_radius
        for name in ("learning_rate", "weight_decay"):
            if isinstance(getattr(self, name), float):
                given[name] = getattr(self, name)
        if self.round_steps is not None:
            given["steps"] = self.round_steps
        return given


class OutputSection(TypedSettings):
    """Where results are written."""

    folder: PathText = "runs"
    """The folder of all runs."""
    thresholds: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.5,)
    """In a binary task: probabilities from which on a case counts as positive. The report shows
    sensitivity and specificity at each."""


class DeploySection(TypedSettings):
    """Only for silos at their organisations, see `fedegoists deploy init`."""

    host: str = "localhost"
    """The coordinator's name in the network."""
    port: int = Field(default=8002, ge=1, le=65535)
    """The one port that must be open."""
    participants: tuple[str, ...] = Field(default=(), examples=[["North", "South"]])
    """The organisations, where their data is not here."""
    schema_file: OptionalPath = Field(default=None, examples=["schema.toml"])
    """The schema.toml that all files follow; goes into every kit."""
    privacy: Literal["strict", "standard", "none"] = "standard"
    """The protection that `deploy init` writes into each silo.toml, with what each level allows;
    every silo decides for itself."""
    secure_sums: Literal["auto", "off"] = "auto"
    """Whether the models of coalitions of three members or more are hidden from the coordinator by
    masked sums: auto, wherever the method needs only sums; off, nowhere. Silos that do not consent
    to show single updates refuse to train without masks."""
    days: int = Field(default=365, ge=1, le=3650)
    """How long certificates are valid."""
    deadline: float = Field(default=600.0, gt=0)
    """Seconds a silo has for an answer."""
    wait: float = Field(default=60.0, ge=0)
    """Seconds to wait for silos at the start."""


class ConsortiumSettings(TypedSettings):
    """All settings of a consortium."""

    name: str = Field(default="consortium", pattern=NAME)
    """The name of its runs."""
    data: DataSection
    competition: CompetitionSection = CompetitionSection()
    benefit: BenefitSection = BenefitSection()
    formation: FormationSection = FormationSection()
    training: TrainingSection = TrainingSection()
    output: OutputSection = OutputSection()
    deploy: DeploySection = DeploySection()


def read_settings(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> ConsortiumSettings:
    """Read a consortium.toml; `changes` like ``training.seeds=5`` override it.

    Paths in the file are relative to its folder.

    Raises
    ------
    SettingsError
        With file, line, key and what is allowed.
    """
    path = Path(path)
    text = read_text(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not a TOML file ({error})") from None
    changed = [_changed(content, change) for change in changes]
    try:
        settings = ConsortiumSettings.model_validate(content)
    except ValidationError as error:
        problem = first_problem(error, ConsortiumSettings)
        where = _place(problem.keys, changed, path, text)
        raise SettingsError(f"{where}: {problem.sentence}") from None
    found = with_paths(settings, lambda own: str((path.parent / own).resolve()))
    if is_own(found.training.model):  # its file is beside this one
        own = str((path.parent / found.training.model).resolve())
        training = found.training.model_copy(update={"model": own})
        found = found.model_copy(update={"training": training})
    if Path(found.data.source).is_dir() or is_own(found.data.source):
        return found
    data = found.data.model_copy(update={"source": settings.data.source})  # a data set's name
    return found.model_copy(update={"data": data})


def with_paths(settings: ConsortiumSettings, change: Callable[[str], str]) -> ConsortiumSettings:
    """Return settings with every path changed."""
    sections = {}
    for name, section in settings:
        if isinstance(section, TypedSettings):
            paths = {
                key: change(value)
                for key, value in section
                if value is not None and _PathMark() in type(section).model_fields[key].metadata
            }
            sections[name] = section.model_copy(update=paths)
    return settings.model_copy(update=sections)


def checked_name(name: str) -> str:
    """Return a run's name if it can be the name of a folder."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(
            f"--name {name!r}: a run's name has up to 80 letters, digits, spaces and . _ -, "
            "and begins with a letter or a digit"
        )
    return name


def _changed(content: dict[str, object], change: str) -> tuple[str, ...]:
    """Put one change into the content of the file; return its keys."""
    target, equals, value = change.partition("=")
    keys = tuple(part.strip() for part in target.split("."))
    if not equals or not all(keys):
        raise SettingsError(f"--set {change!r}: expected KEY=VALUE, such as training.seeds=5")
    table = content
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"--set {change!r}: {key} is not a table")
        table = inner
    try:
        table[keys[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[keys[-1]] = value.strip()  # words need no quotes on a command line
    return keys


def _place(keys: tuple[str, ...], changed: Sequence[tuple[str, ...]], path: Path, text: str) -> str:
    """Return where a key was set: on the command line, or on a line of the file."""
    blamed = [one for one in changed if all(a == b for a, b in zip(one, keys, strict=False))]
    if keys and blamed:
        return f"--set {'.'.join(blamed[-1])}"
    line = _line_of(keys, text)
    return f"{path}, line {line}" if line else str(path)


def _line_of(keys: Sequence[str], text: str) -> int | None:
    """Return the line of a key, or else of its table."""
    table: tuple[str, ...] = ()
    best: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = HEADER.fullmatch(line)
        if header:
            table = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            if table == tuple(keys[: len(table)]):
                best = number
            continue
        assigned = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
        if assigned:
            own = (*table, *(part.strip("\"'") for part in assigned[1].split(".")))
            if own == tuple(keys[: len(own)]):
                best = number
    return best
