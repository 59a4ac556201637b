"""Model cards: what a person must know before using a model, as Markdown beside it.

The sections follow Mitchell et al., "Model cards for model reporting" (FAT* 2019).
"""

import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.consortium.evaluations import JudgedModel
from fedegoists.consortium.file_names import file_names
from fedegoists.learning.data import SplitSizes
from fedegoists.learning.estimates import Interval
from fedegoists.learning.metric_words import metric_words
from fedegoists.learning.model_files import ModelCard
from fedegoists.learning.preparation import InputPreparation
from fedegoists.version import __version__

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun

CARDS_FOLDER = "cards"
"""The folder of model cards in a run."""
CARD_FILE = "model-card.md"
"""The card's name beside an exported model."""
MOST_COLUMNS = 60

NOT_RECORDED = "Not recorded: the run is of an earlier version."
SIMULATED = (
    "The run was simulated: all data was in one process. No noise was added in training, so there "
    "is no ε: the parameters may tell of single training samples. Share the model accordingly."
)


@dataclass(frozen=True)
class CardFacts:
    """What a model's file does not say itself.

    Attributes
    ----------
    run : str
        The run's name.
    coalition : str
        With whom it was trained.
    sizes : SplitSizes, optional
        The participant's own samples.
    judged : JudgedModel or str
        Its quality on the participant's test samples, or why that is not known.
    gain : Interval, optional
        Its gain over the model that the participant trained alone.
    privacy : str
        What single samples of the participant's data are protected by.
    """

    run: str
    coalition: str
    sizes: SplitSizes | None
    judged: JudgedModel | str
    gain: Interval | None
    privacy: str


def card_text(card: ModelCard, facts: CardFacts) -> str:
    """Return the model card, without the files beside it."""
    lines = [
        f"# Model card: {_plain(card.participant)}",
        "",
        f"{_plain(card.description)} Delivered by the run {_plain(facts.run)}: {card.delivered}.",
        "",
        "## Intended use",
        "",
        f"- To predict for samples that come about like those of {_plain(card.participant)}'s "
        "training data: same population, same measurements, same units.",
        "- It was tested on this participant's own test samples only. It says nothing about other "
        "populations or later years; test it on new data before it matters, and again from time "
        "to time.",
        "- It supports people who decide. It has no approval as a medical device or for decisions "
        "about credit; whoever uses it must obtain what the law asks for.",
        "- To be completed by its owner: who uses it for what, and who watches over it.",
        "",
        "## Training",
        "",
        f"- Network: `{card.model}` with {_options(card)}; seed {card.seed}, round {card.round}.",
        f"- Coalition: {facts.coalition}",
        f"- Task: {card.task}{_classes(card)}.",
    ]
    if facts.sizes is not None:
        lines.append(
            f"- Own samples: {facts.sizes.train:,} for training, {facts.sizes.validation:,} for "
            f"validation (to choose the model and the round), {facts.sizes.test:,} for testing."
        )
    lines += ["", "## Quality on own test samples", "", *_quality(facts), ""]
    lines += ["## Privacy", "", facts.privacy, ""]
    lines += ["## Inputs", ""]
    for one in card.inputs:
        lines += [*_columns(one), ""]
    lines += ["## Software", "", f"fedegoists {__version__}, Python {platform.python_version()}"]
    return "\n".join(lines) + "\n"


def with_files(text: str, contents: Mapping[str, bytes]) -> str:
    """Return a card with the hashes of the files beside it."""
    rows = [f"| `{name}` | `{hashlib.sha256(own).hexdigest()}` |" for name, own in contents.items()]
    return text + "\n".join(["", "## Files", "", "| file | SHA-256 |", "|---|---|", *rows, ""])


def run_cards(
    run: "ConsortiumRun", cards: Mapping[str, ModelCard], origins: Mapping[str, Sequence[str]]
) -> dict[str, bytes]:
    """Return the cards of a run's models, by their places in its folder.

    Parameters
    ----------
    origins : mapping of str to sequence of str
        Whose data each participant's model holds something of.
    """
    files = file_names(run.formation.participants)
    return {
        f"{CARDS_FOLDER}/{files[name]}.md": card_text(
            card, _facts(run, card, origins[name])
        ).encode()
        for name, card in cards.items()
    }


def _coalition(run: "ConsortiumRun", card: ModelCard, origins: Sequence[str]) -> str:
    """Return with whom a model was trained, in this run and in those before."""
    name = card.participant
    group = [other for other in run.formation.coalition_of(name) if other != name]
    earlier = [other for other in origins if other != name and other not in group]
    now = f"with {', '.join(map(_plain, group))}." if group else "none: trained on own data alone."
    if not earlier:
        return now
    return (
        f"{now} It started from models of an earlier run, so it also holds something of the data "
        f"of {', '.join(map(_plain, earlier))}."
    )


def _facts(run: "ConsortiumRun", card: ModelCard, origins: Sequence[str]) -> CardFacts:
    name = card.participant
    found = run.evaluations
    missing = "Only the silo can measure it: `fedegoists deploy model` there writes it."
    deployed = "See the card that `fedegoists deploy model` writes at the silo."
    return CardFacts(
        run.folder.name,
        _coalition(run, card, origins),
        run.data.sizes.get(name),
        found.models.get(name, missing),
        None if name not in found.delivered else found.delivered[name].interval(),
        SIMULATED if found.models else deployed,
    )


def _quality(facts: CardFacts) -> list[str]:
    judged = facts.judged
    if isinstance(judged, str):
        return [judged]
    lines = [f"All intervals are 95 % confidence intervals over {judged.over}.", ""]
    if judged.few:
        lines += [f"**This is no result: {judged.few}.**", ""]
    lines += ["| measure | value |", "|---|---|"]
    binary = judged.binary
    if binary is None:
        lines.append(f"| {metric_words(judged.metric)} | {_between(judged.value)} |")
    else:
        lines += [
            f"| test samples | {binary.positives} positive, {binary.negatives} negative |",
            f"| AUC (ROC) | {_between(binary.auc)} |",
            f"| area under the precision-recall curve | {_between(binary.auprc)}; by chance "
            f"{binary.prevalence:.3f} |",
            f"| Brier score | {binary.brier:.4f} |",
            f"| mean predicted probability | {binary.predicted:.3f}; positives are "
            f"{binary.prevalence:.3f} |",
        ]
    if facts.gain is not None:
        lines.append(f"| gain over the model trained alone | {_between(facts.gain)} |")
    if binary is None:
        return lines
    lines += ["", "| threshold | sensitivity | specificity | PPV | NPV |", "|---|---|---|---|---|"]
    for row in binary.thresholds:
        shares = (row.sensitivity, row.specificity, row.precision, row.negative_value)
        cells = " | ".join(_between(one, 2) for one in shares)
        lines.append(f"| {row.threshold:.3g} ({row.chosen}) | {cells} |")
    if binary.calibration:
        lines += ["", "| predicted | observed | samples |", "|---|---|---|"]
        lines += [
            f"| {one.predicted:.3f} | {_between(one.observed)} | {one.samples} |"
            for one in binary.calibration
        ]
    else:
        lines += ["", "No calibration: there are too few test samples."]
    return lines


def _columns(one: InputPreparation) -> list[str]:
    if len(one.columns) > MOST_COLUMNS:
        return [f"{len(one.columns)} columns of `{one.name}`; the JSON file lists them."]
    lines = ["| column | usual range in training |", "|---|---|"]
    ranges: Sequence[tuple[float, float] | None] = one.ranges or (None,) * len(one.columns)
    for name, known in zip(one.columns, ranges, strict=True):
        text = "–" if known is None else f"{known[0]:.6g} to {known[1]:.6g}"
        lines.append(f"| {_plain(name)} | {text} |")
    return lines


def _options(card: ModelCard) -> str:
    return ", ".join(f"{key} = {value}" for key, value in card.options.items()) or "no options"


def _classes(card: ModelCard) -> str:
    if not card.classes:
        return ""
    names = ", ".join(map(_plain, card.classes))
    return f"; classes {names}" + ("; the last one is positive" if card.task == "binary" else "")


def _between(one: Interval, decimals: int = 3) -> str:
    if not math.isfinite(one.value):
        return "–"
    value = f"{one.value:.{decimals}f}"
    if not math.isfinite(one.low):
        return value
    return f"{value} ({one.low:.{decimals}f} to {one.high:.{decimals}f})"


def _plain(text: str) -> str:
    """Return a name that cannot be read as Markdown or HTML."""
    safe = "".join(c if c.isprintable() else " " for c in text)
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|" else c for c in safe)
