"""Many models of one network at once: one `vmap`, side by side, or by kernels made for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedegoists.federation.gradient_privacy import clipped_gradient
from fedegoists.federation.side_by_side import side_by_side
from fedegoists.federation.silo_operations import Silo, weighted
from fedegoists.federation.stacked_tensors import augmented_stack
from fedegoists.learning.network import Inputs, Network
from fedegoists.learning.stacked_cnn import StackedCNN

PER_PASS = 32_768
"""Samples, counted once for each model, that go through networks at once; a bound on memory."""


class StackedNetwork:
    """Outputs, gradients and batch statistics of many models, each on samples of its own.

    Parameters
    ----------
    pool : Silo
        Any of the silos, which share one copy of the samples.
    bf16 : bool
        Whether to compute activations with 16 bits.
    beside : bool
        Whether to compute models side by side instead of by `vmap`.
    """

    def __init__(
        self, network: Network, pool: Silo, *, bf16: bool = False, beside: bool = False
    ) -> None:
        self.network, self._pool, self._bf16 = network, pool, bf16
        self._at_once = side_by_side if beside else _vmapped
        self._recent: tuple[Tensor, Tensor, dict[str, Tensor]] | None = None
        self._cnn: StackedCNN | None = None
        model, images = network.model, pool.inputs[0]
        known = network.added is None or network.mean_strength is not None
        # Kernels made for such networks are faster than `vmap`.
        if isinstance(model, StackedCNN.MODELS) and known and StackedCNN.suits(images, bf16=bf16):
            strength = network.mean_strength or 0.0
            self._cnn = StackedCNN(model, network.schema, bf16=bf16, mean_strength=strength)
        # Kernels need a quarter of the memory, with 16 channels.
        self.per_pass = PER_PASS if self._cnn is None else 64 * PER_PASS // self._cnn.channels

    def gradients(
        self,
        parameters: Tensor,
        plan: Tensor,
        draws: Tensor | None,
        weights: Tensor | None,
        by_class: Tensor | None,
        seeds: Tensor | None,
        *,
        clip: float | None,
        fixed: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return gradients and losses of each model on its own batch.

        Parameters
        ----------
        parameters, plan : Tensor
            One row for each model.
        draws, weights, by_class, seeds : Tensor, optional
            Flips and shifts, weights of samples, weights of classes, and seeds of dropout.
        clip : float, optional
            The longest gradient of a sample.
        fixed : dict of str to Tensor, optional
            Batch statistics.
        """
        pool, network = self._pool, self.network
        targets, factors = pool.targets[plan], pool.factors(plan, by_class)
        plain = None if network.added is None else weighted(weights, pool.factors(plan))
        if clip is None:  # otherwise they are limited, too
            weights, factors = weighted(weights, factors), None
        if self._cnn is not None and clip is None:
            images = self._cnn.images(pool.inputs[0], plan, draws)
            return self._cnn.gradients(parameters, images, targets, weights, plain)

        def of_one(
            vector: Tensor,
            inputs: Inputs,
            targets: Tensor,
            weights: Tensor | None,
            factors: Tensor | None,
            seed: Tensor | None,
            fixed: dict[str, Tensor] | None,
            plain: Tensor | None,
        ) -> tuple[Tensor, Tensor]:
            def loss(values: dict[str, Tensor], *batch: Any) -> Tensor:
                given = (*batch, *(None,) * (3 - len(batch)), seed)
                values = {**values, **(fixed or {})}
                return network.loss(values, *given, plain=plain, bf16=self._bf16)

            if clip is not None:
                return clipped_gradient(loss, network.schema, clip)(
                    vector, inputs, targets, weights, factors
                )
            pair: tuple[Tensor, Tensor] = grad_and_value(
                lambda own: loss(network.schema.unflatten(own), inputs, targets, weights)
            )(vector)
            return pair

        inputs, _ = pool.batch(plan)
        if draws is not None:
            inputs = augmented_stack(inputs, draws)
        given = (parameters, inputs, targets, weights, factors, seeds, fixed or None, plain)
        # Gradients of single samples come from a `vmap` in any case.
        at_once = self._at_once if clip is None else _vmapped
        pair: tuple[Tensor, Tensor] = at_once(of_one, *given)
        return pair

    @torch.no_grad()
    def statistics(self, parameters: Tensor, plans: Tensor) -> dict[str, Tensor]:
        """Return the batch statistics of each model.

        Parameters
        ----------
        parameters : Tensor
            One row for each model.
        plans : Tensor
            For each model, its own batches of positions.
        """
        network, schema = self.network, self.network.schema
        if not network.mixes_samples:
            return {}
        # Validation and test samples are evaluated one after the other.
        known = self._recent
        if known and all(map(torch.equal, known[:2], (parameters, plans))):
            return known[2]
        network.set_mode("statistics")
        parts = []
        most = self.most_rows(plans.shape[-1])
        for some, own in zip(torch.split(parameters, most), torch.split(plans, most), strict=True):
            found = {
                name: value.expand(len(some), *value.shape)
                for name, value in network.statistics_at_rest().items()
            }
            for number, plan in enumerate(own.unbind(1)):

                def of_one(
                    vector: Tensor, before: dict[str, Tensor], inputs: Inputs, number: int = number
                ) -> dict[str, Tensor]:
                    return network.after_batch(schema.unflatten(vector), before, inputs, number)

                found = self._at_once(of_one, some, found, self._pool.batch(plan)[0])
            parts.append(found)
        together = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        self._recent = (parameters.clone(), plans, together)
        return together

    def most_rows(self, width: int) -> int:
        """Return the models that go through networks at once, with samples of some number."""
        return max(1, self.per_pass // width)

    def outputs(self, parameters: Tensor, positions: Tensor, fixed: dict[str, Tensor]) -> Tensor:
        """Return the outputs of each model for the samples at its own positions."""
        if self._cnn is not None:
            images = self._cnn.images(self._pool.inputs[0], positions)
            return self._cnn.outputs(parameters, images)

        def of_one(vector: Tensor, inputs: Inputs, fixed: dict[str, Tensor] | None) -> Tensor:
            values = self.network.schema.unflatten(vector)
            # Batch statistics that travel are part of the model.
            return self.network.outputs({**(fixed or {}), **values}, inputs)

        inputs, _ = self._pool.batch(positions)
        outputs: Tensor = self._at_once(of_one, parameters, inputs, fixed or None)
        return outputs


def _vmapped(function: Callable[..., Any], *given: Any) -> Any:
    """Apply a function to each row of its arguments, which may be None."""
    if len(given[0]) == 1:  # with a single row, some layers mistake the layout of images
        return side_by_side(function, *given)
    return vmap(function, in_dims=tuple(None if one is None else 0 for one in given))(*given)
