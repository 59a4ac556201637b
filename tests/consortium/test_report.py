"""The report: everything is said and escaped, nothing is loaded, and members learn no secrets."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES, BenefitEstimate
from fedegoists.coalitions import form
from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.consortium.consortium_settings import BenefitSection
from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.gains import gains_over_local
from fedegoists.consortium.pipeline import LearnedBenefit
from fedegoists.consortium.report import write_report
from fedegoists.consortium.report.setup_section import settings_text
from fedegoists.federation import Failure, Participant
from fedegoists.graphs import BenefitGraph, CompetitionGraph

VOID = {"meta", "br", "link", "img", "input", "hr"}
LONG = "The Very Long Name of an Organisation That Nobody Ever Thought of Shortening " * 2
NASTY = "<img src=x onerror=\"alert(1)\"> & 'sons'"
T_AT = [0.908, 0.789, 0.971]
"""Student's t distribution with two degrees of freedom at 2, 1 and 4, from a table."""
ODD = [NASTY, "東京銀行", LONG.strip(), "بنك الشمال", "Łódź"]


class Balance(HTMLParser):
    """Checks that every element is closed where it should be, and keeps all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.texts, self.headings = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *one) for one in attrs]
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *one) for one in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th", "span"):
            self.texts.append(" ")

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


def make(folder, names, edges, pairs=(), *, task="binary", **training):
    data = folder / "data"
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in names:
        x = rng.normal(size=(24, 2))
        if task == "binary":
            target = np.where(np.arange(24) % 2 == 0, "no", "yes")
        else:
            target = 100 * x.sum(1)
        lines = [f"{a:.3f},{b:.3f},{y}" for (a, b), y in zip(x, target, strict=True)]
        (data / f"{name}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")
    schema = f'features = ["a", "b"]\ntarget = "y"\ntask = "{task}"\nmissing = "error"\n'
    if task == "binary":
        schema += 'classes = ["no", "yes"]\n'
    (data / "schema.toml").write_text(schema, encoding="utf-8")
    graph = BenefitGraph.from_edges(edges, names)
    (folder / "benefit.csv").write_bytes(graph.csv_bytes())
    settings = ConsortiumSettings(
        name="small",
        data={"source": str(data)},
        competition={"pairs": tuple(pairs)},
        benefit={"estimator": "file", "file": str(folder / "benefit.csv")},
        formation={"method": "stable"},
        training={"methods": ("local", "fedavg"), "seeds": 2, "steps": 20, **training},
        output={"folder": str(folder / "runs")},
    )
    return Consortium(settings).run()


def circle(names):
    return [(a, names[(k + 1) % len(names)], 1 + k / 7) for k, a in enumerate(names)]


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    names = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"]
    return make(
        tmp_path_factory.mktemp("banks"),
        names,
        [
            ("Alder", "Birch", 0.5),
            ("Birch", "Alder", 0.25),
            ("Cedar", "Dogwood", 1),
            ("Elm", "Cedar", 2),
        ],
        [("Alder", "Cedar"), ("Dogwood", "Elm")],
        methods=("local", "fedavg+ft"),
    )


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return make(tmp_path_factory.mktemp("odd"), ODD, circle(ODD[:3]), [(ODD[0], ODD[3])], seeds=1)


def pages_of(run):
    return {
        path.relative_to(run.folder).as_posix(): path.read_text(encoding="utf-8")
        for path in run.folder.rglob("*.html")
    }


def written(run, folder):
    run = replace(run, folder=folder / "runs" / "small")
    write_report(run)
    return pages_of(run)


def with_graphs(run, edges, pairs, **learned):
    names = run.formation.participants
    graph = BenefitGraph.from_edges(edges, names)
    formation = form(graph, CompetitionGraph(pairs, names), "stable")
    return replace(run, formation=formation, benefit=LearnedBenefit(graph, **learned))


def test_says_everything(banks):
    page = Balance(pages_of(banks)["report.html"])
    assert "2 of 5 participants train together, in 1 coalition." in page.text
    assert "Cedar, Dogwood and Elm train alone." in page.text
    assert "The total benefit is 0.75" in page.text
    for part in (
        "fedavg+ft", "AUC", "fedegoists verify certificate.json", "Alder and Cedar compete",
        "fedegoists run config.toml", "no free riders", "PyTorch", "MB sent",
    ):  # fmt: skip
        assert part in page.text
    for name in banks.formation.participants:
        assert page.text.count(name) > 5


def test_where_everybody_is_taken_to_benefit_everybody_only_competition_keeps_apart(banks):
    benefit = BenefitSection(estimator="everybody")
    settings = banks.settings.model_copy(update={"name": "wide", "benefit": benefit})
    run = Consortium(settings).run()
    assert run.benefit.weights is run.benefit.cost is None  # nobody was asked anything
    assert {x for _, _, x in run.benefit.graph.edges()} == {1.0}
    assert len(list(run.benefit.graph.edges())) == 5 * 4
    assert sorted(map(len, run.formation.coalitions)) == [2, 3]
    together = {name: group for group in run.formation.coalitions for name in group}
    for one, other in (("Alder", "Cedar"), ("Dogwood", "Elm")):
        assert together[one] != together[other]
    page = Balance(pages_of(run)["report.html"]).text
    assert "Everybody is taken to benefit everybody" in page
    assert "Read from a file" not in page


@pytest.mark.parametrize("estimator", ESTIMATOR_ENTRIES)
@pytest.mark.parametrize("pairs", [[], [("Alder", "Cedar")]])
def test_says_where_competitors_were_not_kept_apart(banks, tmp_path, estimator, pairs):
    runs = np.zeros((2, 1, 5, 5))
    names = banks.formation.participants
    estimate = BenefitEstimate(names, estimator, runs, runs, runs[0, 0])
    run = with_graphs(banks, [("Alder", "Birch", 1), ("Birch", "Alder", 1)], pairs)
    run = replace(run, benefit=replace(run.benefit, estimate=estimate))
    pages = written(run, tmp_path)
    warned = "competitors were not kept apart" in pages.pop("report.html")
    assert warned == (bool(pairs) and estimator in ("hypernetwork", "pairs"))
    assert not any("not kept apart" in page for page in pages.values())


def test_costs_of_tuning_include_those_of_the_method_before(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    # Local and FedAvg take 20 steps, and tuning another 200.
    passes = {
        method: int(
            re.search(rf"{re.escape(method)} \S+ ± \S+ 2 ([\d,]+)", page)[1].replace(",", "")
        )
        for method in ("local", "fedavg+ft")
    }
    assert passes["fedavg+ft"] == 11 * passes["local"]


@pytest.mark.parametrize("which", ["banks", "odd"])
def test_pages_are_whole_and_load_nothing(which, request):
    for file, text in pages_of(request.getfixturevalue(which)).items():
        page = Balance(text)
        assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
        assert page.headings[0] == 1
        assert all(b <= a + 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
        for tag, name, value in page.attributes:
            assert not name.startswith("on"), (file, tag, name)
            assert name not in ("src", "srcset", "action", "background", "poster")
            if name.endswith("href"):
                assert value.startswith(("#", "members/")), value
        assert not re.search(r"https?://|@import|url\((?!#)", text)
        assert "default-src 'none'" in text
        tags = {tag for tag, _, _ in page.attributes}
        assert not tags & {"script", "iframe", "img", "link", "object", "embed"}
        ids = [value for _, name, value in page.attributes if name == "id"]
        assert len(ids) == len(set(ids))


def test_everything_from_users_is_escaped(odd):
    pages = pages_of(odd)
    files = file_names(odd.formation.participants)
    assert set(pages) == {"report.html", *(f"members/{file}.html" for file in files.values())}
    for text in pages.values():
        assert "<img" not in text
        assert "</bdi>" in text
    report = Balance(pages["report.html"])
    for name in ODD:
        assert " ".join(name.split()) in report.text
        assert " ".join(name.split()) in Balance(pages[f"members/{files[name]}.html"]).text


def test_links_lead_to_the_pages_of_members(odd):
    from urllib.parse import unquote

    pages = pages_of(odd)
    links = {
        unquote(value)
        for _, name, value in Balance(pages["report.html"]).attributes
        if name == "href" and value.startswith("members/")
    }
    assert links == set(pages) - {"report.html"}


def test_the_same_run_gives_the_same_bytes(banks, tmp_path):
    later = replace(banks, seconds={**banks.seconds, "report": 9.0})
    assert written(banks, tmp_path) == written(later, tmp_path)


def test_only_the_owner_can_read_them(banks):
    for path in (banks.folder / "report.html", *(banks.folder / "members").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


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


def test_who_was_away_is_named_to_the_manager_alone(banks, tmp_path):
    pages = written(replace(banks, absent=("Fir",), undelivered=("Elm",)), tmp_path)
    report = pages.pop("report.html")
    assert "<li>data: <bdi>Fir</bdi>, away and left out</li>" in report
    assert "<li>report: <bdi>Elm</bdi>, its silo has not got its model</li>" in report
    assert pages
    assert not any("Fir" in page or "has not got" in page for page in pages.values())


def test_members_see_only_their_own_coalition(banks):
    pages = pages_of(banks)
    everybody = set(banks.formation.participants)
    for name in everybody:
        text = Balance(pages[f"members/{name}.html"]).text
        group = set(banks.formation.coalition_of(name))
        assert {other for other in everybody if other in text} == group
        assert text.count("compete") == 1  # that it is not shown
        assert "It does not show who competes with whom" in text
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


def test_nobody_together(banks, tmp_path):
    page = Balance(written(with_graphs(banks, [], []), tmp_path)["report.html"]).text
    assert "Nobody trains together. No benefit between any two participants was found." in page
    assert "proven to be the highest possible" in page
    assert "Nobody was reported to compete." in page


def test_learned_weights_are_shown_with_their_errors(banks, tmp_path):
    weights = banks.formation.benefit.weights + 0.03 * ~np.eye(5, dtype=bool)
    cost = {"rounds": 1, "bytes_sent": 10**6, "bytes_received": 10**6, "sample_passes": 1234}
    edges = list(banks.formation.benefit.edges())
    run = with_graphs(
        banks, edges, [], weights=weights, spread=weights / 10, cost=cost,
        failures=("Elm: failed 2 times, last timeout",),
    )  # fmt: skip
    pages = written(run, tmp_path)
    page = Balance(pages["report.html"]).text
    assert "Alder → Birch: 0.53 ± 0.053, used in a coalition" in page
    assert "Alder → Cedar: 0.03 ± 0.003, does not count" in page
    assert "1,234 sample passes and 2 MB" in page
    assert "benefit: Elm, failed 2 times, last timeout" in page
    assert "failed 2 times" in Balance(pages["members/Elm.html"]).text
    assert "failed 2 times" not in Balance(pages["members/Alder.html"]).text


def test_read_weights_have_no_errors(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    assert "Read from a file" in page
    assert "Standard error" not in page


def test_without_local_there_are_no_gains(banks, tmp_path):
    training = banks.settings.training.model_copy(update={"methods": ("fedavg+ft",)})
    settings = banks.settings.model_copy(update={"training": training})
    pages = written(replace(banks, settings=settings, gains=[]), tmp_path)
    assert "the method local , training alone, is the yardstick" in pages["report.html"].replace(
        "<code>", ""
    ).replace("</code>", " ")
    assert "the yardstick, was not among the methods" in pages["members/Elm.html"]


def test_one_seed_has_no_interval(odd):
    page = Balance(pages_of(odd)["report.html"]).text
    assert "There was one seed" in page
    assert "not sure" in page
    assert "nan" not in page.casefold().split()
    assert "95 % interval;" not in page


def test_words_for_gains(banks, tmp_path):
    first = banks.gains[0]
    gains = [
        replace(first, participant=name, gain=(low + high) / 2, low=low, high=high)
        for name, low, high in (
            ("Alder", 0.1, 0.3), ("Birch", -0.3, -0.1), ("Cedar", -0.1, 0.2), ("Elm", -9, 9.2),
        )
    ]  # fmt: skip
    pages = written(replace(banks, gains=gains), tmp_path)
    page = Balance(pages["report.html"]).text
    assert "1 better, 2 no clear difference, 1 worse" in page
    assert "+0.200 ▲ better" in page
    assert "−0.200 ▼ worse" in page
    assert "+0.050 ◆ no clear difference" in page
    assert "An arrow: the interval goes on." in page
    assert "+0.100 to +0.300" in Balance(pages["members/Alder.html"]).text
    assert "no result both alone and with another" in Balance(pages["members/Dogwood.html"]).text


def test_somebody_without_a_model(banks, tmp_path):
    outcomes = {}
    names = banks.trials.federation.participants
    for method, outcome in banks.outcomes.items():
        scores = [
            (-math.inf, -math.inf) if name.name == "Elm" else score
            for name, score in zip(names, outcome.best_score, strict=True)
        ]
        failures = [(k + 1, Failure(Participant("Elm", k), "timeout")) for k in range(2)]
        outcomes[method] = replace(outcome, best_score=scores, failures=failures)
    wanted = {method: outcomes[method] for method in banks.settings.training.methods}
    gains = gains_over_local(wanted, banks.trials.federation)
    pages = written(replace(banks, outcomes=outcomes, gains=gains), tmp_path)
    page = Balance(pages["report.html"]).text
    assert "none: it was never validated" in page
    assert "local: Elm, timeout, 2 times" in page
    own = Balance(pages["members/Elm.html"]).text
    assert "Model: none" in own
    assert "Failed to answer in local: timeout, 2 times." in own


def test_lower_is_better_in_a_regression(tmp_path):
    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), task="regression")
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8")).text
    assert "mean squared error (lower is better)" in page
    assert "that is a lower error" in page
    assert "All 2 participants train together, in 1 coalition. Nobody trains alone." in page


def test_forty_participants(tmp_path):
    names = [f"Organisation {k}" for k in range(40)]
    edges = [edge for k in range(0, 30, 5) for edge in circle(names[k : k + 5])]
    pairs = [(names[k], names[k + 5]) for k in range(35)]
    run = make(tmp_path, names, edges, pairs, seeds=1)
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    page = Balance(text)
    assert "10 train alone." in page.text
    assert text.count('class="cell"') == 40 * 39
    assert len(text) < 2e6
    assert len(list((run.folder / "members").iterdir())) == 40


def test_more_participants_than_a_page_can_show_in_pairs(tmp_path):
    names = [f"o{k}" for k in range(61)]
    run = make(tmp_path, names, circle(names[:3]), seeds=1, methods=("local",))
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8")).text
    assert "too many participants for a picture. The file benefit.csv" in page
    assert "fedegoists explain certificate.json NAME" in page
    assert "local , training alone, was the only method" in page.replace("local,", "local ,")


def test_a_single_participant(tmp_path):
    run = make(tmp_path, ["Only"], [], seeds=1)
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8")).text
    assert "Nobody trains together." in page
    assert page.count("There is only one participant.") == 2


def test_settings_say_nothing_of_the_machine(banks):
    text = (banks.folder / "report.html").read_text(encoding="utf-8")
    assert str(banks.folder.parent.parent) not in text
    assert "../../data" in text
    deploy = banks.settings.deploy.model_copy(
        update={"schema_file": str(banks.folder.parent / "schema.toml")}
    )
    shown = settings_text(banks.settings.model_copy(update={"deploy": deploy}), banks.folder)
    assert 'schema_file = "../schema.toml"' in shown


def test_nobodys_file_is_anothers():
    names = ["a/b", "a_b", "A_B", "...", "a_b-c14cddc0", "x" * 200, "x" * 199, "銀" * 200]
    files = file_names(names)
    assert len({file.casefold() for file in files.values()}) == len(names)
    assert all(0 < len(f"{file}.safetensors".encode()) < 255 for file in files.values())
    assert not any(set(file) & set('/\\:<>"|?*') or file[0] == "." for file in files.values())


def estimated(names, gains, errors):
    """Return an estimate whose gains are known with some errors, the same in two repeats."""
    gains, errors = np.array(gains, float), np.array(errors, float)
    # Half the difference of two halves is the error.
    runs = np.stack([np.stack([gains - errors, gains + errors])] * 2)
    return BenefitEstimate(names, "transfer", np.maximum(runs, 0), runs, gains)


@pytest.mark.parametrize("pairs", [(), (("Alder", "Birch"),)])
def test_why_nobody_trains_together(banks, tmp_path, pairs):
    names = banks.formation.participants
    gains, errors = np.zeros((5, 5)), np.ones((5, 5))
    # By Student's t with two degrees of freedom: 4 errors are sure to 97 %, 2 to 91 %, 1 to 79 %.
    gains[0, 1], gains[1, 0], gains[2, 3] = 2.0, 1.0, 4.0
    estimate = estimated(names, gains, errors)
    np.testing.assert_allclose(estimate.confidences()[[0, 1, 2], [1, 0, 3]], T_AT, atol=1e-3)
    assert estimate.confidences()[0, 2] == 0
    graph = estimate.graph(confidence=0.95)
    assert [edge[:2] for edge in graph.edges()] == [("Cedar", "Dogwood")]
    formation = form(graph, CompetitionGraph(pairs, names))
    learned = LearnedBenefit(graph, estimate.weights, estimate.spread, estimate=estimate)
    settings = banks.settings.model_copy(update={"benefit": BenefitSection(confidence=0.95)})
    run = replace(banks, formation=formation, benefit=learned, settings=settings)
    pages = written(run, tmp_path)
    page = Balance(pages["report.html"]).text
    assert "Of 20 possible benefits, 1 does." in page
    assert "Cedar Dogwood 4 97 % yes Alder Birch 2 91 % no" in page
    if pairs:
        assert (
            "No lower confidence that was tried would change that: even with 50 %, 3 benefits"
            in page
        )
        assert "less-careful" not in page
    else:
        assert "With 0.78 instead, 3 benefits would count, and {Alder, Birch} would train" in page
        assert "--set benefit.confidence=0.78 --name less-careful" in page
    # Which evidence there is would tell members about others.
    assert all("evidence" not in text for file, text in pages.items() if "members" in file)
    certain = replace(run, benefit=LearnedBenefit(graph))
    other = Balance(written(certain, tmp_path / "read")["report.html"]).text
    assert "Why nobody trains together" not in other


def test_why_nobody_reaches_a_threshold(banks, tmp_path):
    names = banks.formation.participants
    gains = np.zeros((5, 5))
    gains[0, 1] = gains[1, 0] = 0.2
    estimate = estimated(names, gains, 0.01 * np.ones((5, 5)))
    graph = estimate.graph(0.5)
    settings = banks.settings.model_copy(update={"benefit": BenefitSection(threshold=0.5)})
    learned = LearnedBenefit(graph, estimate.weights, estimate.spread, estimate=estimate)
    formation = form(graph, CompetitionGraph((), names))
    run = replace(banks, formation=formation, benefit=learned, settings=settings)
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "No benefit between any two participants is large enough to count." in page
    assert "A benefit counts where its weight is above 0.5. Of 20 possible benefits, none" in page
    assert "--set benefit.threshold=0.19" in page
