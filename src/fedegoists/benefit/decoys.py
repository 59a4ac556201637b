"""Decoys: what a silo sees in place of its competitors' models, and the order of all models.

In ``transfer`` a silo evaluates models of others, but never a competitor's. It must not learn from
its messages which participants compete with it, nor how many: some may have reported it themselves.
So in place of a competitor's model it is sent a decoy, and the models come in an order of its own.
The messages in two worlds that differ only in others' reports have the same number of rows, in the
same calls; the rows of all models that it sees in both are the same ones, at the same places.

An order or a decoy that a silo could compute would be none, and silos are told the seed by which
they divide their data. Both are therefore drawn from a secret of the server. They stay the same
for the same secret, seed and models: were a decoy drawn again in every call, or when a run is
repeated, it would be known by not being there again.

A decoy should not be recognised by its ingredients either. It is made without the competitor's
model, from those that the silo may see, and from its own where these are fewer than two. A mixture
of those would not do: a silo finds by least squares that one row is a combination of the others. A
decoy is instead a draw from a normal distribution that is fitted to their changes since the common
start. Its covariance is the weighted mean of the sample's, which is spanned by these models, and of
one that has the same covariances between units of a layer, and is not. The weight is the part of
such a model's own deviation that the others explain, so that a decoy is explained by them as well,
and as badly, as a real one.

What remains is written down in ``docs/explanation-privacy-and-trust.md``. In short: a fit to few
models is a poor one; a draw from a normal distribution is not what training leaves, and a
classifier that is trained for it recognises most decoys (``benchmarks/bench_decoys.py``); who knows
a competitor's model from elsewhere, from another silo for instance, finds that it is missing.
"""

import math

import torch
from torch import Tensor

from fedegoists.federation import Participant
from fedegoists.federation.batches import stream_seed
from fedegoists.learning.forest import is_forest
from fedegoists.learning.parameters import ParameterSchema


class Disguise:
    """Orders and decoys, drawn from a secret of the server.

    Parameters
    ----------
    secret : str
        The server's secret.
    seed : int
        Of the estimate.
    names : tuple of tuple of Participant
        The participants of each repetition.
    rivals : Tensor
        The pairs of competitors, of shape (repetitions, participants, participants).
    schema : ParameterSchema
        Of the models.
    """

    def __init__(
        self,
        secret: str,
        seed: int,
        names: tuple[tuple[Participant, ...], ...],
        rivals: Tensor,
        schema: ParameterSchema,
    ) -> None:
        self._stream = (secret, seed)
        self._names = names
        self._rivals = rivals
        self._schema = schema

    def orders(self, length: int, repeat: int, half: int) -> Tensor:
        """Return a random order of `length` models for each silo, in the last axis."""
        orders = [
            torch.randperm(length, generator=self._generator("order", name, repeat, half))
            for names in self._names
            for name in names
        ]
        return torch.stack(orders).reshape(*self._rivals.shape[:2], length)

    def hide(
        self, shown: Tensor, sources: Tensor, models: Tensor, start: Tensor, repeat: int
    ) -> None:
        """Replace competitors' models by decoys, the same in all calls of a repeat.

        The model of a silo that did not train is still the start. That reveals nothing of its data,
        and others may know that it is away, so it is not replaced.

        Parameters
        ----------
        shown : Tensor
            The models for each silo, of shape (repetitions, participants, places, parameters).
        sources : Tensor
            The participant of the model at each place; other numbers are left alone.
        models, start : Tensor
            All local models, (repetitions, participants, parameters), and their common start.
        """
        for repetition, names in enumerate(self._names):
            trained = (models[repetition] != start).any(-1).cpu()
            for i, name in enumerate(names):
                secret = self._rivals[repetition, i] & trained
                places = {
                    place: j
                    for place, j in enumerate(sources[repetition, i].tolist())
                    if j < len(names) and secret[j]
                }
                if places:
                    seen = ~self._rivals[repetition, i] & trained
                    seen[i] = seen.sum() < ENOUGH + trained[i]  # its own only where few others are
                    known = models[repetition, seen.to(models.device)]
                    for place, j in places.items():
                        generator = self._generator("decoy", name, names[j], repeat)
                        shown[repetition, i, place] = decoy(start, known, self._schema, generator)

    def _generator(self, *stream: str | int | Participant) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(*self._stream, *stream))


def decoy(
    start: Tensor, known: Tensor, schema: ParameterSchema, generator: torch.Generator
) -> Tensor:
    """Draw a model from the normal distribution fitted to known ones.

    Its change is no longer than the longest one, so that its loss is a number where theirs are.

    Parameters
    ----------
    start : Tensor
        The common start of all models.
    known : Tensor
        Of shape (models, parameters), at least one. With one alone, the start is the other one.
    """
    if is_forest(schema):
        return _forest_decoy(start, known, schema, generator)
    changes = known - start
    if len(known) < 2:
        changes = torch.cat([changes, torch.zeros_like(changes)])
    freedom = len(changes) - 1
    mean = changes.mean(0)
    deviations = changes - mean
    # On the CPU, so that the numbers are the same wherever the server computes.
    along = torch.randn(len(changes), generator=generator).to(mean)
    across = _noise(schema, deviations, generator)
    part = explained_part(changes)
    drawn = mean + (math.sqrt(part) * (along @ deviations) + math.sqrt(1 - part) * across) / (
        math.sqrt(freedom)
    )
    longest = changes.norm(dim=-1).max()
    shortened: Tensor = start + drawn * (longest / drawn.norm().clamp_min(TINY)).clamp_max(1.0)
    return shortened


def _forest_decoy(
    start: Tensor, known: Tensor, schema: ParameterSchema, generator: torch.Generator
) -> Tensor:
    """Return a forest of known trees in which every split and every leaf is moved at random.

    A mean of splits is no split, so there is no normal distribution to draw from.
    """
    found = start.clone()
    into, own = schema.unflatten(found), schema.unflatten(known)
    trees = into["feature"].shape[1]
    source = torch.randint(len(known), (trees,), generator=generator).to(known.device)
    places = torch.arange(trees, device=known.device)
    into["feature"][0] = own["feature"][source, 0, places]
    splits = into["feature"][0] != start[0]  # the number of features: a node without a split
    for name in ("threshold", "leaf"):
        values = own[name][source, 0, places]
        noise = torch.randn(values.shape, generator=generator).to(values)
        spread = values[values != 0].std().nan_to_num(nan=0.0) if values.any() else 0.0
        moved = values + FOREST_NOISE * spread * noise
        into[name][0] = torch.where(splits if name == "threshold" else values != 0, moved, values)
    return found


FOREST_NOISE = 0.2
"""How far splits and leaves of a decoy are moved, in standard deviations over all of them."""


def _noise(schema: ParameterSchema, deviations: Tensor, generator: torch.Generator) -> Tensor:
    """Return noise of the size of some vectors, with the covariances of their units.

    Every weight matrix is drawn from a matrix normal distribution: covariances between its rows,
    and between its columns, are theirs, half-way to the diagonal, so that no sum of theirs is it.
    """
    parts = []
    for tensors in schema.unflatten(deviations.double()).values():
        matrices = tensors.reshape(len(tensors), tensors.shape[1] if tensors.ndim > 1 else 1, -1)
        drawn = torch.randn(matrices.shape[1:], generator=generator).to(matrices)
        noise = _correlated(_correlated(drawn, matrices).mT, matrices.mT).mT
        # It got their size twice, by its rows and by its columns.
        parts.append((noise / matrices.norm().clamp_min(TINY)).flatten())
    return torch.cat(parts).to(deviations)


def _correlated(drawn: Tensor, matrices: Tensor) -> Tensor:
    """Give rows of noise the covariances of the rows of matrices, half-way to the diagonal."""
    if len(drawn) > MOST_CORRELATED:
        return drawn * matrices.square().sum((0, 2)).sqrt()[:, None]
    covariance = torch.einsum("kab,kcb->ac", matrices, matrices)
    values, vectors = torch.linalg.eigh((covariance + covariance.diagonal().diag()) / 2)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
    return root @ drawn


def explained_part(vectors: Tensor) -> float:
    """Return the mean fraction of a vector's squared deviation that the others explain.

    Each is compared with the mean of the others, and explained by their deviations from it.

    Examples
    --------
    >>> corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 2.0]])
    >>> round(explained_part(corners), 6)
    1.0
    >>> explained_part(torch.eye(3))
    0.0
    """
    count = len(vectors)
    if count < 3:
        return 0.0
    # Products of deviations from the common mean hold all that is needed of long vectors.
    deviations = (vectors - vectors.mean(0)).double()
    products = (deviations @ deviations.mT).cpu()
    parts = []
    for k in range(count):
        others = [other for other in range(count) if other != k]
        weights = torch.zeros(count, count, dtype=torch.double)  # one for each combination below
        weights[:, others] = -1 / len(others)
        weights[range(count), range(count)] += 1
        between = weights @ products @ weights.mT
        spanned = torch.linalg.pinv(between[others][:, others], rtol=1e-6, hermitian=True)
        towards = between[k, others]
        parts.append((towards @ spanned @ towards / between[k, k].clamp_min(TINY)).clamp(0, 1))
    return torch.stack(parts).mean().item()


ENOUGH = 2
"""The fewest models of others to which a decoy is fitted."""

MOST_CORRELATED = 1024
"""Layers with more units are drawn with independent units, to save time."""

TINY = 1e-12
"""The smallest length, against division by zero."""
