"""The settings of a silo: its ``silo.toml``, which stays on the organisation's own machine.

They say where the data is, which operations are allowed how often, and how replies are protected.
"""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.approved_code import PLAIN_NAME, approved_digest
from fedegoists.files import read_text
from fedegoists.learning.data import SiloedData, SiloIndices
from fedegoists.learning.datasets import load, load_own
from fedegoists.learning.datasets.loader_files import load_by_function
from fedegoists.learning.own_models import is_own

SILO_FILE = "silo.toml"

Operation = Literal["train", "loss_and_gradient", "evaluate", "describe", "keep"]


class _SiloSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SiloData(_SiloSection):
    """The source of the silo's own samples."""

    file: str | None = Field(
        default=None, description="a CSV, Parquet, NPZ or Excel file, or a folder of images"
    )
    schema_file: str | None = Field(
        default=None, alias="schema", description="the schema.toml agreed in the consortium"
    )
    source: str | None = Field(
        default=None,
        description="or a data set by name, of which this silo takes its own part; or a function "
        "of a file in the kit, such as data.py:load, which its operator has approved",
    )
    folder: str | None = Field(
        default=None, description="where real data sets are kept; given to an own function"
    )
    options: dict[str, str | int | float | bool] = Field(default={}, description="of the data set")
    seed: int = Field(
        default=0, ge=0, description="divides the samples; the same in the whole consortium"
    )
    position: int | None = Field(
        default=None, description="of no effect; kits that were made earlier have it"
    )
    device: str = Field(default="cpu", description="where the silo computes: cpu, cuda or cuda:1")

    @model_validator(mode="after")
    def _one_source(self) -> "SiloData":
        if (self.file is None) == (self.source is None):
            raise ValueError("give either file, with schema, or source")
        if self.file is not None and self.schema_file is None:
            raise ValueError("a file needs the schema.toml that says what is in it")
        own = self.source is not None and is_own(self.source)
        if own and not PLAIN_NAME.fullmatch(self.source or ""):
            raise ValueError("source is no function of a file in this kit, as data.py:load")
        return self


class SiloLimits(_SiloSection):
    """The operations that are allowed, and how often."""

    operations: tuple[Operation, ...] = Field(
        default=get_args(Operation), description="all others are refused"
    )
    rounds_per_day: int | None = Field(
        default=None,
        ge=0,
        description="answers that tell of training samples, in a day (UTC): each trained model, "
        "each gradient, each loss of a part of the data is one",
    )
    evaluations_per_day: int | None = Field(
        default=None,
        ge=0,
        description="models whose loss and score on all validation or test data, or on more than "
        "half of them, is told in a day",
    )
    fewest_samples: int = Field(
        default=5, ge=1, description="an answer is about so many samples at least, or half of them"
    )
    models: tuple[str, ...] | None = Field(
        default=None, description="networks that may be trained; any if left out"
    )
    single_updates: bool = Field(
        default=False,
        description="whether trained models and gradients of this silo alone may leave; otherwise "
        "only sums over members of a coalition",
    )
    personal: tuple[str, ...] = Field(
        default=(),
        description="prefixes of the parameters that never leave, not even in a sum; requests that "
        "do not keep them here are refused",
    )
    fewest_members: int = Field(
        default=3, ge=2, description="a sum is over the updates of so many members at least"
    )
    largest_weight: float = Field(
        default=0.9, gt=0, le=1, description="the largest fraction of one member in a sum"
    )


Level = Literal["strict", "standard", "none"]

LEVELS: dict[Level, dict[str, float]] = {
    "strict": {
        "epsilon": 3.0,
        "train_clip": 1.0,
        "train_noise": 2.0,
        "gradient_clip": 1.0,
        "gradient_noise": 4.0,
        "loss_bound": 2.0,
        "evaluation_noise": 8.0,
        "count_noise": 8.0,
    },
    "standard": {
        "epsilon": 30.0,
        "train_clip": 1.0,
        "train_noise": 1.0,
        "gradient_clip": 1.0,
        "gradient_noise": 2.0,
        "loss_bound": 2.0,
        "evaluation_noise": 6.0,
        "count_noise": 3.0,
    },
    "none": {},
}
"""The settings of each level of protection; a silo.toml may set each of them itself."""


class SiloPrivacy(_SiloSection):
    """The protection of answers by clipping, noise and a budget.

    A level has to be chosen. Each of its settings can be set by itself, too.
    """

    level: Level = Field(
        description="strict, standard or none; what each allows is said in the file that "
        "`fedegoists deploy init` writes"
    )
    epsilon: float | None = Field(
        default=None, gt=0, description="budget: the privacy loss ε of a sample over all answers"
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="at this δ")
    train_clip: float | None = Field(
        default=None, gt=0, description="longest gradient of one sample in training"
    )
    train_noise: float = Field(
        default=0.0, ge=0, description="noise in every step, in multiples of train_clip"
    )
    gradient_clip: float | None = Field(
        default=None, gt=0, description="longest gradient of one sample; hides its loss too"
    )
    gradient_noise: float = Field(
        default=0.0, ge=0, description="noise on gradients, in multiples of what a sample can add"
    )
    loss_bound: float | None = Field(
        default=None, gt=0, description="in evaluations, the largest loss of one sample"
    )
    evaluation_noise: float = Field(
        default=0.0, ge=0, description="noise on losses and scores, in multiples of a sample's part"
    )
    count_noise: float = Field(default=0.0, ge=0, description="noise on counts of labels")
    update_clip: float | None = Field(
        default=None, gt=0, description="longest change of a model that leaves after training"
    )
    update_noise: float = Field(
        default=0.0, ge=0, description="noise on such a change, in multiples of update_clip"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_level(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        if "level" not in given:
            raise ValueError(
                'choose how answers are protected: level = "strict", "standard" or "none"; '
                "`fedegoists deploy init` writes a silo.toml that says what each allows"
            )
        known = LEVELS.get(given["level"], {})  # an unknown level is refused as such
        return {**known, **given}

    @model_validator(mode="after")
    def _measured(self) -> "SiloPrivacy":
        for kind, by, clip, noise in (
            ("train_noise", "train_clip", self.train_clip, self.train_noise),
            ("gradient_noise", "gradient_clip", self.gradient_clip, self.gradient_noise),
            ("evaluation_noise", "loss_bound", self.loss_bound, self.evaluation_noise),
            ("update_noise", "update_clip", self.update_clip, self.update_noise),
        ):
            if noise > 0 and clip is None:
                raise ValueError(f"{kind} is measured by {by}: set that too")
        noises = (self.train_noise, self.gradient_noise, self.evaluation_noise, self.count_noise)
        if self.epsilon is not None and not all(noises):
            raise ValueError(
                "epsilon is a budget for answers with noise: set train_noise, gradient_noise, "
                "evaluation_noise and count_noise too, or choose a level that does"
            )
        return self

    @property
    def noisy(self) -> bool:
        """Whether trained models, or their losses, have noise."""
        return max(self.train_noise, self.evaluation_noise, self.update_noise) > 0


class SiloSettings(_SiloSection):
    """A silo: its participant, data, limits and privacy."""

    participant: str = Field(min_length=1, description="the name in the consortium")
    data: SiloData
    limits: SiloLimits = SiloLimits()
    privacy: SiloPrivacy

    @model_validator(mode="before")
    @classmethod
    def _chosen(cls, given: object) -> object:
        if isinstance(given, dict) and "privacy" not in given:
            return {**given, "privacy": {}}  # which says what is missing
        return given


def read_silo_settings(path: Path) -> SiloSettings:
    """Read a silo.toml; paths in it are relative to its folder."""
    try:
        content = tomllib.loads(read_text(path))
        settings = SiloSettings.model_validate(content)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not a TOML file ({error})") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        message = str(first["msg"]).removeprefix("Value error, ")
        raise SettingsError(f"{path}: {key or 'the file'}: {message}") from None
    data = settings.data
    own = data.source is not None and is_own(data.source)
    found = {
        key: str((path.parent / value).resolve())
        for key, value in (
            ("file", data.file),
            ("schema_file", data.schema_file),
            ("folder", data.folder),
            ("source", data.source if own else None),
        )
        if value is not None
    }
    return settings.model_copy(update={"data": data.model_copy(update=found)})


def load_silo(settings: SiloSettings) -> SiloedData:
    """Return the silo's own samples only.

    Raises
    ------
    SettingsError
        If a function shall load them that the operator has not approved.
    """
    section = settings.data
    if section.file is not None:
        return load_own(
            {settings.participant: section.file},
            section.schema_file,
            seed=section.seed,
        )
    assert section.source is not None  # checked with the settings
    if is_own(section.source):
        loader_digest(settings)  # before anything of it runs
        return load_by_function(
            section.source,
            folder=section.folder,
            organisation=settings.participant,
            seed=section.seed,
            **section.options,
        )
    whole = load(section.source, data_dir=section.folder, seed=section.seed, **section.options)
    if settings.participant not in whole.participants:
        raise SettingsError(
            f"{section.source} has no silo {settings.participant!r}; it has "
            f"{', '.join(whole.participants[:20])}"
        )
    return _only(whole, settings.participant)


def loader_digest(settings: SiloSettings) -> str:
    """Return the hash of the approved file whose function loads the data; empty without one.

    Raises
    ------
    SettingsError
        If the operator has not approved the file as it is.
    """
    source = settings.data.source
    if source is None or not is_own(source):
        return ""
    path = Path(source.rpartition(":")[0])
    return approved_digest(path.parent, path.name)


def _only(data: SiloedData, participant: str) -> SiloedData:
    """Return one silo with its own rows alone."""
    own = data.silo(participant)
    train, validation, test = own.sizes
    rows = np.arange(train + validation + test)
    parts = np.split(rows, [train, train + validation])
    return replace(
        data.restricted_to([participant]),
        samples=data.samples.take(own.all),
        silos=(SiloIndices(participant, *parts),),
    )
