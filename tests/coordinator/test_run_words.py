"""All stages of a run, and their parts, have plain words."""

import re
from pathlib import Path

import fedegoists
from fedegoists.consortium.pipeline import STAGES
from fedegoists.coordinator.service.run_words import PART_WORDS, STAGE_WORDS

HOUSE = Path(fedegoists.__file__).parent


def test_every_stage_and_part_has_words():
    assert set(STAGE_WORDS) == {"beginning", *STAGES}
    sources = [path.read_text(encoding="utf-8") for path in (HOUSE / "benefit").glob("*.py")]
    parts = set(re.findall(r'inquiry\.progress\("([^"]+)"', "".join(sources)))
    search = (HOUSE / "consortium" / "pipeline.py").read_text(encoding="utf-8")
    parts |= set(re.findall(r'progress\(stage, "([^"]+)"', search))
    assert parts == set(PART_WORDS)
