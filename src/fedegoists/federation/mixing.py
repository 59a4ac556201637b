"""Weighted sums of the models that silos train: the only thing most methods need from a round.

A method says which sums it wants (`Sum`), and `Federation.mix` has silos train and returns them
(`Mixed`). A simulation has all models at hand and multiplies (`mix_plain`). A deployed federation
adds masked models, so that no party sees a single one: each silo masks its `contribution`, and the
`mixture` is made from the sum of all contributions.

What a method does with a mixture is a `MixtureStep`. It is carried out by the server where the
server may see the mixture, and otherwise by the silo that receives it.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Train
from fedegoists.federation.seam import Failure, sorted_out
from fedegoists.federation.validated import Validated
from fedegoists.learning.parameters import ParameterSchema

Rule = Literal["mean"]
"""How models become one."""

VectorName = Literal["parameters", "momentum"]
"""What a silo has after training, and what is summed."""

TINY = 1e-12
"""Added to totals that could be zero."""


class MixtureStep(Validated):
    """What becomes of a mixture at its receiver.

    Attributes
    ----------
    own : tuple of str
        Prefixes of the parameters that are not mixed: the receiver's own values stay.
    outer : float
        Momentum of the mixture over rounds, after Nesterov: with β = `outer` and δ the change of a
        round, v ← β v + δ, and the model moves by β v further.
    """

    own: tuple[str, ...] = ()
    outer: float = Field(default=0.0, ge=0, lt=1)

    def taken(
        self,
        schema: ParameterSchema,
        start: Tensor,
        trained: Tensor,
        mean: Tensor,
        velocity: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the receiver's next model and velocity.

        Parameters
        ----------
        start, trained, mean, velocity : Tensor
            The receiver's model before and after training, the mixture, and the velocity so far;
            one vector each, or several as rows.

        Examples
        --------
        >>> schema = ParameterSchema(("body", "output.bias"), ((1,), (1,)))
        >>> step = MixtureStep(own=("output.bias",), outer=0.5)
        >>> start, trained, mean = torch.zeros(2), torch.ones(2), torch.full((2,), 3.0)
        >>> step.taken(schema, start, trained, mean, torch.zeros(2))
        (tensor([4.5000, 1.5000]), tensor([3., 1.]))
        """
        mixed = self.with_own(schema, trained, mean)
        if not self.outer or velocity is None:
            return mixed, velocity
        velocity = self.outer * velocity + (mixed - start)
        return mixed + self.outer * velocity, velocity

    def with_own(self, schema: ParameterSchema, trained: Tensor, mean: Tensor) -> Tensor:
        """Return a mixture with the receiver's own values where parameters are not mixed."""
        known = tuple(prefix for prefix in self.own if _known(schema, prefix))
        if not known:
            return mean
        return torch.where(schema.mask(known).to(mean.device), trained, mean)


@dataclass(frozen=True)
class Sum:
    """A weighted mean of members' models after training.

    Attributes
    ----------
    coalition : tuple of Participant
        The coalition whose members sum; all weights and receivers are in it.
    weights : mapping of Participant to float
        The contributors, with weights that need not sum to one: they are divided by the total over
        the contributors that answer.
    receivers : tuple of Participant
        The members that continue with the mean.
    shown : bool
        Whether the server may see the mean. If not, and if the federation masks sums, only the
        receiver can read it, and takes the `step` at home.
    step : MixtureStep
        What a receiver does with a mean that is not shown.
    bound : float, optional
        Longest update, parameters after training minus before, of a contributor; longer ones are
        shortened, by the silo where sums are masked and by the server elsewhere. With infinity the
        norms are only measured; without a bound they are not.
    rule : str
        How models become one.
    """

    coalition: tuple[Participant, ...]
    weights: Mapping[Participant, float]
    receivers: tuple[Participant, ...]
    shown: bool = True
    step: MixtureStep = field(default_factory=MixtureStep)
    bound: float | None = None
    rule: Rule = "mean"

    def __post_init__(self) -> None:
        members = set(self.coalition)
        if not (members >= self.weights.keys() and members.issuperset(self.receivers)):
            raise SettingsError("a sum over participants outside its coalition")
        if not all(0 <= weight < math.inf for weight in self.weights.values()):
            raise SettingsError("a sum with weights that are negative or not finite")


@dataclass(frozen=True)
class Mixed:
    """The result of `Federation.mix`: the members' means, and what they tell besides.

    Attributes
    ----------
    names : tuple of Participant
        The participants that were asked, in the order of all rows.
    trained : mapping of str to Tensor
        ``parameters`` and, where requests have one, ``momentum`` after training: one row per
        participant. Rows of participants that failed, or whose models are hidden, are as before
        (momentum: zero).
    means : mapping of str to Tensor
        The same after mixing: a row is the receiver's mean. Rows of participants that receive
        none, or one that is not shown, are as in `trained`.
    received : frozenset of Participant
        Receivers of a mean that at least one contributor has a part in.
    at_home : frozenset of Participant
        The part of `received` that has its mean at home and has taken the step there.
    losses, sample_passes, norms : dict
        By participant, of those that answered. Norms are of updates before they are shortened.
    failures : tuple of Failure
        Participants without a usable answer.
    uploaded : dict
        How many numbers participants sent, where sums are masked: a vector for each of their sums.
    """

    names: tuple[Participant, ...]
    trained: Mapping[VectorName, Tensor]
    means: Mapping[VectorName, Tensor]
    received: frozenset[Participant]
    losses: Mapping[Participant, float]
    sample_passes: Mapping[Participant, int]
    failures: tuple[Failure, ...] = ()
    norms: Mapping[Participant, float] = field(default_factory=dict)
    at_home: frozenset[Participant] = frozenset()
    uploaded: Mapping[Participant, int] = field(default_factory=dict)


def in_order(requests: Iterable[Participant], *parts: Mixed) -> Mixed:
    """Return the parts of one mixing, of distinct participants, as one in the order of requests."""
    names = tuple(requests)
    if len(parts) == 1 and parts[0].names == names:
        return parts[0]
    rows = {name: (part, k) for part in parts for k, name in enumerate(part.names)}

    def together(which: Literal["trained", "means"]) -> dict[VectorName, Tensor]:
        vectors = getattr(parts[0], which)
        return {
            vector: torch.stack(
                [getattr(rows[name][0], which)[vector][rows[name][1]] for name in names]
            )
            for vector in vectors
        }

    return Mixed(
        names,
        together("trained"),
        together("means"),
        frozenset().union(*(part.received for part in parts)),
        {name: loss for part in parts for name, loss in part.losses.items()},
        {name: passes for part in parts for name, passes in part.sample_passes.items()},
        tuple(failure for part in parts for failure in part.failures),
        {name: norm for part in parts for name, norm in part.norms.items()},
        frozenset().union(*(part.at_home for part in parts)),
        {name: numbers for part in parts for name, numbers in part.uploaded.items()},
    )


class CanTrain(Protocol):
    """The part of a federation that `mix_plain` needs."""

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model."""

    def call(
        self, requests: Mapping[Participant, Train], timeout: float | None = None
    ) -> dict[Participant, Trained | Failure]:
        """Send some participants a request each."""


def mix_plain(
    federation: CanTrain,
    requests: Mapping[Participant, Train],
    sums: Sequence[Sum],
    timeout: float | None = None,
) -> Mixed:
    """Have silos train, and mix their models in the clear; see `Federation.mix`."""
    check_sums(requests, sums)
    replies, failures = sorted_out(federation.call(requests, timeout))
    names = tuple(requests)
    trained = _trained(federation.schema, requests, replies)
    bounds = bounds_of(sums)
    contributed, norms = dict(trained), dict[Participant, float]()
    if bounds:
        starts = torch.stack([request.parameters for request in requests.values()])
        most = torch.tensor([bounds.get(name, math.inf) for name in names])
        contributed["parameters"], lengths = shortened(starts, trained["parameters"], most)
        norms = {
            name: length
            for name, length in zip(names, lengths.tolist(), strict=True)
            if name in replies and name in bounds
        }
    return Mixed(
        names,
        trained,
        means_of(names, replies, sums, contributed),
        receivers(sums, replies),
        {name: reply.loss for name, reply in replies.items()},
        {name: reply.sample_passes for name, reply in replies.items()},
        failures,
        norms,
    )


def receivers(sums: Sequence[Sum], answered: Container[Participant]) -> frozenset[Participant]:
    """Return the receivers of means that at least one contributor that answered has a part in."""
    return frozenset(
        name
        for one in sums
        if any(weight > 0 and member in answered for member, weight in one.weights.items())
        for name in one.receivers
    )


def means_of(
    names: Sequence[Participant],
    answered: Container[Participant],
    sums: Sequence[Sum],
    vectors: Mapping[VectorName, Tensor],
) -> dict[VectorName, Tensor]:
    """Return the means of vectors at hand, one row per name; rows that receive none stay."""
    if not sums:
        return dict(vectors)
    weights = np.zeros((len(names), len(names)))
    position = {name: k for k, name in enumerate(names)}
    for one in sums:
        given = {name: weight for name, weight in one.weights.items() if name in answered}
        rows = [position[name] for name in one.receivers]
        columns = [position[name] for name in given]
        weights[np.ix_(rows, columns)] = list(given.values())
    device = vectors["parameters"].device
    totals = weights.sum(1, keepdims=True)
    # Where no contributor answered, a participant keeps its own parameters.
    shares = np.where(totals > 0, weights / np.maximum(totals, TINY), np.eye(len(names)))
    of_vectors = torch.from_numpy(shares).to(device, torch.float32)
    return {name: of_vectors.to(rows) @ rows for name, rows in vectors.items()}


def check_sums(requests: Mapping[Participant, Train], sums: Sequence[Sum]) -> None:
    """Refuse sums over participants that are not asked, and two means for one receiver."""
    seen: set[Participant] = set()
    for one in sums:
        for name in (*one.weights, *one.receivers):
            if name not in requests:
                raise SettingsError(f"a sum with {name!r}, which is not asked to train")
        if seen.intersection(one.receivers):
            raise SettingsError("a participant that receives two means")
        seen.update(one.receivers)


def shortened(starts: Tensor, trained: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return models whose updates are at most as long as bounds, and the lengths before.

    Examples
    --------
    >>> trained = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    >>> shortened(torch.zeros(2, 2), trained, torch.ones(2))
    (tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]]), tensor([5.0000, 0.5000]))
    """
    starts = starts.to(trained)
    updates = trained - starts
    lengths = updates.norm(dim=1)
    factors = (bounds.to(lengths) / lengths.clamp_min(TINY))[:, None]
    # Only updates that are too long are touched: x + (y − x) need not be y.
    return torch.where(factors < 1, starts + factors * updates, trained), lengths


def bounds_of(sums: Sequence[Sum]) -> dict[Participant, float]:
    """Return the longest update of each contributor: the smallest bound of its sums."""
    bounds: dict[Participant, float] = {}
    for one in sums:
        if one.bound is not None:
            for name in one.weights:
                bounds[name] = min(bounds.get(name, math.inf), one.bound)
    return bounds


def _trained(
    schema: ParameterSchema,
    requests: Mapping[Participant, Train],
    replies: Mapping[Participant, Trained],
) -> dict[VectorName, Tensor]:
    """Return parameters and momenta after training, one row per participant."""
    # A model that stays in its silo as a whole is zeros in the reply: its row is as before.
    told = {
        name: reply
        for name, reply in replies.items()
        if (own := requests[name].personal) is None or not own.whole
    }
    first = next((requests[name] for name in told), next(iter(requests.values())))
    prefixes = () if first.personal is None else first.personal.prefixes
    withheld = schema.mask(prefixes) if prefixes else None
    answered = [name in told for name in requests]
    # The starts are needed only where a row, or a part of it, is not replaced.
    models = [reply.parameters for reply in told.values()]
    whole = all(answered) and withheld is None
    starts = models if whole else [request.parameters for request in requests.values()]
    result: dict[VectorName, Tensor] = {
        "parameters": replaced_rows(torch.stack(starts), answered, models, withheld)
    }
    if first.terms is not None and first.terms.momentum is not None:
        zeros = torch.zeros_like(result["parameters"])
        # A silo may keep its momentum to itself.
        momenta = {name: reply.momentum for name, reply in told.items()}
        which = [momenta.get(name) is not None for name in requests]
        given = [momentum for momentum in momenta.values() if momentum is not None]
        result["momentum"] = replaced_rows(zeros, which, given, withheld)
    return result


def replaced_rows(
    rows: Tensor, which: Sequence[bool], others: Sequence[Tensor], withheld: Tensor | None
) -> Tensor:
    """Return rows with some of them replaced, except for the numbers that silos withhold."""
    if not others:
        return rows
    values = torch.stack(list(others)).to(rows)
    if withheld is None and all(which):
        return values
    where = torch.tensor([k for k, yes in enumerate(which) if yes], device=rows.device)
    if withheld is not None:
        values = torch.where(withheld.to(rows.device), rows[where], values)
    return rows.index_copy(0, where, values)


def with_withheld(
    schema: ParameterSchema, request: Train, means: Mapping[VectorName, Tensor]
) -> dict[VectorName, Tensor]:
    """Return means with the values that were sent, and no momentum, where silos withhold theirs."""
    if request.personal is None:
        return dict(means)
    withheld = schema.mask(request.personal.prefixes).to(means["parameters"].device)
    return {
        vector: torch.where(withheld, request.parameters.to(mean), mean)
        if vector == "parameters"
        else mean.masked_fill(withheld, 0.0)
        for vector, mean in means.items()
    }


def _known(schema: ParameterSchema, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in schema.names)


# The same in parts, for silos that mask what they add.


def summed_names(train: Train) -> list[VectorName]:
    """Return the vectors that training leads to, in the order in which they are summed."""
    momentum = train.terms is not None and train.terms.momentum is not None
    return ["parameters", "momentum"] if momentum else ["parameters"]


def contribution(vectors: Mapping[VectorName, Tensor]) -> Tensor:
    """Return what a silo adds to a sum, as one vector, before it is weighted.

    Parameters
    ----------
    vectors : mapping of str to Tensor
        The silo's vectors after training.

    See Also
    --------
    mixture : the mean from a sum of contributions.
    """
    parts = list(vectors.values())
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def mixture(
    schema: ParameterSchema, names: Sequence[VectorName], total: Tensor, shares: float
) -> dict[VectorName, Tensor]:
    """Return the means from a sum of contributions.

    Parameters
    ----------
    total : Tensor
        The sum.
    shares : float
        The sum of the shares of the contributors that are in it.

    Examples
    --------
    >>> schema = ParameterSchema(("w",), ((2,),))
    >>> one = contribution({"parameters": torch.tensor([1.0, 2.0])})
    >>> other = contribution({"parameters": torch.tensor([5.0, 2.0])})
    >>> mixture(schema, ["parameters"], 0.25 * one + 0.75 * other, 1.0)
    {'parameters': tensor([4., 2.])}
    """
    if len(total) != len(names) * schema.size:
        raise SettingsError(f"a sum of {len(total)} numbers for {len(names)} vectors")
    return dict(zip(names, torch.split(total / shares, schema.size), strict=True))
