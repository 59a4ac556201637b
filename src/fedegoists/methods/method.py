"""The interface of all methods: settings, a state that goes in and out, and one round at a time.

A method is server-side code over a federation. It keeps nothing between rounds but its state, so
that a run can be stopped, stored and continued anywhere.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from fedegoists.errors import PartitionError, SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import TrainSettings
from fedegoists.federation.seam import Failure, Federation
from fedegoists.methods.method_registry import METHOD_ENTRIES, Sees

Coalitions = Sequence[Sequence[Participant]]


@dataclass(frozen=True)
class State:
    """The state of a method after some rounds.

    Attributes
    ----------
    round : int
        How many rounds are done.
    tensors : mapping of str to Tensor
        ``parameters`` holds the models to evaluate, one row per participant; initial values are
        in place of personal parameters, which stay in the silos.
    failures : tuple of Failure
        Failures at the start; later ones are in the reports of rounds.
    """

    round: int
    tensors: Mapping[str, Tensor]
    failures: tuple[Failure, ...] = ()

    @property
    def parameters(self) -> Tensor:
        """The personal models, one row per participant."""
        return self.tensors["parameters"]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors with a prefix, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.tensors.items()
            if name.startswith(prefix)
        }

    def after(self, **tensors: Tensor) -> "State":
        """Return the state one round later with some tensors changed."""
        return State(self.round + 1, {**self.tensors, **tensors})


@dataclass(frozen=True)
class RoundReport:
    """The report of a round: losses, failures, and the costs of each participant.

    Attributes
    ----------
    uploaded : mapping of Participant to int
        The numbers that were sent under masks, where there are masks; see `with_traffic`.
    """

    losses: Mapping[Participant, float] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    sample_passes: Mapping[Participant, int] = field(default_factory=dict)
    bytes_sent: Mapping[Participant, int] = field(default_factory=dict)
    bytes_received: Mapping[Participant, int] = field(default_factory=dict)
    uploaded: Mapping[Participant, int] = field(default_factory=dict)

    def __or__(self, other: "RoundReport") -> "RoundReport":
        """Return both reports as one: amounts are added, a failure is reported once."""
        failed = {failure.participant for failure in self.failures}
        added = tuple(f for f in other.failures if f.participant not in failed)
        return RoundReport(
            {**self.losses, **other.losses},
            self.failures + added,
            _added(self.sample_passes, other.sample_passes),
            _added(self.bytes_sent, other.bytes_sent),
            _added(self.bytes_received, other.bytes_received),
        )

    def with_traffic(
        self, names: Iterable[Participant], numbers: int, *, sent: int = 1, received: int = 1
    ) -> "RoundReport":
        """Return a report in which `names` received and, if they answered, sent some vectors.

        Under masks a participant sends a vector for each sum that it has a part in.
        """
        size = 4 * numbers
        names = list(names)
        answered = {
            name: 4 * self.uploaded[name] if name in self.uploaded else sent * size
            for name in names
            if name in self.losses
        }
        return replace(
            self,
            bytes_sent=_added(self.bytes_sent, answered),
            bytes_received=_added(self.bytes_received, dict.fromkeys(names, received * size)),
        )


def _added(
    one: Mapping[Participant, int], other: Mapping[Participant, int]
) -> dict[Participant, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class Method(Protocol):
    """A way to train in coalitions."""

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""

    @property
    def settings(self) -> TrainSettings:
        """How silos train locally."""

    @property
    def personal(self) -> tuple[str, ...]:
        """Prefixes of the parameters that never leave a silo."""

    @property
    def at_home(self) -> tuple[Participant, ...]:
        """Participants whose models stay in their silos as a whole."""

    @property
    def server_sees(self) -> Sees:
        """What the server has to see."""

    def keeping_models_home(self, federation: Federation, coalitions: Coalitions) -> Self:
        """Return the method with models left in their silos where the server need not see them."""

    def check_model(self, federation: Federation) -> None:
        """Refuse a model that the method cannot train, before anything is trained."""

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Return the state before the first round; `initial` has one row per participant."""

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Carry out one round."""


def setting(
    default: Any,
    meaning: str,
    low: float = -math.inf,
    high: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a setting of a method: its default, meaning, and range or choices."""
    return field(
        default=default,
        metadata={"meaning": meaning, "low": low, "high": high, "choices": choices},
    )


KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
"""The kinds of settings, by the type of the default."""


@dataclass(frozen=True)
class MethodSettings(ABC):
    """The settings of all methods; a method adds its own.

    Attributes
    ----------
    settings : TrainSettings
        How silos train locally.
    personal : tuple of str
        Prefixes of the parameters that never leave a silo: each participant has its own.
    at_home : tuple of Participant
        Participants whose models stay in their silos as a whole; set by `keeping_models_home`.
    """

    settings: TrainSettings = field(default_factory=TrainSettings)
    personal: tuple[str, ...] = ()
    at_home: tuple[Participant, ...] = ()

    key: ClassVar[str]
    removed: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Settings of earlier versions, and why they were removed."""

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""
        return self.key

    @property
    def server_sees(self) -> Sees:
        """What the server has to see, with these settings; see `MethodEntry`."""
        entry = METHOD_ENTRIES.get(self.key)
        return "single updates" if entry is None else entry.server_sees

    @property
    def mixes_at_home(self) -> bool:
        """Whether the models of members whose sums are masked stay at home, as a method allows."""
        return False

    def __post_init__(self) -> None:
        for declared in self.declared():
            value: Any = getattr(self, declared.name)
            low, high = _range(declared)
            kind = type(declared.default)
            choices = declared.metadata["choices"]
            if choices:
                if value not in choices:
                    raise SettingsError(
                        f"{self.key}: {declared.name} is {value!r}; choose {' or '.join(choices)}"
                    )
                continue
            # A whole number will do where any number does; to Python, True is one.
            allowed = (int, float) if kind is float else (kind,)
            fits = isinstance(value, allowed) and isinstance(value, bool) == (kind is bool)
            if not fits:
                raise SettingsError(
                    f"{self.key}: {declared.name} is {value!r}; expected {KINDS[kind]}"
                )
            if not low <= value <= high:
                raise SettingsError(
                    f"{self.key}: {declared.name} is {value}; expected {low:g} to {high:g}"
                )

    @classmethod
    def declared(cls) -> list[Field[Any]]:
        """Return the method's own settings, with their metadata."""
        return [declared for declared in fields(cls) if "meaning" in declared.metadata]

    @staticmethod
    def range_of(declared: Field[Any]) -> str:
        """Return the range or choices of a setting in words."""
        if declared.metadata["choices"]:
            return " or ".join(declared.metadata["choices"])
        if isinstance(declared.default, bool):
            return "True or False"
        low, high = _range(declared)
        return f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"

    def check_model(self, federation: Federation) -> None:  # noqa: B027 - most take any
        """Refuse a model that the method cannot train, before anything is trained."""

    def start(
        self,
        federation: Federation,  # noqa: ARG002 - some methods ask silos first
        coalitions: Coalitions,  # noqa: ARG002
        initial: Tensor,
        seed: int,  # noqa: ARG002
    ) -> State:
        """Return the state before the first round."""
        return State(0, {"parameters": initial, **self.beginning(initial)})

    @abstractmethod
    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Carry out one round."""

    def keeping_models_home(self, federation: Federation, coalitions: Coalitions) -> Self:
        """Return the method with models left in their silos wherever the server need not see them.

        These are the models of participants that are alone and, with a method that mixes for each
        receiver or trains a model beside the mean, those of coalitions whose sums are masked. In a
        simulation nothing is hidden.
        """
        home = {
            name
            for group in coalitions
            if (len(group) == 1 or self.mixes_at_home) and federation.masks(group)
            for name in group
        }
        return replace(self, at_home=tuple(sorted(home))) if home else self

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - most need none
        """Return the tensors of the state besides the models."""
        return {}

    def shared_size(self, federation: Federation) -> int:
        """Return the number of parameters that travel with a model."""
        size = federation.schema.size
        return size - int(federation.schema.mask(self.personal).sum()) if self.personal else size


def _range(declared: Field[Any]) -> tuple[float, float]:
    return declared.metadata["low"], declared.metadata["high"]


def parts_of(steps: int, share: float) -> tuple[int, int]:
    """Return the two parts of a round's steps, the first with a share, each of at least one step.

    Examples
    --------
    >>> parts_of(20, 0.5), parts_of(20, 0.0), parts_of(1, 0.5)
    ((10, 10), (1, 19), (1, 1))
    """
    first = min(max(round(share * steps), 1), max(steps - 1, 1))
    return first, max(steps - first, 1)


def in_company(coalitions: Coalitions, participants: Sequence[Participant]) -> list[Participant]:
    """Return, in the federation's order, the participants that are not alone in a coalition.

    A participant that is alone trains locally, whatever the method.
    """
    if Counter(name for group in coalitions for name in group) != Counter(participants):
        raise PartitionError("the coalitions are not a partition of the federation's participants")
    accompanied = {name for group in coalitions if len(group) > 1 for name in group}
    return [name for name in participants if name in accompanied]


def mixing_matrix(
    coalitions: Coalitions,
    participants: Sequence[Participant],
    weights: Mapping[Participant, float],
) -> Tensor:
    """Return the row-stochastic matrix that averages over each coalition.

    Row i holds the weights of all models in i's next model. Only members of i's coalition have a
    share, in proportion to their weights. A member without weight contributes nothing but still
    receives; where no member of a coalition has any, each keeps its own model.

    Examples
    --------
    >>> a, b, c = map(Participant, "abc")
    >>> mixing_matrix([[a, b], [c]], [a, b, c], {a: 1, b: 3, c: 1}).tolist()
    [[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    in_company(coalitions, participants)
    position = {name: k for k, name in enumerate(participants)}
    matrix = torch.zeros(len(participants), len(participants), dtype=torch.float64)
    for group in coalitions:
        rows = torch.tensor([position[name] for name in group])
        shares = torch.tensor([float(weights.get(name, 0.0)) for name in group]).double()
        if shares.sum() > 0:
            matrix[rows[:, None], rows] = shares / shares.sum()
        else:
            matrix[rows, rows] = 1.0
    return matrix.float()
