"""Participants' pages: their own results, and no secrets."""

from dataclasses import replace

from tests.consortium.reports import Balance, pages_of, with_graphs, written


def test_members_learn_nothing_about_competition(banks, tmp_path):
    edges = list(banks.formation.benefit.edges())
    first = with_graphs(banks, edges, [])
    pages = []
    for k, pairs in enumerate(
        ((), (("Cedar", "Dogwood"),), (("Alder", "Elm"), ("Birch", "Elm"), ("Cedar", "Dogwood")))
    ):
        other = with_graphs(banks, edges, pairs)
        settings = banks.settings.model_copy(
            update={"competition": banks.settings.competition.model_copy(update={"pairs": pairs})}
        )
        assert other.formation.coalitions == first.formation.coalitions
        pages.append(written(replace(other, settings=settings), tmp_path / str(k)))
    for page in pages[1:]:
        assert page["report.html"] != pages[0]["report.html"]
        for file in set(page) - {"report.html"}:
            assert page[file] == pages[0][file]


def test_members_see_only_their_own_coalition(banks):
    pages = pages_of(banks)
    everybody = set(banks.formation.participants)
    for name in everybody:
        text = Balance(pages[f"members/{name}.html"]).text
        group = set(banks.formation.coalition_of(name))
        assert {other for other in everybody if other in text} == group
        assert text.count("compet") == 1  # that it is not shown
        assert "It does not show competitors" in text
        assert f"{name}.safetensors" in text
    text = Balance(pages["members/Alder.html"]).text
    assert "Birch yes, 0.25 yes, 0.5" in text
    assert "Elm trains alone" in Balance(pages["members/Elm.html"]).text


def test_how_members_read_their_numbers_does_not_tell_on_others(banks, tmp_path):
    """A large error of one in another coalition once took away decimals from everybody."""
    outcomes = {
        method: replace(
            outcome,
            rows=[
                replace(row, value=1234.5) if row.participant.name == "Elm" else row
                for row in outcome.rows
            ],
        )
        for method, outcome in banks.outcomes.items()
    }
    pages = written(replace(banks, outcomes=outcomes), tmp_path)
    assert "1,234" in pages["members/Elm.html"]
    for name in ("Alder", "Birch", "Cedar", "Dogwood"):
        assert pages[f"members/{name}.html"] == pages_of(banks)[f"members/{name}.html"]
