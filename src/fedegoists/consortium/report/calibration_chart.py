"""The calibration curve of a binary model, in pixels."""

from dataclasses import dataclass

from fedegoists.learning.sample_scores import BinaryScores

LEFT, TOP, SIDE, BELOW = 38, 10, 230, 26
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class CalibrationPoint:
    """One group of samples: its dot, the ends of its interval, and the group in words."""

    x: float
    y: float
    low: float
    high: float
    sentence: str


@dataclass(frozen=True)
class CalibrationTick:
    """A number along both sides."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class CalibrationChart:
    """The places of all elements of the picture."""

    size: int
    left: int
    top: int
    side: int
    points: tuple[CalibrationPoint, ...]
    ticks: tuple[CalibrationTick, ...]

    @property
    def sentence(self) -> str:
        """All groups in words, for readers who cannot see the picture."""
        return "; ".join(point.sentence for point in self.points)


def calibration_chart(scores: BinaryScores) -> CalibrationChart | None:
    """Return the calibration curve; None where there are too few samples."""
    if not scores.calibration:
        return None

    def across(value: float) -> float:
        return round(LEFT + SIDE * value, 1)

    def up(value: float) -> float:
        return round(TOP + SIDE * (1 - value), 1)

    return CalibrationChart(
        LEFT + SIDE + BELOW,
        LEFT,
        TOP,
        SIDE,
        tuple(
            CalibrationPoint(
                across(one.predicted),
                up(one.observed.value),
                up(one.observed.low),
                up(one.observed.high),
                f"predicted {one.predicted:.2f}, observed {one.observed.value:.2f} "
                f"({one.observed.low:.2f} to {one.observed.high:.2f}) of {one.samples}",
            )
            for one in scores.calibration
        ),
        tuple(CalibrationTick(across(one), up(one), f"{one:g}") for one in TICKS),
    )
