"""Consortia described in files, trained over several divisions of their data."""

import math
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedegoists.consortium.model_choice import searches_decay, training_changes, training_steps
from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.consortium.toml_text import toml_value
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.files import write_bytes
from fedegoists.learning.estimates import over_divisions
from fedegoists.learning.own_models import model_parts
from fedegoists.training.decay_search import searched_decays, searched_decays_together
from fedegoists.training.decisions import Decisions
from fedegoists.training.repetitions import Repetitions, train_methods
from fedegoists.training.summary import chosen_test_values
from reproduction.record_files import read_records, records_csv

__all__ = ["Difference", "Measured", "consortium_text", "corrected", "measured", "read_rows"]

ALONE = "local"
"""The method that trains alone."""


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


def measured(data: str, model: str, texts: Mapping[int, str], work: Path) -> list[Measured]:
    """Train what several consortium.toml say, and return the test metrics of all participants.

    The files differ in the division of the data. They are trained side by side in one simulation,
    as the repetitions of one consortium are, which gives the numbers of single runs in much less
    time: a step of a small model costs as much for one silo as for fifty.

    Parameters
    ----------
    data, model : str
        Names for the rows.
    texts : mapping of int to str
        The contents of the files, by the seed of the division.
    work : Path
        A folder for the files.
    """
    consortia = {}
    for seed, text in texts.items():
        path = work / f"{data}-{model}-{seed}.toml".replace(" ", "-")
        write_bytes(path, text.encode())
        consortia[seed] = Consortium.read(path)
    groups: dict[tuple[float | None, float | None], list[int]] = {}
    for seed, decays in _decays(consortia).items():
        groups.setdefault(decays, []).append(seed)
    rows = []
    for decays, seeds in groups.items():
        rows += _trained({seed: consortia[seed] for seed in seeds}, data, model, *decays)
    return sorted(rows, key=lambda row: row.seed)


def _decays(consortia: Mapping[int, Consortium]) -> dict[int, tuple[float | None, float | None]]:
    """Return the weight decays of each division, alone and in coalitions: searched for, or none."""
    first = next(iter(consortia.values()))
    if not searches_decay(first.settings.training, first.model, simulated=True):
        return dict.fromkeys(consortia, (None, None))
    repetitions = _repetitions(consortia, {})
    alone = searched_decays(repetitions)
    together = searched_decays_together(repetitions, _coalitions(consortia))
    return {seed: (alone[seed], together.get(seed)) for seed in consortia}


def _coalitions(consortia: Mapping[int, Consortium]) -> list[tuple[Participant, ...]]:
    return [
        group
        for seed, one in consortia.items()
        for group in Participant.groups(one.form(one.learn_benefit()).coalitions, seed)
    ]


def _repetitions(consortia: Mapping[int, Consortium], changes: Mapping[str, object]) -> Repetitions:
    first = next(iter(consortia.values()))
    training, model = first.settings.training, first.model.name
    samples = {}
    for seed, one in consortia.items():
        assert isinstance(one.engine, SimulatedEngine)
        samples[seed] = one.engine.samples
    parts = model_parts(first.data, model)
    return Repetitions.over(
        SimulatedFederation(samples, parts.module, task=parts.task, augment=parts.augment),
        first.data,
        list(consortia),
        steps=training_steps(training, first.data, model),
        model=model,
        changes={**training_changes(training, first.data, model), **changes},
    )


def _trained(
    consortia: Mapping[int, Consortium],
    data: str,
    model: str,
    decay: float | None,
    together: float | None,
) -> list[Measured]:
    """Train with all methods, and return the test metrics."""
    repetitions = _repetitions(consortia, {} if decay is None else {"weight_decay": decay})
    defaults = replace(repetitions.defaults, together_decay=together)
    repetitions = replace(repetitions, defaults=defaults)
    coalitions = _coalitions(consortia)
    wanted = next(iter(consortia.values())).wanted
    with tempfile.TemporaryDirectory() as folder:
        outcomes = train_methods(
            wanted,
            repetitions,
            Decisions(coalitions, coalitions, None),
            lambda method: Path(folder, f"{method}.safetensors"),
        )
    rows = []
    for method in wanted.methods:
        values = chosen_test_values(outcomes[method], repetitions.federation)
        for one in repetitions.federation.participants:
            assert one.repetition is not None
            sizes = consortia[int(one.repetition)].data.sizes[one.name]
            settings = defaults.train if method == ALONE else defaults.together
            used = settings.weight_decay
            about = (one.name, sizes.train, sizes.test, used, values.get(one, math.nan))
            rows.append(Measured(data, model, method, int(one.repetition), *about))
    return rows


rows_csv = partial(records_csv, Measured)
"""Return rows as CSV, see `reproduction.record_files`."""


read_rows = partial(read_records, Measured)
"""Read what `rows_csv` returned."""


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
    """Return the mean over divisions with the interval of Nadeau and Bengio; see `over_divisions`.

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
    one = over_divisions(values, ratio).interval()
    return Difference(one.value, one.high - one.value)


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


def level(values: Mapping[int, Mapping[str, float]]) -> float:
    """Return the mean over divisions of the mean over participants."""
    zero = {seed: dict.fromkeys(own, 0.0) for seed, own in values.items()}
    return statistics.fmean(mean_differences(values, zero))


def ratio_of(rows: Sequence[Measured]) -> float:
    """Return samples for test divided by samples for training, over all rows."""
    return sum(row.test for row in rows) / sum(row.train for row in rows)
