"""The pages about methods say what the code does."""

import re

import pytest
import torch

from fedegoists.methods import METHOD_ENTRIES, METHODS, method_registry
from tests.docs.pages import DOCS, HowTo
from tests.methods.test_methods import QUICK
from tests.silos import federation, groups, initial


def section(name, page=None):
    page = page or (DOCS / "reference-methods.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.S | re.M)
    assert found, f"docs/reference-methods.md has no section for {name}"
    return found[1]


def check_section(text, entry):
    """Check that a section has the paper, the settings, and what the server sees."""
    if entry.paper is not None:
        assert entry.paper.title in " ".join(text.split())
    assert f"The server sees *{entry.server_sees}*. {entry.told}".strip() in text
    method = entry.load()
    for declared in method.declared():
        meaning = declared.metadata["meaning"]
        allowed = method.range_of(declared)
        assert f"| `{declared.name}` | {declared.default} | {allowed} | {meaning} |" in text


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_section_with_its_paper_and_settings(name):
    check_section(section(name), METHOD_ENTRIES[name])


def test_the_page_says_of_every_method_how_it_was_checked():
    rows = re.findall(r"^\| `(\w+)` \|", section("How each method was checked"), re.M)
    assert sorted(rows) == sorted(METHODS)


def test_the_method_of_the_page_works(monkeypatch, tmp_path):
    """The file in the how-to is a method: alone it is Local, in company it takes the median."""
    page = HowTo("how-to-add-a-method")
    page.module(monkeypatch, tmp_path)
    (name, entry), *_ = page.entry("{", vars(method_registry), "}").items()
    monkeypatch.setitem(METHOD_ENTRIES, name, entry)
    method = entry.load()(QUICK)
    assert method.name == name
    assert method.settings == QUICK
    assert entry.tunable
    silos_ = federation("mlp")
    start = initial("mlp")
    alone = groups([["s0"], ["s1"], ["s2"]])
    apart, _ = method.round(silos_, alone, method.start(silos_, alone, start, 0), seed=1)
    group = groups([["s0", "s1", "s2"]])
    together, report = method.round(silos_, group, method.start(silos_, group, start, 0), seed=1)
    median = apart.parameters.median(0).values
    torch.testing.assert_close(together.parameters, median.expand(3, -1))
    assert report.bytes_sent.keys() == set(silos_.participants)
    (block,) = page.blocks("markdown")
    check_section(section(name, block), entry)
    assert page.run_tests() == 1
