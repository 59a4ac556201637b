"""The files of the repository that pages name exist."""

import re

import pytest

from tests.docs.pages import DOCS

ROOT = DOCS.parent
FILE = r"`((?:src|tests)/[\w./-]+\.py)`"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    # A how-to page begins a line with the file that its reader is to write.
    created = re.findall(rf"^{FILE}", text, re.M) if page.stem.startswith("how-to-add-") else []
    named = set(re.findall(FILE, text)) - set(created)
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
