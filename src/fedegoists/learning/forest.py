"""Boosted trees of several contributors as one vector of parameters.

Every tree is stored as a complete binary tree of a fixed depth, so that a forest is a vector like
any other model: it can be sent, sealed, kept and delivered. A forest has a slot for each
contributor. The first slot holds one's own trees.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.learning.parameters import ParameterSchema

PARTS = ("feature", "threshold", "leaf", "weight", "intercept")
"""The parameters of a forest, in their order."""
NEAR_ZERO = 1e-35
"""Numbers that are not larger count as zero, as in LightGBM."""
LARGEST = 1e6
"""The largest number that a leaf or a threshold may hold."""


class Forest(nn.Module):
    """Boosted trees of several contributors: outputs are intercept + Σ_j weight_j · trees_j(x).

    Node k of a tree has the children 2k + 1, where x[feature] ≤ threshold, and 2k + 2. The feature
    of a node that does not split is the number of features, which stands for a column of zeros;
    with a threshold of zero, all samples go to the left. A missing value counts as zero.

    Parameters
    ----------
    features, outputs : int
        Columns of a table, and outputs of the task; each output has trees of its own.
    members : int
        Slots for contributors, one's own included.
    trees : int
        The most trees of a contributor, for each output.
    depth : int
        The depth of a tree, which has 2^depth leaves.
    caution, least : float and int
        See `fedegoists.learning.contributor_weights` and `fedegoists.learning.boosting`.
    """

    feature: nn.Parameter
    threshold: nn.Parameter
    leaf: nn.Parameter
    weight: nn.Parameter
    intercept: nn.Parameter

    def __init__(
        self,
        features: int,
        outputs: int = 1,
        members: int = 8,
        trees: int = 200,
        depth: int = 3,
        caution: float = 1.0,
        least: int = 10,
    ) -> None:
        super().__init__()
        if depth > DEEPEST:
            raise SettingsError(f"trees: depth is {depth}; expected 1 to {DEEPEST}")
        self.features, self.depth = features, depth
        self.caution, self.least = caution, least
        self._slots = (members, trees, outputs)
        for name, own in self.starting().items():
            self.register_parameter(name, nn.Parameter(own))

    def starting(self, seed: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the parameters of an empty forest, with which training starts for any seed."""
        (members, _, outputs), nodes = self._slots, 2**self.depth - 1
        return {
            "feature": torch.full((*self._slots, nodes), float(self.features)),
            "threshold": torch.zeros(*self._slots, nodes),
            "leaf": torch.zeros(*self._slots, nodes + 1),
            "weight": (torch.arange(members) == 0).float(),
            "intercept": torch.zeros(outputs),
        }

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for (batch, features)."""
        mixed = torch.einsum("m,nmk->nk", self.weight.double(), self.contributions(x))
        return (self.intercept.double() + mixed).float()

    def contributions(self, x: Tensor) -> Tensor:
        """Return the sum of each contributor's trees, (batch, members, outputs)."""
        known = torch.where(x.abs() > NEAR_ZERO, x, torch.zeros_like(x))  # also for NaN
        values = torch.cat([known, torch.zeros_like(x[:, :1])], 1)
        return torch.stack([self._of_slot(values, slot) for slot in range(len(self.weight))], 1)

    def _of_slot(self, values: Tensor, slot: int) -> Tensor:
        if not torch.compiler.is_exporting() and not self.leaf[slot].any():
            return values.new_zeros(values.shape[0], self.leaf.shape[2]).double()  # an empty slot
        feature, leaf = self.feature[slot].flatten(0, 1).long(), self.leaf[slot].flatten(0, 1)
        threshold = self.threshold[slot].flatten(0, 1)
        count, nodes = feature.shape
        first = torch.arange(count, device=values.device) * nodes
        node = torch.zeros_like(first).expand(values.shape[0], count)
        for _ in range(self.depth):
            place = first + node
            right = values.gather(1, feature.flatten()[place]) > threshold.flatten()[place]
            node = 2 * node + 1 + right.long()
        found = leaf.flatten()[first + torch.arange(count, device=values.device) + node - nodes]
        # LightGBM adds up in double precision, too.
        return found.double().reshape(-1, *self.leaf.shape[1:3]).sum(1)


DEEPEST = 10
"""The deepest trees: each level doubles the vector."""


def is_forest(schema: ParameterSchema) -> bool:
    """Return whether the parameters of a model are those of a forest."""
    return schema.names == PARTS


def room(schema: ParameterSchema) -> tuple[int, int]:
    """Return for how many contributors a forest has slots, and for how many trees of each."""
    members, trees, *_ = schema.shapes[PARTS.index("feature")]
    return members, trees


def used_trees(parts: Mapping[str, Tensor], marker: float) -> int:
    """Return how many trees a forest's own slot holds."""
    splits = (parts["feature"][0] != marker).flatten(1).any(1)
    filled = splits | (parts["leaf"][0] != 0).flatten(1).any(1)
    places = filled.nonzero()
    return int(places.max()) + 1 if len(places) else 0


def malformed(schema: ParameterSchema, vector: Tensor, features: int) -> str:
    """Return what is wrong with a forest from somebody else; empty if nothing is.

    Examples
    --------
    >>> model = Forest(features=2, members=1, trees=1, depth=1)
    >>> schema = ParameterSchema.of(model)
    >>> vector = schema.flatten(dict(model.named_parameters()))
    >>> malformed(schema, vector, features=2)
    ''
    >>> vector[0] = 7
    >>> malformed(schema, vector, features=2)
    'a tree splits on column 7 of 2'
    """
    if not vector.isfinite().all():
        return "trees with numbers that are not finite"
    parts = schema.unflatten(vector)
    feature = parts["feature"]
    wrong = feature[(feature != feature.round()) | (feature < 0) | (feature > features)]
    if len(wrong):
        return f"a tree splits on column {wrong[0].item():g} of {features}"
    for name in ("threshold", "leaf", "intercept"):
        largest = parts[name].abs().max().item()
        if largest > LARGEST:
            return f"a {name} of {largest:g}; the largest allowed is {LARGEST:g}"
    weight = parts["weight"]
    if (weight < 0).any() or (weight.sum() - 1).abs() > 1e-3:
        return "weights of contributors that are not a division of 1"
    return ""


def joined(schema: ParameterSchema, own: Tensor, others: Tensor) -> Tensor:
    """Return a forest with the own trees of others in its further slots; its weights stay.

    Parameters
    ----------
    own : Tensor
        A forest, or several, in the last axis.
    others : Tensor
        One more axis before the last one: the forests of others, at most as many as there are
        further slots.
    """
    found = own.expand(*others.shape[:-2], schema.size).clone()
    into, trees = schema.unflatten(found), schema.unflatten(others)
    count = others.shape[-2]
    axis = found.ndim - 1  # of the slots
    for name in ("feature", "threshold", "leaf"):
        # Slots come before trees, outputs and nodes; of each other forest, the first one is taken.
        into[name].narrow(axis, 1, count).copy_(trees[name].select(axis + 1, 0))
    return found


def mixtures(schema: ParameterSchema, own: Tensor, others: Tensor, fractions: Tensor) -> Tensor:
    """Return mixtures of the outputs of two forests: 1 − f of the own one and f of another.

    Parameters
    ----------
    own, others : Tensor
        Forests, in the last axis; their shapes are broadcast.
    fractions : Tensor
        The fractions f. The result has one more axis for them before the last.
    """
    found = joined(schema, own, others.unsqueeze(-2))
    rows = found.unsqueeze(-2).repeat_interleave(len(fractions), -2)
    weight = schema.unflatten(rows)["weight"]
    weight.zero_()
    weight[..., 0], weight[..., 1] = 1 - fractions, fractions
    return rows
