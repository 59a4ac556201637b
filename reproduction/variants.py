"""The rows of the tables: a method, its coalitions, and its benefit graph."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedegoists.errors import SettingsError
from fedegoists.methods.method_registry import TUNED

__all__ = [
    "BASELINES",
    "BEST",
    "FOUR_TIMES",
    "PAPER",
    "SIXTEEN_TIMES",
    "VARIANTS",
    "YARDSTICKS",
    "Variant",
    "crossed_name",
    "wide_name",
]

Where = Literal["alone", "baseline", "published", "best"]
Benefit = Literal["learned", "relative", "crossed", "denser", "measured", "everybody"]


WIDEST = "-wide"
"""End of the name of a row in the widest coalitions that competition allows."""
INTERPOLATED_ENDING = "+wise"
"""End of the name of a row whose models may be means of those before and after fine-tuning: after
WiSE-FT (Wortsman 2022)."""
ENDINGS = (TUNED, INTERPOLATED_ENDING)
"""What follows training."""
CROSSED = ", another trial's benefits"
"""End of the name of a row whose benefits were learned in another repetition."""


def ending_of(name: str) -> str:
    """Return the end of a row's name that says what follows training, empty if nothing does.

    Examples
    --------
    >>> ending_of("fedavg-wide+ft")
    '+ft'
    """
    return next((one for one in ENDINGS if name.endswith(one)), "")


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    Attributes
    ----------
    name : str
        The name in the tables; ends in ``+ft`` if models are fine-tuned on own data, and in
        ``+wise`` if means of the models before and after may be kept as well.
    method : str
        A name of `fedegoists.methods.METHODS`.
    where : str
        The coalitions: all participants ``alone``, ``baseline`` (cliques, then strongly connected
        components), those of the ``published`` algorithm, or the ``best`` ones.
    benefit : str
        The benefit graph that decides about coalitions and contributors: ``learned``, ``relative``
        (learned, with a threshold relative to the number of members), ``crossed``
        (learned in the next repetition, which divides the same samples differently), ``denser``
        (learned with a lower threshold), ``measured``, or ``everybody`` (all benefit all others).
    rivals : bool
        Whether competition counts; without it no participants compete.
    settings : tuple of (name, value)
        Settings of the method other than its defaults. Rows that were trained before may have
        settings that the method has no longer; they are not trained again.
    length : float
        Its number of steps, in multiples of those of Local.
    """

    name: str
    method: str
    where: Where = "baseline"
    benefit: Benefit = "learned"
    rivals: bool = True
    settings: tuple[tuple[str, Any], ...] = ()
    length: float = 1

    @property
    def ending(self) -> str:
        """The end of the name that says what follows training, empty if nothing does."""
        return ending_of(self.name)

    @property
    def tuned(self) -> bool:
        """Whether models are fine-tuned on own data at the end."""
        return bool(self.ending)

    @property
    def base(self) -> "Variant":
        """The same without fine-tuning."""
        return replace(self, name=self.name.removesuffix(self.ending))

    def followed(self, ending: str) -> "Variant":
        """Return the same with another end: fine-tuned, or between the models before and after."""
        return replace(self, name=f"{self.base.name}{ending}")

    @property
    def chooser(self) -> "Variant":
        """The row whose learning rate it uses: untuned, with benefits of its own repetition."""
        if self.benefit != "crossed":
            return self.base
        return replace(self.base, name=self.base.name.removesuffix(CROSSED), benefit="learned")

    def set_to(self, given: Mapping[str, Any]) -> "Variant":
        """Return the row with some settings changed."""
        changed = {**dict(self.settings), **given}
        return replace(self, settings=tuple(changed.items()))

    def renamed(self, ending: str, **changes: Any) -> "Variant":
        """Return a changed row with a longer name, before ``+ft`` or ``+wise``."""
        return replace(self, name=f"{self.base.name}{ending}{self.ending}", **changes)

    @property
    def depends_on_coalitions(self) -> bool:
        """Whether results depend on the coalitions."""
        return self.where != "alone"


def _with_tuning(*variants: Variant) -> tuple[Variant, ...]:
    tuned = (variant.followed(TUNED) for variant in variants)
    return tuple(one for pair in zip(variants, tuned, strict=True) for one in pair)


LOCAL = Variant("local", "local", "alone")
LOCAL_KEPT = Variant("local-kept", "local", "alone", settings=(("keep_momentum", True),))
BASELINES = _with_tuning(
    *(
        Variant(name, name)
        for name in (
            "fedavg",
            "fedprox",
            "scaffold",
            "pfedme",
            "pfedhn",
            "feddisco",
            "pfedgraph",
            "fedora",
        )
    )
)
EGOISTS = Variant("fedegoists", "fedegoists", "published")
OUTER = (("outer", 0.5),)
"""Named although it is the default: cells of another default would have other names."""
BEST = Variant("egomix", "egomix", "published", settings=OUTER)
FASTER = Variant("egomix-0.8", "egomix", "published", settings=(("outer", 0.8),))
"""EgoMix with the momentum of mixtures that suits images."""


def _wide(variant: Variant) -> Variant:
    """Return the same row in the widest coalitions that competition allows."""
    return variant.renamed(WIDEST, where="best", benefit="everybody")


WIDE = _wide(BEST)
YARDSTICKS = tuple(variant.name for variant in (EGOISTS, BEST, WIDE, _wide(FASTER)))
"""The rows with which baselines are compared."""
OURS = ("egomix", "fedegoists")
"""Beginnings of the names of rows that are ours or the paper's own, and of no other row."""
OURS_AT_BEST = _wide(FASTER).followed(INTERPOLATED_ENDING).name
"""EgoMix as validation data of images prefers it."""

PAPER = (
    LOCAL,
    LOCAL_KEPT,
    BEST,
    WIDE,
    *BASELINES,
    *_with_tuning(EGOISTS),
)
"""The ten methods of the paper, with and without tuning, and EgoMix twice: in published coalitions
along learned benefits, and in the widest coalitions. EgoMix keeps its momentum from round to round,
so there is a row of Local that does so, too. No other method has the momentum of mixtures."""


HOSPITALS = (*PAPER, BEST.renamed(CROSSED, benefit="crossed"))
"""The paper's rows, and one whose benefits were learned from other validation data than those that
judge it, which makes a difference with few patients."""

LONG = 2.1
"""Steps of Local, then of any other method, then of fine-tuning, in multiples of Local."""
PHASES = (("alone", round(1 / LONG, 4)), ("tune", round(0.1 / LONG, 4)))
UNAWARE = (("prior", False), ("by_class", False))


def _both(name: str, **changes: Any) -> tuple[Variant, ...]:
    """Return FedEgoists and EgoMix with a change."""
    return tuple(
        replace(variant, name=f"{variant.name}, {name}", **changes) for variant in (EGOISTS, BEST)
    )


QUESTIONS: dict[str, tuple[Variant, ...]] = {
    "coalitions": (LOCAL, EGOISTS, BEST, *_both("best coalitions", where="best")),
    "benefit": (
        LOCAL,
        EGOISTS,
        BEST,
        *_both("measured benefit", benefit="measured"),
        *_both("everybody benefits", benefit="everybody"),
    ),
    "contributors": (
        LOCAL,
        EGOISTS,
        replace(EGOISTS, name="fedegoists, whole coalition", settings=(("whole_coalition", True),)),
    ),
    "hypernetwork": (
        LOCAL,
        EGOISTS,
        replace(EGOISTS, name="fedegoists, direct gradients", settings=(("generator", "direct"),)),
        replace(
            EGOISTS,
            name="fedegoists, preferences as published",
            settings=(("preferences", "hypernetwork"),),
        ),
    ),
    "principles": (LOCAL, EGOISTS, BEST, *_both("no competition", rivals=False)),
    "mixing": (
        LOCAL,
        BEST,
        *(
            replace(BEST, name=f"egomix, {name}", settings=(*OUTER, *settings))
            for name, settings in (
                ("everything mixed alike", (("own", "nothing"), *UNAWARE)),
                ("without label shares", UNAWARE),
                ("classes mixed alike", (("by_class", False),)),
                ("output layer not mixed", (("own", "layer"),)),
                ("momentum from zero", (("keep_momentum", False),)),
                ("by samples", (("weighting", "samples"),)),
                ("by benefit", (("weighting", "benefit"),)),
                ("by updates", (("weighting", "updates"),)),
            )
        ),
        replace(BEST, name="egomix, mixtures at rest", settings=(("outer", 0.0),)),
        replace(
            BEST, name="egomix, alone first, 2.1 times", settings=(*OUTER, *PHASES), length=LONG
        ),
    ),
}
"""Questions that the paper leaves open, each with the rows that answer it."""

COMPANY = (LOCAL, BEST, *BASELINES, WIDE, *(_wide(variant) for variant in BASELINES))
"""Rows that separate the effect of wide coalitions from the effect of the method."""
ZERO = (("keep_momentum", False),)
PLAIN = (
    *dict.fromkeys((*PAPER, *COMPANY)),
    replace(WIDE, name=f"{WIDE.name}+ft"),
    *_with_tuning(
        WIDE.renamed(", at rest", settings=(("outer", 0.0),)),
        WIDE.renamed(", from zero", settings=(*OUTER, *ZERO)),
        WIDE.renamed(", at rest, from zero", settings=(("outer", 0.0), *ZERO)),
    ),
)
"""The paper's rows, all baselines in the widest coalitions as well, and EgoMix tuned and with less
momentum: ``at rest`` without that of mixtures, ``from zero`` with silos' momentum set to zero at
the start of every round."""


def wide_name(name: str) -> str:
    """Return the name of a row in the widest coalitions."""
    ending = ending_of(name)
    return f"{name.removesuffix(ending)}{WIDEST}{ending}"


def crossed_name(name: str) -> str:
    """Return the name of a row along benefits learned in another repetition."""
    return f"{name}{CROSSED}"


SIXTEEN = (
    LOCAL,
    LOCAL_KEPT,
    BEST,
    WIDE,
    *(_wide(variant) for variant in BASELINES if variant.method == "fedavg"),
    *(variant for variant in BASELINES if variant.method == "scaffold"),
)
"""The rows trained longest: Local, EgoMix, FedAvg in the widest coalitions, and the baseline that
is best with four times the steps."""
FOUR_TIMES, SIXTEEN_TIMES = ", four times", ", sixteen times"
"""Ends of the names of rows that train longer."""
LONGER = (
    LOCAL,
    BEST,
    WIDE,
    *(
        variant.renamed(FOUR_TIMES, length=4)
        for variant in (
            *PAPER,
            replace(BEST, name="egomix, denser benefits", where="best", benefit="denser"),
            replace(BEST, name="egomix, everybody benefits", benefit="everybody"),
        )
    ),
    *(variant.renamed(SIXTEEN_TIMES, length=16) for variant in SIXTEEN),
)
"""Rows that show whether training has converged, and the effect of wider coalitions then."""

MODERN = (
    *("fedavgm", "slowmo", "fedper", "fedrep", "fedbabu", "ditto", "apfl", "fedala", "fedfomo"),
    "feddbe",
)
"""Methods that the paper does not compare with."""
OWN_BUDGET = {"pfedme": 5, "pfedhn": 6}
"""Steps that a method's paper takes, in multiples of Local's: pFedMe's personal model takes five
steps where its shared one takes one, and pFedHN's participants train 25,000 steps on images."""
PARAMETERS: dict[str, tuple[tuple[str, Any], ...]] = {
    "fedprox": (("mu", 0.001), ("mu", 0.1)),
    "scaffold": (("server_rate", 0.5), ("server_rate", 1.5)),
    "pfedme": (("lam", 5.0), ("lam", 45.0)),
    "pfedhn": (("outer_rate", 0.003), ("outer_rate", 0.03)),
    "feddisco": (("a", 0.1), ("a", 1.0)),
    "pfedgraph": (("alpha", 0.2), ("alpha", 3.2)),
    "fedora": (("propagation", 0.5), ("propagation", 0.95)),
    "fedegoists": (("own_weight", 0.5), ("warm_up", 0.25)),
    "egomix": (("outer", 0.3), ("outer", 0.7)),
    "fedavgm": (("beta", 0.5), ("beta", 0.7)),
    "slowmo": (("beta", 0.5), ("beta", 0.8)),
    "fedrep": (("head", 0.25), ("head", 0.75)),
    "ditto": (("lam", 0.01), ("lam", 1.0)),
    "apfl": (("start_at", 0.25), ("start_at", 0.75)),
    "fedala": (("rate", 0.1), ("rate", 10.0)),
    "fedfomo": (("server_rate", 0.5), ("server_rate", 1.5)),
    "feddbe": (("kappa", 1.0), ("kappa", 10.0)),
    "fedpac": (("lam", 0.1), ("lam", 10.0)),
    "egomix-0.8": (("outer", 0.7), ("prior", False)),
}
"""The settings that are tried beside each method's defaults, two for every method, by the method's
name, or by the row's if that has other ones. Methods without a parameter are tried at two more
learning rates."""

_OTHERS = tuple(variant for variant in BASELINES if not variant.tuned)
_MODERN = (
    *(Variant(name, name) for name in MODERN),
    Variant(
        "fedavgm-kept",
        "fedavgm",
        settings=(("beta", 0.8), ("nesterov", True), ("buffers", "averaged")),
    ),
)
"""The last one has EgoMix's two momenta, and nothing else of it."""
FAIR = (
    LOCAL,
    LOCAL_KEPT,
    *_with_tuning(BEST, WIDE),
    *_with_tuning(*_OTHERS, *_MODERN),
    *_with_tuning(*(_wide(variant) for variant in (*_OTHERS, *_MODERN))),
    *_with_tuning(EGOISTS),
    *(
        replace(variant, name=f"{variant.name}, own budget", length=OWN_BUDGET[variant.method])
        for variant in _OTHERS
        if variant.method in OWN_BUDGET
    ),
    *(
        variant.renamed(", relative threshold", benefit="relative")
        for variant in (BASELINES[0], EGOISTS, BEST)
    ),
)
"""The rows of corrected tables: all methods along learned benefits, as the paper has its baselines,
and in the widest coalitions, tuned and not."""
_FEDPAC = Variant("fedpac", "fedpac")
INTERPOLATED = tuple(
    _wide(variant).followed(INTERPOLATED_ENDING)
    for variant in (FASTER, *_OTHERS, *_MODERN)
    if variant.name in ("egomix-0.8", "fedavg", "scaffold", "fedavgm", "fedavgm-kept", "slowmo")
)
"""Means of the models before and after fine-tuning: of EgoMix, and of the averages that come
nearest to it."""
FAIR_IMAGES = (
    LOCAL,
    *_with_tuning(*(_wide(variant) for variant in (FASTER, *_OTHERS, *_MODERN, _FEDPAC))),
    *_with_tuning(EGOISTS),
    *INTERPOLATED,
)
"""The rows of images: FedEgoists along learned benefits, and all other methods in the widest
coalitions, in which most is to be gained."""
NAMES_WITH_TUNED_ROW = frozenset(row.base.name for row in FAIR_IMAGES if row.ending == TUNED)
"""The rows of images that are judged by the better of themselves and their fine-tuned models."""
SCREENED_METHODS = (
    *("egomix-0.8", "fedavg", "pfedgraph", "fedora", "fedavgm", "fedavgm-kept", "slowmo"),
    *("fedper", "fedala", "fedfomo"),
)
SCREENED = ("local", *(f"{name}{WIDEST}" for name in SCREENED_METHODS))
"""The rows that images have at all levels of competition and for every β, with their fine-tuned
ones: those that are not behind Local at the level at which rates are chosen, by validation data of
the deciding repetitions and on average over both data sets and both distributions; and FedAvg."""
FAIR_HOSPITALS = (
    LOCAL,
    *_with_tuning(BEST, WIDE),
    *_with_tuning(
        *(_wide(one) for one in _OTHERS),
        *(_wide(one) for one in _MODERN if one.name in SCREENED_METHODS),
    ),
    *_with_tuning(EGOISTS),
    BEST.renamed(CROSSED, benefit="crossed"),
)
"""The rows of hospitals: the paper's methods, and the others that images have at all levels."""

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for rows in (
        HOSPITALS,
        *QUESTIONS.values(),
        COMPANY,
        PLAIN,
        LONGER,
        FAIR_HOSPITALS,
        FAIR_IMAGES,
    )
    for variant in rows
}


def settings_tried(variant: Variant) -> tuple[tuple[str, Any], ...] | None:
    """Return the settings that are tried beside those of a row; None if it has no parameter."""
    row = variant.base.name.removesuffix(WIDEST)
    return PARAMETERS.get(row, PARAMETERS.get(variant.method))


def variant_named(name: str) -> Variant:
    """Return a row by its name."""
    if name not in VARIANTS:
        raise SettingsError(f"unknown row {name!r}; rows are {', '.join(VARIANTS)}")
    return VARIANTS[name]
