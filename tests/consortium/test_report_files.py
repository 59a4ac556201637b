"""The pages of a report: whole, escaped, private, and the same again, for any number of members."""

import re
from dataclasses import replace

import pytest

from fedegoists.consortium.file_names import file_names
from tests.consortium.reports import ODD, Balance, circle, make, pages_of, written


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
    assert "No coalition was formed." in page
    assert page.count("There is only one participant.") == 2


def test_nobodys_file_is_anothers():
    names = ["a/b", "a_b", "A_B", "...", "a_b-c14cddc0", "x" * 200, "x" * 199, "銀" * 200]
    files = file_names(names)
    assert len({file.casefold() for file in files.values()}) == len(names)
    assert all(0 < len(f"{file}.safetensors".encode()) < 255 for file in files.values())
    assert not any(set(file) & set('/\\:<>"|?*') or file[0] == "." for file in files.values())
