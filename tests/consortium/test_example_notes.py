"""The text example: notes, a frozen transformer with adapters, and what a run says about it."""

import hashlib

import pytest
import torch
from safetensors.torch import load

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


def test_the_weights_are_all_but_what_is_trained_and_were_learned_from_notes(example):
    """Words that stand in the same places have come to be alike, as they were not at random."""
    from safetensors.torch import load_file

    from fedegoists.consortium.example_notes import pretrained_weights
    from fedegoists.learning.pretrained_weights import load_weights

    weights = load_file(example / "weights.safetensors")
    model = NoteTransformer()
    trained = {name for name, own in model.named_parameters() if own.requires_grad}
    assert weights.keys() == model.state_dict().keys() - trained
    load_weights(model, example / "weights.safetensors")
    untrained = load(pretrained_weights(steps=0))
    assert untrained.keys() == weights.keys()
    pairs = [("cp", "sob"), ("trop", "gcs"), ("lbp", "urti"), ("febrile", "hypotension")]
    near = {
        kind: torch.stack(
            [
                torch.cosine_similarity(
                    *(own["words.weight"][VOCABULARY.index(w)] for w in pair), 0
                )
                for pair in pairs
            ]
        ).mean()
        for kind, own in (("before", untrained), ("after", weights))
    }
    assert near["after"] > near["before"] + 0.1
