"""What a formation says about itself."""

from fedegoists import BenefitGraph, CompetitionGraph, form


def test_utilities_are_what_each_receives():
    benefit = BenefitGraph([[0, 2, 0], [1, 0, 5], [4, 0, 0]])
    formation = form(benefit, CompetitionGraph([(0, 2)], 3), "stable")
    assert formation.coalitions == (("v0", "v1"), ("v2",))
    assert dict(formation.utilities) == {"v0": 1.0, "v1": 2.0, "v2": 0.0}
    assert formation.coalition_of("v1") == ("v0", "v1")
