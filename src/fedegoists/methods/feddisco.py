"""FedDisco: average with less weight for silos with unevenly distributed labels.

Ye, Xu, Wang, Xu, Chen and Wang, "FedDisco: Federated Learning with Discrepancy-Aware
Collaboration", ICML 2023, equation 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Describe
from fedegoists.federation.seam import Federation, sorted_out
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import coalition_sums, mix_silos


@dataclass(frozen=True)
class FedDisco(MethodSettings):
    """Weights ∝ ReLU(n_k/N − a·d_k + b), with d_k the share of k in the coalition's discrepancy.

    The discrepancy of a member is the KL divergence of its labels from uniform, and d_k is that of
    k divided by the sum over all members, as in public code: so a and b mean the same with two
    classes and with a hundred, and with two members and with twenty. Where all weights are zero,
    data shares are used. A regression has no labels to count: then d_k = 0 for all.
    """

    a: float = setting(0.5, "how much discrepancy lowers a weight", 0, 1e6)
    b: float = setting(0.1, "what every weight gets in addition", 0, 1e6)

    key: ClassVar[str] = "feddisco"

    def start(
        self,
        federation: Federation,
        coalitions: Coalitions,
        initial: Tensor,
        seed: int,  # noqa: ARG002
    ) -> State:
        """Ask for label counts; who hides them counts as the least balanced of its coalition."""
        names = federation.participants
        replies, failures = sorted_out(federation.call(dict.fromkeys(names, Describe())))
        known = {
            name: divergence_from_uniform(reply.labels)
            for name, reply in replies.items()
            if reply.labels is not None
        }
        worst = {
            name: max((known[one] for one in group if one in known), default=0.0)
            for group in coalitions
            for name in group
        }
        values = [[known.get(name, worst[name])] for name in names]
        tensors = {
            "parameters": initial,
            "discrepancy": torch.tensor(values, device=initial.device),
        }
        return State(0, tensors, failures)

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train as FedAvg does, then average with the weights of equation 7."""
        participants = federation.participants
        values = state.tensors["discrepancy"][:, 0].tolist()
        discrepancy = dict(zip(participants, values, strict=True))
        samples = {name: float(federation.samples(name)) for name in participants}
        weights: dict[Participant, float] = {}
        for group in coalitions:
            weights |= self.weights(group, samples, discrepancy)
        sums = coalition_sums(federation, coalitions, weights)
        mixed = mix_silos(self, federation, state, seed, sums)
        report = mixed.report.with_traffic(
            in_company(coalitions, participants), self.shared_size(federation)
        )
        return state.after(parameters=mixed.rows), report

    def weights(
        self,
        group: Sequence[Participant],
        samples: Mapping[Participant, float],
        discrepancy: Mapping[Participant, float],
    ) -> dict[Participant, float]:
        """Return the weights of a coalition's members, not yet normalised."""
        total = sum(samples[name] for name in group)
        shares = {name: samples[name] / total for name in group}
        # Where all labels are balanced, there is nothing to divide.
        whole = sum(discrepancy[name] for name in group) or 1.0
        raw = {
            name: max(shares[name] - self.a * discrepancy[name] / whole + self.b, 0.0)
            for name in group
        }
        return raw if sum(raw.values()) > 0 else shares


def divergence_from_uniform(counts: Sequence[int]) -> float:
    """Return the Kullback-Leibler divergence of label counts from equal ones.

    Examples
    --------
    >>> divergence_from_uniform([5, 5])
    0.0
    >>> round(divergence_from_uniform([8, 0, 0, 0]), 4)  # log 4
    1.3863
    """
    total = sum(counts)
    if not total:
        return 0.0
    return sum(c / total * math.log(c / total * len(counts)) for c in counts if c)
