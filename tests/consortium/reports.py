"""Small runs and their pages, for tests of the report."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from fedegoists.benefit import BenefitEstimate
from fedegoists.coalitions import form
from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.consortium.consortium_run import LearnedBenefit
from fedegoists.consortium.report import write_report
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


def make(folder, names, edges, pairs=(), *, task="binary", rows=300, **training):
    data = folder / "data"
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in names:
        x = rng.normal(size=(rows, 2))
        if task == "binary":
            target = np.where(np.arange(rows) % 2 == 0, "no", "yes")
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


def pages_of(run):
    return {
        path.relative_to(run.folder).as_posix(): path.read_text(encoding="utf-8")
        for path in run.folder.rglob("*.html")
    }


def written(run, folder):
    run = replace(run, folder=folder / "runs" / "small")
    write_report(run)
    return pages_of(run)


def with_graphs(run, edges, pairs, estimate=None):
    names = run.formation.participants
    graph = BenefitGraph.from_edges(edges, names)
    formation = form(graph, CompetitionGraph(pairs, names), "stable")
    return replace(run, formation=formation, benefit=LearnedBenefit(graph, estimate))


def estimated(names, gains, errors):
    """Return an estimate whose gains are known with some errors, the same in two repeats."""
    gains, errors = np.array(gains, float), np.array(errors, float)
    # Half the difference of two halves is the error.
    runs = np.stack([np.stack([gains - errors, gains + errors])] * 2)
    return BenefitEstimate(names, "transfer", np.maximum(runs, 0), runs, gains)
