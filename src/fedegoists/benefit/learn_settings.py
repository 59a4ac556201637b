"""The settings of learning a benefit graph."""

from pydantic import Field, field_validator, model_validator

from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES, check_estimator
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.federation.gradient_privacy import check_privacy
from fedegoists.federation.validated import Validated


class LearnSettings(Validated):
    """How a benefit graph is learned.

    Attributes
    ----------
    estimator : str
        A name of `fedegoists.benefit.estimator_registry.ESTIMATOR_ENTRIES`.
    start : tuple of float, optional
        The preference vector to start from; uniform if left out.
    local : TrainSettings
        How silos train for ``alignment``, ``transfer`` and ``curves``.
    transfers : bool
        Whether silos judge the models of others, and train with them for a trial, for ``curves``.
        Without it, samples of others are taken to be worth as much as one's own, as far as their
        classes are the same.
    ridge : bool
        Whether the weight decay of `local` is the best for a participant alone, and that of
        coalitions will be chosen as well. Then it is in proportion to one over the samples here,
        too: stronger on parts, weaker in a trial coalition. For ``curves``.
    mingling : bool
        Whether competitors may see models made from each other's gradients, which is what
        ``hypernetwork`` and ``pairs`` do; without it they are refused where there is competition.
    clip : float, optional
        The norm to which a silo shortens every sample's gradient before anything leaves it.
    noise : float
        Gaussian noise that a silo adds, in multiples of the largest effect of one sample. With clip
        and noise a silo also hides its losses.
    """

    estimator: str = "transfer"
    steps: int = Field(
        default=1500, ge=1, description="hypernetwork steps, one batch of every silo each"
    )
    batch_size: int = Field(default=256, ge=1, description="samples of a silo in a step")
    rate: float = Field(
        default=3e-3,
        ge=1e-9,
        le=1,
        description="Adam's learning rate; falls to zero along a cosine",
    )
    concentration: float = Field(
        default=0.1, ge=1e-3, le=100, description="of the Dirichlet distribution of preferences"
    )
    scale: float = Field(
        default=2.0, ge=1e-3, le=1000, description="by which preferences are multiplied as inputs"
    )
    hidden: int = Field(default=100, ge=1, description="width of the hypernetwork's hidden layers")
    layers: int = Field(default=1, ge=1, le=10, description="their number")
    preference_steps: int = Field(
        default=120, ge=1, description="steps of each participant's preference vector"
    )
    preference_rate: float = Field(
        default=0.4,
        ge=1e-9,
        le=10,
        description="their size, as a fraction of the loss; falls to zero",
    )
    prior: float = Field(
        default=0.3, ge=0, le=10, description="pull towards equal preferences, against noise"
    )
    softness: float = Field(
        default=0.1, ge=1e-3, le=10, description="of the choice of a mixture in ``transfer``"
    )
    repeats: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="independent runs: the spread of the estimate is theirs",
    )
    bound: float = Field(
        default=3.0,
        ge=1,
        allow_inf_nan=False,
        description="a silo's gradient, at most, in medians of all silos'",
    )
    noise: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="noise multiplier")
    clip: float | None = None
    start: tuple[float, ...] | None = None
    local: TrainSettings = TrainSettings(steps=300, learning_rate=0.02, total_steps=300)
    transfers: bool = True
    ridge: bool = False
    mingling: bool = False
    seed: int = Field(default=0, ge=0, description="the same seed gives the same estimate")

    @field_validator("estimator")
    @classmethod
    def _known(cls, name: str) -> str:
        return check_estimator(name)

    @model_validator(mode="after")
    def _possible(self) -> "LearnSettings":
        check_privacy(self.clip, self.noise)
        entry = ESTIMATOR_ENTRIES[self.estimator]
        if self.clip is not None and entry.sends == "models":
            raise SettingsError(
                f"estimator {self.estimator!r} sends trained models, which clip and noise do not "
                "protect; use 'hypernetwork'"
            )
        if self.clip is not None and entry.needs_losses:
            raise SettingsError(
                f"estimator {self.estimator!r} needs losses, which a silo with clip and noise "
                "keeps to itself; use 'hypernetwork'"
            )
        return self

    @classmethod
    def numbers(cls) -> list[str]:
        """Return the settings that are single numbers."""
        return [name for name, field in cls.model_fields.items() if field.description is not None]

    @property
    def certain(self) -> bool:
        """Whether there will be enough runs for confidences."""
        halves = ESTIMATOR_ENTRIES[self.estimator].from_halves and self.clip is None
        return self.repeats > 1 or halves
