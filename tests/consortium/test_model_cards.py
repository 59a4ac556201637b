"""A model card says what its model is for, how good it is, and which files it is about."""

import hashlib
import re

from fedegoists.consortium.export import export
from fedegoists.consortium.model_cards import CardFacts, card_text
from fedegoists.learning.model_files import ModelCard
from tests.consortium.reports import NASTY, circle, make


def test_a_card_has_sizes_coalition_metrics_and_hashes(banks, tmp_path):
    files = export(banks.folder, "Alder", tmp_path)
    text = (tmp_path / "model-card.md").read_text(encoding="utf-8")
    sizes = banks.data.sizes["Alder"]
    assert f"{sizes.train:,} for training" in text
    assert "Coalition: with Birch." in text
    auc = banks.evaluations.models["Alder"].binary.auc
    assert f"| AUC (ROC) | {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f}) |" in text
    assert "| 0.5 (given) |" in text
    assert "there is no ε" in text
    named = dict(re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", text, re.M))
    assert named == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != "model-card.md"
    }
    export(banks.folder, "Elm", tmp_path / "elm")
    alone = (tmp_path / "elm" / "model-card.md").read_text(encoding="utf-8")
    assert "Coalition: none: trained on own data alone." in alone
    assert "over training alone" not in alone


def test_few_test_samples_are_no_result_on_the_card(tmp_path):
    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), rows=24, seeds=1, methods=("local",))
    text = (run.folder / "cards" / "North.md").read_text(encoding="utf-8")
    assert "**This is no result: " in text
    assert (run.folder / "cards" / "North.md").stat().st_mode & 0o077 == 0


def test_names_are_no_markup():
    card = ModelCard(
        participant=NASTY, method="local", model="mlp", options={}, task="binary",
        description="A | B", inputs=(), classes=("no", "`yes`"),
    )  # fmt: skip
    text = card_text(card, CardFacts("r", "none.", None, "Not known.", None, "None."))
    assert "<img" not in text.replace("\\<", "")
    assert "A \\| B" in text
    assert "\n# Model card" not in text[1:]


def test_a_run_of_an_earlier_version_says_what_is_not_recorded(banks, tmp_path):
    card = banks.folder / "cards" / "Cedar.md"
    kept = card.read_bytes()
    card.unlink()
    try:
        export(banks.folder, "Cedar", tmp_path)
    finally:
        card.write_bytes(kept)
    text = (tmp_path / "model-card.md").read_text(encoding="utf-8")
    assert text.count("Not recorded: the run is of an earlier version.") == 3
