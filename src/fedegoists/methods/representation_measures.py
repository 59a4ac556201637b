"""What the gradients at an empty output layer tell of representations: means, also by class.

A representation z is what goes into the layer ``output``. So silos need no operation of their own
to tell its mean, and their limits on gradients hold as they are.
"""

import math

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import finite
from fedegoists.federation.requests import TrainSettings
from fedegoists.federation.seam import Failure, Federation
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.parameters import ParameterSchema

WEIGHT, BIAS = f"{OUTPUT_LAYER}weight", f"{OUTPUT_LAYER}bias"


def representation_size(method: str, federation: Federation, personal: tuple[str, ...]) -> int:
    """Return the size of a representation: of what goes into the output layer.

    Raises
    ------
    SettingsError
        If there is no such layer or none below it, if it stays in the silos, if batch statistics
        are averaged, or if the task's loss does not tell mean representations.
    """
    schema, task = federation.schema, federation.task
    shapes = dict(zip(schema.names, schema.shapes, strict=True))
    wanted = f"{method}: representations are what goes into the layer {OUTPUT_LAYER.strip('.')}"
    if not {WEIGHT, BIAS} < shapes.keys() or len(shapes[WEIGHT]) != 2:
        raise SettingsError(
            f"{wanted}, with a weight and a bias, above other layers; this model has "
            f"{', '.join(schema.names)}. Choose another model, or a method that shares whole "
            "models, such as fedavg"
        )
    if schema.statistics:
        raise SettingsError(
            f"{method}: mean representations are read from gradients, and averaged batch "
            'statistics have none; leave out statistics = "averaged", or choose a method that '
            "averages whole models, such as fedavg"
        )
    if any(name.startswith(personal or ("\0",)) for name in (WEIGHT, BIAS)):
        raise SettingsError(f"{wanted}, which must not be personal; leave out --personal")
    if task.name == "survival" or getattr(task, "own_loss", None) is not None:
        raise SettingsError(
            f"{method}: mean representations are read from gradients of squared error, logistic "
            "loss or cross-entropy, and this model has another loss; choose another method"
        )
    return shapes[WEIGHT][1]


def parts_of_samples(samples: int, settings: TrainSettings) -> int:
    """Return in how many parts all of a silo's samples go through a network, to save memory.

    In none are more than in a part of a training step. The number is a power of two, so that most
    silos have the same one and can be stacked.

    Examples
    --------
    >>> settings = TrainSettings(batch_size=64)
    >>> [parts_of_samples(samples, settings) for samples in (10, 64, 65, 1000)]
    [1, 1, 2, 16]
    """
    at_once = math.ceil(settings.batch_size / settings.passes)
    parts: int = 2 ** math.ceil(math.log2(max(samples / at_once, 1.0)))
    return min(parts, MOST_PARTS)


MOST_PARTS = 2**13
"""The most parts; requests have at most 10,000."""


def probes_of(schema: ParameterSchema, rows: Tensor) -> Tensor:
    """Return two models for each: with an output layer of zeros, and with one bias of one.

    The gradient of the output layer's weights is the mean of d z over samples, with d the slope of
    the loss at an output. Without weights d is the same for all samples of a class, and between the
    two models it differs by the same number for all samples, whatever their class. So the
    difference of the two gradients tells the mean of z; see `mean_representation`.
    """
    probes = rows[:, None].repeat(1, 2, 1)
    views = schema.unflatten(probes)
    views[WEIGHT].zero_()
    views[BIAS].zero_()
    views[BIAS][:, 1, 0] = 1.0
    return probes


ROUNDING = 0.01
"""How far outside of 0 to 1 a share of samples may be: it is read from gradients."""


def unusable(name: Participant, means: Tensor, shares: Tensor | None = None) -> Failure | None:
    """Return why what a silo's gradients tell cannot be used, or nothing.

    The numbers of one silo go into what all members get, and two finite gradients without a
    difference tell a mean that is not finite.

    Parameters
    ----------
    shares : Tensor, optional
        Each class's share of the samples, where the task has classes.
    """
    if not finite(means):
        return Failure(name, "not finite", "mean representation")
    if shares is None:
        return None
    right = (shares >= -ROUNDING) & (shares <= 1 + ROUNDING)
    if not bool(right.all()):
        told = f"{float(shares.min()):.3g} to {float(shares.max()):.3g}"
        return Failure(name, "error", f"shares of classes are {told}; expected 0 to 1")
    return None


def class_shares(schema: ParameterSchema, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Return each class's share of the samples, and the mean of z over a class times its share.

    From the gradients at a silo's two probes. Without weights in the output layer, the slope of
    the loss at the output of a class is the predicted share minus one for its own samples, and the
    predicted share for others. In a binary task the single output is of the second class.
    """
    at_zero = schema.unflatten(gradients[0])
    weight, bias = at_zero[WEIGHT], at_zero[BIAS]
    predicted = 1 / max(len(bias), 2)
    mean = mean_representation(schema, gradients)
    shares, means = predicted - bias, predicted * mean - weight
    if len(bias) == 1:
        shares, means = torch.cat([1 - shares, shares]), torch.cat([mean[None] - means, means])
    return shares, means


def mean_representation(schema: ParameterSchema, gradients: Tensor) -> Tensor:
    """Return the mean of z over samples, from the gradients at a silo's two probes."""
    views = schema.unflatten(gradients[1] - gradients[0])
    return views[WEIGHT][0] / views[BIAS][0]
