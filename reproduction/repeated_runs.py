"""Consortia described in files, run over several divisions of their data; no report is drawn."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.toml_text import toml_value
from fedegoists.files import csv_bytes, read_text, write_bytes
from fedegoists.training.summary import chosen_test_values

__all__ = ["Difference", "Measured", "consortium_text", "corrected", "measured", "read_rows"]

COLUMNS = ("data", "model", "method", "seed", "participant", "train", "test", "decay", "value")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """The test metric of one participant, with one model and method, in one division of the data.

    Attributes
    ----------
    train, test : int
        The participant's samples for training and for test.
    decay : float
        The weight decay of training.
    """

    data: str
    model: str
    method: str
    seed: int
    participant: str
    train: int
    test: int
    decay: float
    value: float


def consortium_text(
    source: str, options: Mapping[str, str], seed: int, training: Mapping[str, object]
) -> str:
    """Return a consortium.toml in which everybody trains with everybody."""
    lines = ["[data]", f"source = {toml_value(source)}", f"seed = {seed}"]
    if options:
        lines.append(f"options = {toml_value(dict(options))}")
    lines += ["", "[benefit]", 'estimator = "everybody"', "", "[training]", "seeds = 1"]
    lines += [f"{name} = {toml_value(value)}" for name, value in training.items()]
    return "\n".join(lines) + "\n"


def measured(data: str, model: str, seed: int, text: str, work: Path) -> list[Measured]:
    """Write a consortium.toml, run it, and return the test metrics of all participants.

    Parameters
    ----------
    data, model : str
        Names for the rows.
    work : Path
        A folder for the file and for checkpoints, which later calls continue from.
    """
    path = work / f"{data}-{model}-{seed}.toml".replace(" ", "-")
    write_bytes(path, text.encode())
    consortium = Consortium.read(path)
    formation = consortium.form(consortium.learn_benefit())
    repetitions, outcomes, _ = consortium.train(formation)
    sizes = consortium.data.sizes
    return [
        Measured(
            data,
            model,
            method,
            seed,
            one.name,
            sizes[one.name].train,
            sizes[one.name].test,
            repetitions.defaults.train.weight_decay,
            value,
        )
        for method in consortium.wanted.methods
        for one, value in chosen_test_values(outcomes[method], repetitions.federation).items()
    ]


def rows_csv(rows: Iterable[Measured]) -> bytes:
    """Return rows as CSV, with six digits."""
    return csv_bytes(COLUMNS, [(*astuple(row)[:-1], f"{row.value:.6g}") for row in rows])


def read_rows(path: Path) -> list[Measured]:
    """Read what `rows_csv` wrote."""
    return [
        Measured(
            line["data"],
            line["model"],
            line["method"],
            int(line["seed"]),
            line["participant"],
            int(line["train"]),
            int(line["test"]),
            float(line["decay"]),
            float(line["value"]),
        )
        for line in csv.DictReader(io.StringIO(read_text(path), newline=""))
    ]


@dataclass(frozen=True)
class Difference:
    """A mean over divisions of the data, with its confidence interval."""

    mean: float
    half: float

    def shown(self, digits: int) -> str:
        """Return the mean, and the interval in brackets."""
        low, high = self.mean - self.half, self.mean + self.half
        return f"{self.mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def corrected(values: Sequence[float], ratio: float) -> Difference:
    """Return the mean over divisions with the interval of Nadeau and Bengio.

    Divisions of the same samples overlap, so their results are not independent: the variance of
    their mean is taken to be (1/J + test/train) times the variance between the J divisions
    (Machine Learning 52, 2003, Section 3).

    Parameters
    ----------
    ratio : float
        Samples for test divided by those for training.

    Examples
    --------
    >>> one = corrected([0.0, 0.02, 0.04], 0.2)
    >>> round(one.mean, 3), round(one.half, 3)  # 4.303 · 0.02 · √(1/3 + 0.2)
    (0.02, 0.063)
    """
    from scipy.stats import t

    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2:
        return Difference(statistics.fmean(known) if known else math.nan, math.nan)
    error = statistics.stdev(known) * math.sqrt(1 / len(known) + ratio)
    return Difference(
        statistics.fmean(known), float(t.ppf(0.5 + CONFIDENCE / 2, len(known) - 1)) * error
    )


def by_seed(rows: Iterable[Measured], model: str, method: str) -> dict[int, dict[str, float]]:
    """Return the values of a model and method: by division, then by participant."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if (row.model, row.method) == (model, method):
            found.setdefault(row.seed, {})[row.participant] = row.value
    return found


def mean_differences(
    ones: Mapping[int, Mapping[str, float]], others: Mapping[int, Mapping[str, float]]
) -> list[float]:
    """Return, for each division, the mean over participants of one result minus another.

    A participant whose metric is not defined in a division, as AUC is not with one class in the
    test data, does not count there.
    """
    found = []
    for seed, own in ones.items():
        gaps = [own[name] - others[seed][name] for name in own]
        known = [gap for gap in gaps if math.isfinite(gap)]
        if known:
            found.append(statistics.fmean(known))
    return found


def ratio_of(rows: Sequence[Measured]) -> float:
    """Return samples for test divided by samples for training, over all rows."""
    return sum(row.test for row in rows) / sum(row.train for row in rows)
