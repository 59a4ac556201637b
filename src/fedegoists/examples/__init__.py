"""Small built-in example consortia."""

from importlib import resources

from fedegoists.graphs import BenefitGraph, CompetitionGraph, read_graphs

__all__ = ["banks"]


def banks() -> tuple[BenefitGraph, CompetitionGraph]:
    """Return the graphs of ten invented banks; banks of the same region compete.

    Examples
    --------
    >>> benefit, competition = banks()
    >>> benefit.n, len(competition.pairs)
    (10, 8)
    """
    folder = resources.files(__package__) / "banks"
    with (
        resources.as_file(folder / "benefit.csv") as benefit,
        resources.as_file(folder / "competition.csv") as competition,
    ):
        return read_graphs(benefit, competition)
