"""Hypothesis strategies for the graphs: any names a user may give, any weights, any pairs."""

import unicodedata
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from fedegoists.graphs import BenefitGraph, CompetitionGraph

quick = settings(max_examples=60, deadline=None)
"""How the tests draw examples: fewer than usual, and no failure for a busy machine."""

AWKWARD_NAMES = (
    "Bank, Inc.",
    'the "best" bank',
    '"',
    "'",
    "#1",
    "v0",
    "v2",
    "v10",
    "0",
    "-1",
    "1e3",
    "nan",
    "None",
    "source",
    "weight",
    "a",
    "a;b",
    "a\\n",
    "=1+1",
    "Zürich",
    "東京",
    "Ελλάδα",
    "🙂",
    "two  spaces",
)
"""Names that a careless reader or writer of files would get wrong."""

any_name = st.text(
    st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), min_size=1, max_size=12
).map(lambda text: unicodedata.normalize("NFC", text.strip()))

names = st.sampled_from(AWKWARD_NAMES) | any_name.filter(bool)

participant_lists = st.lists(names, max_size=4, unique=True)

# Down to the smallest and up to the largest double.
weights = st.just(0.0) | st.floats(min_value=0.0, max_value=1e300)


@st.composite
def benefit_graphs(draw: st.DrawFn) -> BenefitGraph:
    """Any benefit graph over up to four participants."""
    participants = draw(participant_lists)
    n = len(participants)
    rows = [[0.0 if i == j else draw(weights) for i in range(n)] for j in range(n)]
    return BenefitGraph(rows, participants)


@st.composite
def competition_graphs(draw: st.DrawFn) -> CompetitionGraph:
    """Any competition graph over up to four participants."""
    participants = draw(participant_lists)
    n = len(participants)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if draw(st.booleans())]
    return CompetitionGraph(pairs, participants)


BENEFIT_HEADER = "source,target,weight\n"
COMPETITION_HEADER = "a,b\n"


def graph_abc() -> BenefitGraph:
    """a benefits b by 0.5 and c by 2; c benefits a by 1e-300."""
    return BenefitGraph([[0, 0.5, 2], [0, 0, 0], [1e-300, 0, 0]], ["a", "b", "c"])


def graph_nsew() -> CompetitionGraph:
    """North competes with South and West; East with no one."""
    return CompetitionGraph(
        [("West", "North"), ("North", "South")], ["North", "South", "East", "West"]
    )


def _written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_benefit(folder: Path, content: str | bytes, participants: object = None) -> BenefitGraph:
    path = _written(folder / "benefit.csv", content)
    return BenefitGraph.from_csv(path, participants)  # type: ignore[arg-type]


def read_competition(
    folder: Path, content: str | bytes, participants: object = None
) -> CompetitionGraph:
    path = _written(folder / "competition.csv", content)
    return CompetitionGraph.from_csv(path, participants)  # type: ignore[arg-type]
