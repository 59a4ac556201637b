"""Training with terms about representations: their vectors are parameters of another network.

A representation is what goes into the layer ``output``. Its shift, its mean and the centres of
classes, see `Representation`, become parameters of a copy of the network, of which all but the
shift stand still. So everything that trains a network trains them, too.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Representation, Train
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.network import VECTORS, Network
from fedegoists.learning.seeded_dropout import seed_dropouts


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
    still = tuple(f"{VECTORS}{name}" for name in within.tensors if name != "shift")
    changed = terms.model_copy(
        update={
            "representation": None,
            "frozen": (*terms.frozen, *still),
            "frozen_first": (*terms.frozen_first, *still) if terms.first_steps else (),
        }
    )
    vectors = [one.reshape(-1) for one in within.tensors.values()]
    vector = torch.cat([request.parameters, *vectors])
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
    layer, schema = _output_of(found.model), found.schema
    _check_shapes(within, layer, found)
    for name, vector in within.tensors.items():
        zeros = torch.zeros(vector.shape, device=layer.weight.device)
        found.model.register_parameter(f"{VECTORS}{name}", nn.Parameter(zeros))
        names, shapes = (*schema.names, f"{VECTORS}{name}"), (*schema.shapes, tuple(vector.shape))
        schema = replace(schema, names=names, shapes=shapes)
    found.schema = schema
    seen: list[tuple[Tensor, dict[str, Tensor]]] = []

    def changed(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if inputs[0].dim() != 2:
            raise SettingsError(
                f"the layer {OUTPUT_LAYER} takes {inputs[0].dim() - 1} dimensions of each sample, "
                "and a representation is a vector; use another method"
            )
        # Inside a functional call, these are the tensors that it was given.
        given = {name: getattr(found.model, f"{VECTORS}{name}") for name in within.tensors}
        seen[:] = [(inputs[0], given)]
        return (inputs[0] + given["shift"], *inputs[1:]) if "shift" in given else inputs

    def added(targets: Tensor, weights: Tensor | None, plain: Tensor | None) -> Tensor:
        if not seen:
            raise SettingsError(
                f"the model does not call its layer {OUTPUT_LAYER}; use another method"
            )
        values, given = seen.pop()
        values = values.float()
        total = values.new_zeros(())
        if "mean" in given:
            # Without weights of classes, as the mean that it is held near was measured.
            mean = values.mean(0)
            if plain is not None:
                mean = (plain[:, None] * values).sum(0) / plain.sum()
            total = total + 0.5 * within.strength * ((mean - given["mean"]) ** 2).mean()
        if "centres" in given:
            classes = targets.long()
            away = ((values - given["centres"][classes]) ** 2).mean(1) * given["pulls"][classes]
            total = total + (away.mean() if weights is None else (weights * away).sum())
        return total

    layer.register_forward_pre_hook(changed)
    found.added, found.mean_strength = added, within.strength
    return found


def _check_shapes(within: Representation, layer: nn.Linear, network: Network) -> None:
    """Refuse vectors that do not fit the output layer, and centres without classes."""
    width, outputs = layer.in_features, layer.out_features
    if within.centres is not None and network.task.name not in ("classification", "binary"):
        raise SettingsError(
            f"centres are of classes, and a {network.task.name} has none; use another method"
        )
    classes = 2 if network.task.name == "binary" else outputs
    wanted = {"shift": (width,), "mean": (width,), "centres": (classes, width), "pulls": (classes,)}
    for name, vector in within.tensors.items():
        if tuple(vector.shape) != wanted[name]:
            raise SettingsError(
                f"{name}: {tuple(vector.shape)} numbers, and the layer {OUTPUT_LAYER}weight takes "
                f"{wanted[name]}"
            )


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
