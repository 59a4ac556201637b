"""Contributions in every round: a federation that watches means being made.

In each round the model before it, the members' models after training, and their weights are known.
For a subset S of the members the model that S alone would have made is the mean of their models
with weights that sum to one again. Its value to a receiver is the decrease of the receiver's
validation loss in this round, and a member's contribution is its Shapley value. Rounds are
accounted for one by one, as in multi-round reconstruction (Song, Tong and Wei, "Profit Allocation
for Federated Learning", IEEE Big Data 2019) and GTG-Shapley (Liu, Chen, Yu, Yang and Ni, ACM TIST
2022): updates of many rounds that are summed extrapolate far beyond any model that was trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.mixing import Mixed, Sum, bounds_of
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import ReplyT
from fedegoists.federation.requests import Evaluate, Request, Train
from fedegoists.federation.seam import Failure, StatefulFederation, sorted_out
from fedegoists.methods.method import Method
from fedegoists.methods.shapley_values import Matrix, Subset, shapley_values

ACCOUNTED = ("fedavg", "fedprox", "feddisco")
"""Methods whose next model is the weighted mean of the members' models, and nothing else."""


@dataclass(frozen=True)
class RoundContributions:
    """The contributions in one round of one coalition.

    Attributes
    ----------
    members : tuple of Participant
        The members, in the order of rows and columns.
    given : Matrix
        ``given[j, i]``: the part of the decrease of i's validation loss that is due to j's update;
        on the diagonal, what a member's own update gives itself. NaN in the columns of receivers
        that are left out; zero in the rows of members that did not answer.
    left_out : tuple of Failure
        Receivers whose evaluation failed in this round, so that nothing is known of what they
        received.
    """

    members: tuple[Participant, ...]
    given: Matrix
    left_out: tuple[Failure, ...] = ()


class RecordedSilos:
    """A federation that records the contributions to each mean that its members receive.

    Parameters
    ----------
    federation : StatefulFederation
        Simulated silos. Deployed ones are refused: masked sums do not show single updates, and
        receivers would see models made of single members' updates.
    method : Method
        The method that will train, see `check_accounted`.
    seed : int
        Draws the orders of members in coalitions of more than six.

    Raises
    ------
    SettingsError
        If the silos are deployed, or the method's models are not plain means.
    """

    def __init__(self, federation: StatefulFederation, method: Method, seed: int = 0) -> None:
        if federation.deployed:
            raise SettingsError(
                "contributions are accounted for in simulations only: at their organisations, "
                "members' single updates are not known to the server, or not to be shown to others"
            )
        check_accounted(method)
        self._federation, self._seed = federation, seed
        self.participants, self.schema = federation.participants, federation.schema
        self.task, self.device = federation.task, federation.device
        self.deployed = federation.deployed
        self.stream_name, self.samples = federation.stream_name, federation.samples
        self.masks, self.consents = federation.masks, federation.consents
        self.memory, self.restore = federation.memory, federation.restore
        self.personal_model, self.deliver = federation.personal_model, federation.deliver
        self.rounds: list[RoundContributions] = []

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        return self._federation.call(requests, timeout)

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        """Have participants train, and record each member's part in the means they receive."""
        if bounds_of(sums):
            raise SettingsError("contributions are accounted for without bounds: set guard = false")
        mixed = self._federation.mix(requests, sums, timeout)
        self.rounds += [self._accounted(requests, one, mixed) for one in sums]
        return mixed

    def _accounted(
        self, requests: Mapping[Participant, Train], one: Sum, mixed: Mixed
    ) -> RoundContributions:
        members = one.coalition
        rows = dict(zip(mixed.names, mixed.trained["parameters"], strict=True))
        active = [
            k
            for k, name in enumerate(members)
            if name in mixed.losses and one.weights.get(name, 0) > 0
        ]
        given = np.zeros((len(members), len(members)))
        if not active:
            return RoundContributions(members, given)
        models = torch.stack([rows[members[k]] for k in active]).double()
        weights = torch.tensor([one.weights[members[k]] for k in active]).to(models)
        start = requests[members[0]].parameters.to(models)
        failed: dict[Participant, Failure] = {}

        def values(subsets: Sequence[Subset]) -> Matrix:
            chosen = torch.zeros(len(subsets), len(active)).to(models)
            for k, subset in enumerate(subsets):
                chosen[k, sorted(subset)] = 1
            shares = chosen * weights
            means = shares / shares.sum(1, keepdim=True) @ models
            return self._decreases(members, torch.cat([start[None], means]).float(), failed)

        seed = stream_seed(self._seed, len(self.rounds)) % 2**31
        given[active] = shapley_values(len(active), values, seed=seed)
        # A receiver that failed in any call of the round has no values to compare with one another.
        given[:, [name in failed for name in members]] = np.nan
        return RoundContributions(members, given, tuple(failed.values()))

    def _decreases(
        self,
        members: Sequence[Participant],
        models: torch.Tensor,
        failed: dict[Participant, Failure],
    ) -> Matrix:
        """Return the decrease of validation losses from the first model to each other one.

        Receivers that fail are added to `failed`. Their columns are zero, so that the others'
        values are worked out as usual; the caller takes them out.
        """
        request = Evaluate(parameters=models, split="validation")
        replies, failures = sorted_out(self._federation.call(dict.fromkeys(members, request)))
        for one in failures:
            failed.setdefault(one.participant, one)
        unknown = [0.0] * len(models)
        losses = np.array(
            [replies[name].losses if name in replies else unknown for name in members]
        )
        return np.asarray((losses[:, :1] - losses[:, 1:]).T, dtype=np.float64)


def check_accounted(method: Method) -> None:
    """Refuse a method whose models are not means of the members' models.

    Raises
    ------
    SettingsError
        With the methods that can be accounted for.
    """
    if method.name not in ACCOUNTED or method.personal:
        raise SettingsError(
            f"the contributions of {method.name} cannot be accounted for: its models are not plain "
            f"means of the members' whole models; choose {' or '.join(ACCOUNTED)}, without personal"
        )
