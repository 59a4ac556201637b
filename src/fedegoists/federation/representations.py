"""Training with terms about representations: their vectors are parameters of another network.

A representation is what goes into the layer ``output``. Its shift and its mean, see
`Representation`, become parameters of a copy of the network, of which the mean stands still. So
everything that trains a network trains them, too.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Representation, Train
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.network import Network
from fedegoists.learning.seeded_dropout import seed_dropouts

PREFIX = "representation_"
"""Of the names of these parameters."""


class Represented:
    """The copies of a network that train with terms about representations, by kind."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[object, Network] = {}

    def network_for(self, request: Train) -> Network:
        """Return the copy for a request with such terms.

        Raises
        ------
        SettingsError
            If the network has no such layer, or the request has limits that these terms break.
        """
        within = _terms(request)
        settings = request.settings
        if settings.clip is not None or settings.noise:
            raise SettingsError(
                "terms about representations tell means over samples, and what one sample changes "
                "of these is not limited; use another method, or no privacy"
            )
        if settings.passes > 1 and within.mean is not None:
            raise SettingsError(
                "the mean of a batch's representations cannot be computed in parts; use "
                "accumulate = 1"
            )
        if within.kind not in self._known:
            self._known[within.kind] = _copy(self._network, within)
        return self._known[within.kind]


def with_vectors(request: Train) -> Train:
    """Return the request in which the vectors of such terms follow the model's parameters."""
    within, terms = _terms(request), request.terms
    assert terms is not None
    still = (f"{PREFIX}mean",) if within.mean is not None else ()
    changed = terms.model_copy(
        update={
            "representation": None,
            "frozen": (*terms.frozen, *still),
            "frozen_first": (*terms.frozen_first, *still) if terms.first_steps else (),
        }
    )
    vector = torch.cat([request.parameters, *within.tensors.values()])
    return request.model_copy(update={"parameters": vector, "terms": changed})


def without_vectors(request: Train, reply: Trained) -> Trained:
    """Return the reply to a request with such terms: the model, and the shift if there is one."""
    within, size = _terms(request), len(request.parameters)
    vector, shift = reply.parameters, None
    if within.shift is not None:
        shift = vector[size : size + len(within.shift)].clone()
    return reply.model_copy(update={"parameters": vector[:size].clone(), "shift": shift})


def _terms(request: Train) -> Representation:
    within = None if request.terms is None else request.terms.representation
    assert within is not None
    return within


def _copy(network: Network, within: Representation) -> Network:
    """Return a copy of a network that has such vectors as parameters, and uses them."""
    found = deepcopy(network)
    seed_dropouts(found.model)  # begins the layers of the copy anew in every pass
    layer = _output_of(found.model)
    schema = found.schema
    for name, vector in within.tensors.items():
        if tuple(vector.shape) != (layer.in_features,):
            raise SettingsError(
                f"{name}: {tuple(vector.shape)} numbers, and the layer {OUTPUT_LAYER}weight takes "
                f"{layer.in_features}"
            )
        zeros = torch.zeros(layer.in_features, device=layer.weight.device)
        found.model.register_parameter(f"{PREFIX}{name}", nn.Parameter(zeros))
        shapes = (*schema.shapes, tuple(vector.shape))
        schema = replace(schema, names=(*schema.names, f"{PREFIX}{name}"), shapes=shapes)
    found.schema = schema
    seen: list[tuple[Tensor, Tensor | None]] = []

    def changed(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if inputs[0].dim() != 2:
            raise SettingsError(
                f"the layer {OUTPUT_LAYER} takes {inputs[0].dim() - 1} dimensions of each sample, "
                "and a representation is a vector; use another method"
            )
        # Inside a functional call, these are the tensors that it was given.
        mean = getattr(found.model, f"{PREFIX}mean", None)
        seen[:] = [(inputs[0], mean)]
        shift = getattr(found.model, f"{PREFIX}shift", None)
        return inputs if shift is None else (inputs[0] + shift, *inputs[1:])

    def added(weights: Tensor | None) -> Tensor:
        if not seen:
            raise SettingsError(
                f"the model does not call its layer {OUTPUT_LAYER}; use another method"
            )
        values, mean = seen.pop()
        if mean is None:
            return values.new_zeros(())
        values = values.float()
        if weights is None:
            own = values.mean(0)
        else:
            own = (weights[:, None] * values).sum(0) / weights.sum()
        return 0.5 * within.strength * ((own - mean) ** 2).mean()

    layer.register_forward_pre_hook(changed)
    found.added = added
    return found


def _output_of(model: nn.Module) -> nn.Linear:
    name = OUTPUT_LAYER.removesuffix(".")
    layer = dict(model.named_modules()).get(name)
    if not isinstance(layer, nn.Linear):
        what = "none of this name" if layer is None else f"a {type(layer).__name__}"
        raise SettingsError(
            f"a representation is what goes into a torch.nn.Linear called {name}; the model has "
            f"{what}"
        )
    return layer
