"""Networks that a consortium can choose by name, besides those of the paper."""

import itertools

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.learning.models import with_mask

OFFSET_SCALE = 4.0
"""How much less weight decay pulls at an offset than at weights: by the square of this."""


class LinearModel(nn.Module):
    """Linear or logistic regression that begins at zero, to be trained with weight decay."""

    def __init__(self, features: int, outputs: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, features))
        self.offset = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for (batch, features)."""
        return F.linear(x, self.weight) + OFFSET_SCALE * self.offset


class CoxModel(nn.Module):
    """Cox regression: a linear model of the logarithm of the risk, to be trained with weight decay.

    It has no offset: the partial likelihood compares risks, and an offset is in all of them.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, features))

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, 1) for (batch, features)."""
        return F.linear(x, self.weight)


class ImageCNN(nn.Module):
    """Convolutions with group normalisation, each followed by pooling.

    Parameters
    ----------
    channels : int
        Colours of an image.
    width : int
        Channels of the first convolution; each one after it has twice as many.
    layers : int
        The number of convolutions.
    """

    def __init__(self, channels: int, outputs: int = 1, width: int = 16, layers: int = 3) -> None:
        super().__init__()
        sizes = [channels, *(width * 2**k for k in range(layers))]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1) for before, after in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(_groups(size), size) for size in sizes[1:])
        self.output = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for images (batch, channels, height, width)."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x)))
            if min(x.shape[-2:]) > 1:
                x = F.max_pool2d(x, 2)
        out: Tensor = self.output(x.mean((-2, -1)))
        return out


class SmallResNet(nn.Module):
    """Three stages of residual blocks with batch normalisation (He et al., 2016).

    Parameters
    ----------
    channels : int
        Colours of an image.
    width : int
        Channels of the first stage; each stage after it has twice as many.
    blocks : int
        Blocks in a stage.
    """

    def __init__(self, channels: int, outputs: int = 1, width: int = 16, blocks: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages: list[nn.Module] = []
        before = width
        for stage in range(3):
            for block in range(blocks):
                after = width * 2**stage
                stages.append(_Block(before, after, stride=2 if stage and not block else 1))
                before = after
        self.blocks = nn.Sequential(*stages)
        self.output = nn.Linear(before, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for images (batch, channels, height, width)."""
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        out: Tensor = self.output(x.mean((-2, -1)))
        return out


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = (
            nn.Identity()
            if before == after and stride == 1
            else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(y + self.shortcut(x))


class SequenceLSTM(nn.Module):
    """A long short-term memory over time steps, whose end is joined by static features.

    Missing values (NaN) count as the mean, with a mask beside them.
    """

    def __init__(
        self,
        hourly: int,
        static: int,
        hours: int,  # noqa: ARG002 - any number will do
        *,
        outputs: int = 1,
        width: int = 64,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise SettingsError(f"lstm: dropout is {dropout}; expected 0 to less than 1")
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(2 * hourly, width, layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width + 2 * static, outputs)

    def forward(self, hourly: Tensor, static: Tensor) -> Tensor:
        """Return (batch, outputs) for (batch, hours, features) and (batch, features)."""
        last = self.lstm(with_mask(hourly))[0][:, -1]
        out: Tensor = self.output(torch.cat([self.dropout(last), with_mask(static)], -1))
        return out


def _groups(channels: int) -> int:
    return next(count for count in (8, 4, 2, 1) if channels % count == 0)
