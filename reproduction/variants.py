"""The rows of the tables: a method, where it trains, and what it is told about benefit."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from fedegoists.errors import SettingsError

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
Benefit = Literal["learned", "crossed", "denser", "measured", "everybody"]


CROSSED = ", another trial's benefits"
"""How the name of a row ends whose benefits were learned in another trial."""


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    Attributes
    ----------
    name : str
        In the tables; ``+ft`` at its end for what is fine-tuned on own data.
    method : str
        A name of `fedegoists.methods.METHODS`.
    where : str
        Which coalitions: everybody ``alone``, the ``baseline`` ones (cliques, then strongly
        connected components), those of the ``published`` algorithm, or the ``best`` ones.
    benefit : str
        Which benefit graph decides the coalitions and who contributes: ``learned``, ``crossed``
        (learned in the next trial, which divides the same samples in another way), ``denser``
        (learned once more, with a lower threshold), ``measured``, or ``everybody`` benefits
        everybody.
    rivals : bool
        Whether competition counts; without it nobody competes.
    settings : tuple of (name, value)
        Of the method, other than its defaults.
    passes : float
        How many times the steps of Local it takes.
    """

    name: str
    method: str
    where: Where = "baseline"
    benefit: Benefit = "learned"
    rivals: bool = True
    settings: tuple[tuple[str, Any], ...] = ()
    passes: float = 1

    @property
    def tuned(self) -> bool:
        """Whether models are fine-tuned on own data at the end."""
        return self.name.endswith("+ft")

    @property
    def base(self) -> "Variant":
        """The same without fine-tuning."""
        return replace(self, name=self.name.removesuffix("+ft"))

    @property
    def chooser(self) -> "Variant":
        """The row whose learning rate it has: untuned, and along benefits of one's own trial."""
        if self.benefit != "crossed":
            return self.base
        return replace(self.base, name=self.base.name.removesuffix(CROSSED), benefit="learned")

    def renamed(self, ending: str, **changes: Any) -> "Variant":
        """Return it with changes, and a name that says so before ``+ft``."""
        tuned = "+ft" if self.tuned else ""
        return replace(self, name=f"{self.base.name}{ending}{tuned}", **changes)

    @property
    def depends_on_coalitions(self) -> bool:
        """Whether it matters who trains with whom."""
        return self.where != "alone"


def _with_tuning(*variants: Variant) -> tuple[Variant, ...]:
    tuned = (replace(variant, name=f"{variant.name}+ft") for variant in variants)
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
"""Named although it is the default, so that cells of another default have other names."""
BEST = Variant("egomix", "egomix", "published", settings=OUTER)


def _wide(variant: Variant) -> Variant:
    """Return the same in as much company as competition allows."""
    return variant.renamed("-wide", where="best", benefit="everybody")


WIDE = _wide(BEST)
YARDSTICKS = tuple(variant.name for variant in (EGOISTS, BEST, WIDE))
"""What baselines are compared with."""

PAPER = (
    LOCAL,
    LOCAL_KEPT,
    BEST,
    WIDE,
    *BASELINES,
    *_with_tuning(EGOISTS),
)
"""The ten methods of the paper, tuned ones beside them, and the best variant, once in published
coalitions along learned benefits and once in all the company there is; for a fair comparison with
it Local whose momentum goes on over rounds, too. No other method has the momentum of mixtures."""


HOSPITALS = (*PAPER, BEST.renamed(CROSSED, benefit="crossed"))
"""The paper's rows, and one whose benefits were learned from other validation data than they are
judged by: with few patients that makes a difference."""

LONG = 2.1
"""As long as Local, as long as any other method, and as long as fine-tuning takes."""
PHASES = (("alone", round(1 / LONG, 4)), ("tune", round(0.1 / LONG, 4)))
UNAWARE = (("prior", False), ("by_class", False))


def _both(name: str, **changes: Any) -> tuple[Variant, ...]:
    """Return FedEgoists and the best variant with something changed."""
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
            BEST, name="egomix, alone first, 2.1 times", settings=(*OUTER, *PHASES), passes=LONG
        ),
    ),
}
"""What the paper leaves open, each with the rows that answer it."""

COMPANY = (LOCAL, BEST, *BASELINES, WIDE, *(_wide(variant) for variant in BASELINES))
"""Whether company is what makes the difference, or what is done in it."""
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
"""The paper's rows, all baselines in all company, too, and EgoMix tuned and with less momentum:
``at rest`` without that of mixtures, ``from zero`` where the silos' starts anew in every round."""


def wide_name(name: str) -> str:
    """Return what a row is called in all the company there is."""
    return f"{name.removesuffix('+ft')}-wide{'+ft' if name.endswith('+ft') else ''}"


def crossed_name(name: str) -> str:
    """Return what a row is called along benefits that were learned in another trial."""
    return f"{name}{CROSSED}"


SIXTEEN = (
    LOCAL,
    LOCAL_KEPT,
    BEST,
    WIDE,
    *(_wide(variant) for variant in BASELINES if variant.method == "fedavg"),
    *(variant for variant in BASELINES if variant.method == "scaffold"),
)
"""What is trained longest: Local, EgoMix, the plainest average in all company, and the baseline
that is best with four times the steps."""
FOUR_TIMES, SIXTEEN_TIMES = ", four times", ", sixteen times"
"""How names of rows end that train longer."""
LONGER = (
    LOCAL,
    BEST,
    WIDE,
    *(
        variant.renamed(FOUR_TIMES, passes=4)
        for variant in (
            *PAPER,
            replace(BEST, name="egomix, denser benefits", where="best", benefit="denser"),
            replace(BEST, name="egomix, everybody benefits", benefit="everybody"),
        )
    ),
    *(variant.renamed(SIXTEEN_TIMES, passes=16) for variant in SIXTEEN),
)
"""Whether it is done training, and what more company gives then."""

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for rows in (HOSPITALS, *QUESTIONS.values(), COMPANY, PLAIN, LONGER)
    for variant in rows
}


def variant_named(name: str) -> Variant:
    """Return a row by its name."""
    if name not in VARIANTS:
        raise SettingsError(f"unknown row {name!r}; rows are {', '.join(VARIANTS)}")
    return VARIANTS[name]
