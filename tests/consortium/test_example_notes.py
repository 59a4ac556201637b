"""The text example: notes, a frozen transformer with adapters, and what a run says about it."""

import hashlib

import pytest
import torch

from fedegoists.consortium import Consortium
from fedegoists.consortium.example_files import init
from fedegoists.consortium.example_notes import (
    DEPARTMENTS,
    LENGTH,
    VOCABULARY,
    WORDS,
    notes,
    tokens_of,
)
from fedegoists.consortium.note_transformer import LENGTH as READ
from fedegoists.consortium.note_transformer import WORDS as KNOWN
from fedegoists.consortium.note_transformer import NoteTransformer
from fedegoists.federation import Participant


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    init(folder, "text")
    return folder


def test_words_have_numbers_that_the_network_knows():
    assert (LENGTH, WORDS) == (READ, KNOWN)
    assert len(set(VOCABULARY)) == len(VOCABULARY) < WORDS - 1  # the last one hides a word
    assert tokens_of("cp no sob unheard") == [
        VOCABULARY.index("cp"),
        VOCABULARY.index("no"),
        VOCABULARY.index("sob"),
        *[0] * (LENGTH - 3),
    ]
    for department, (abbreviated, _) in DEPARTMENTS.items():
        words = {word for note, _ in notes(abbreviated, 50, 0) for word in note.split()}
        assert words <= set(VOCABULARY)
        assert ("cp" in words) == (department in ("Downtown", "Eastgate", "Fairfield"))


def test_adapters_start_without_an_effect_and_padding_has_none():
    torch.manual_seed(0)
    model = NoteTransformer()
    tokens = torch.randint(1, WORDS, (5, LENGTH)).float()
    tokens[:, -3:] = 0
    before = model(tokens)
    with torch.no_grad():
        for name, own in model.named_parameters():
            if name.endswith(".down"):
                own.normal_()
        model.words.weight[0] = 100.0  # the word that stands for none
    torch.testing.assert_close(model(tokens), before)
    trained = {name for name, own in model.named_parameters() if own.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"down", "up", "weight", "bias"}
    assert {name for name in trained if not name.endswith((".down", ".up"))} == {
        "output.weight",
        "output.bias",
    }


def test_a_run_says_what_travels_and_where_the_weights_come_from(example):
    changes = ["training.seeds=1", "training.steps=20", 'training.methods=["local","fedavg"]']
    run = Consortium.read(
        example / "consortium.toml",
        [*changes, 'benefit.estimator="everybody"', "benefit.threshold=0.1"],
    ).run()
    digest = hashlib.sha256((example / "weights.safetensors").read_bytes()).hexdigest()
    log = (run.folder / "log.txt").read_text()
    report = (run.folder / "report.html").read_text()
    # 2 layers × 2 adapters × 2 × 4 × 32, and 33 of the output layer.
    assert run.repetitions.federation.schema.size == 2 * 2 * 2 * 4 * 32 + 33
    for text in (log, report):
        assert "1,057 of 21,569 parameters are trained and travel" in text
        assert digest in text
    assert digest in (run.folder / "cards" / "Bayview.md").read_text()
    sent = run.outcomes["fedavg"].spent["bytes_sent"][Participant("Bayview", 0)]
    assert 1057 * 4 <= sent < 1057 * 4 * 1.2  # one round


def test_pre_training_makes_words_of_one_meaning_alike(example):
    """The two ways to write a finding are nearer to each other than two different findings."""
    from safetensors.torch import load_file

    model = NoteTransformer()
    missing, unexpected = model.load_state_dict(
        load_file(example / "weights.safetensors"), strict=False
    )
    assert not unexpected
    assert all(name.endswith((".down", ".up")) or "output" in name for name in missing)
