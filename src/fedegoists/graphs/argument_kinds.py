"""Arguments of the wrong kind, such as the two graphs in the wrong order."""

from fedegoists.errors import GraphError, shown
from fedegoists.graphs.benefit_graph import BenefitGraph
from fedegoists.graphs.competition_graph import CompetitionGraph


def check_graphs(benefit: object, competition: object) -> None:
    """Refuse arguments that are not benefits first and a competition graph second.

    Examples
    --------
    >>> rivals = CompetitionGraph([], ["a"])
    >>> check_graphs(rivals, BenefitGraph([[0]], ["a"]))
    Traceback (most recent call last):
    ...
    fedegoists.errors.GraphError: the competition graph was given first; give the benefit graph \
(or the coalition values) first and the competition graph second
    """
    if isinstance(benefit, CompetitionGraph) and not isinstance(competition, CompetitionGraph):
        raise GraphError(
            "the competition graph was given first; give the benefit graph (or the coalition "
            "values) first and the competition graph second"
        )
    # From Python 3.12 on, a protocol does not see what a class passes on to another one.
    if not (isinstance(benefit, BenefitGraph) or hasattr(benefit, "upper_gains")):
        raise GraphError(
            f"expected a BenefitGraph or coalition values first, got {shown(benefit)}; make one "
            "with BenefitGraph(weights, participants)"
        )
    if not isinstance(competition, CompetitionGraph):
        raise GraphError(
            f"expected a CompetitionGraph second, got {shown(competition)}; make one with "
            "CompetitionGraph(pairs, participants)"
        )
