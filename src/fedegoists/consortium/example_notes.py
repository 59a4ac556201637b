"""Invented notes of emergency departments, as an example of text.

A note is a row of words. Whether the patient is admitted follows from what the words mean, and the
departments use different words for the same thing: some write as in textbooks, some in
abbreviations. They say nothing about real patients.
"""

import io
from collections.abc import Iterator

import numpy as np

LENGTH, WORDS = 9, 96
"""Words of a note, and of the vocabulary; the same as in the network."""

MEANINGS = {
    "grave": (
        ("chest pain", "cp"),
        ("breathless", "sob"),
        ("low pressure", "hypotension"),
        ("confused", "gcs reduced"),
        ("raised troponin", "trop pos"),
        ("high fever", "febrile"),
    ),
    "mild": (
        ("sore throat", "pharyngitis"),
        ("sprained ankle", "ankle inj"),
        ("small cut", "lac minor"),
        ("mild headache", "ha mild"),
        ("runny nose", "urti"),
        ("back ache", "lbp"),
    ),
    "filler": (
        ("patient reports", "pt c/o"),
        ("since yesterday", "since yest"),
        ("without allergies", "nkda"),
        ("seen by nurse", "triaged"),
        ("known asthma", "pmh asthma"),
        ("family present", "fam pres"),
    ),
}
"""Findings that speak for an admission, that speak against it, and that say nothing; each as a
textbook and as an abbreviating department writes it."""
NO, VOCABULARY = (
    "no",
    ("", "no", *dict.fromkeys(
        word
        for group in MEANINGS.values()
        for pair in group
        for phrase in pair
        for word in phrase.split()
    )),
)  # fmt: skip
"""All words; the number of a word is its place here. The first one stands for no word."""

DEPARTMENTS = {
    "Bayview": (0.0, 200),
    "Cliffside": (0.0, 200),
    "Downtown": (0.1, 400),
    "Eastgate": (1.0, 200),
    "Fairfield": (0.9, 200),
}
"""The share of abbreviations, and the number of notes, of each department."""
SCHEMA = f"""\
# The words of a note, as their numbers in vocabulary.txt; 0 stands for no word. They are no
# quantities, so they are not scaled. The note itself is in the column "note", which is not used.
features = [{", ".join(f'"word_{k:02}"' for k in range(1, LENGTH + 1))}]
target = "admitted"
task = "binary"
classes = ["no", "yes"]
standardise = false
"""


def tokens_of(note: str) -> list[int]:
    """Return the numbers of a note's words, filled up with 0.

    Examples
    --------
    >>> tokens_of("no chest pain")[:4]
    [1, 2, 3, 0]
    """
    numbers = [VOCABULARY.index(word) for word in note.split() if word in VOCABULARY][:LENGTH]
    return numbers + [0] * (LENGTH - len(numbers))


def notes(abbreviated: float, count: int, seed: int) -> Iterator[tuple[str, bool]]:
    """Yield notes, and whether the patient was admitted.

    Of three findings, most decide. A finding after "no" counts the other way round, and a note in
    30 was decided otherwise.
    """
    rng = np.random.default_rng([11, seed])
    for _ in range(count):
        parts, balance = [], 0
        kinds = [*rng.choice(["grave", "mild"], 3), "filler"]
        for kind in rng.permutation(kinds):
            group = MEANINGS[str(kind)]
            style = int(rng.random() < abbreviated)
            phrase = group[rng.integers(len(group))][style]
            denied = kind != "filler" and rng.random() < 0.15
            parts.append(f"{NO} {phrase}" if denied else phrase)
            if kind != "filler":
                balance += (1 if kind == "grave" else -1) * (-1 if denied else 1)
        yield " ".join(parts), (balance > 0) ^ bool(rng.random() < 1 / 30)


def notes_csv(department: str) -> str:
    """Return a department's notes as CSV, always the same."""
    abbreviated, count = DEPARTMENTS[department]
    lines = [",".join(["note", *(f"word_{k:02}" for k in range(1, LENGTH + 1)), "admitted"])]
    for note, admitted in notes(abbreviated, count, list(DEPARTMENTS).index(department)):
        cells = [note, *map(str, tokens_of(note)), "yes" if admitted else "no"]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def pretrained_weights(steps: int = 400) -> bytes:
    """Return the transformer's weights after a short training on notes without any label.

    A word is hidden in every note, and the network learns to name it. Both ways of writing occur in
    these notes, so that words of the same meaning come to be alike.
    """
    import torch
    from safetensors.torch import save

    from fedegoists.consortium.note_transformer import WIDTH, NoteTransformer
    from fedegoists.federation.execution import limited_threads

    texts = [note for note, _ in notes(0.5, 3000, 1000)]
    tokens = torch.tensor([tokens_of(note) for note in texts])
    with torch.random.fork_rng(devices=[]), limited_threads(1):
        torch.manual_seed(0)
        model = NoteTransformer().requires_grad_(True)
        guess = torch.nn.Linear(WIDTH, WORDS)
        every = [*model.parameters(), *guess.parameters()]
        optimiser = torch.optim.Adam(every, lr=3e-3)
        for _ in range(steps):
            batch = tokens[torch.randint(len(tokens), (64,))]
            lengths = (batch > 0).sum(1)
            hidden = (torch.rand(64) * lengths).long()
            target = batch[torch.arange(64), hidden]
            seen = batch.clone()
            seen[torch.arange(64), hidden] = WORDS - 1  # a number that no word has
            outputs = guess(model.read(seen)[torch.arange(64), hidden])
            loss = torch.nn.functional.cross_entropy(outputs, target)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    trained = (".down", ".up")  # adapters and output are what the departments train
    tensors = {
        name: own.contiguous().clone()
        for name, own in model.state_dict().items()
        if not name.endswith(trained) and not name.startswith("output.")
    }
    content: bytes = save(tensors)
    return content


def note_files() -> dict[str, bytes]:
    """Return all files of the example beside its consortium.toml, by their places."""
    from pathlib import Path

    source = Path(__file__).with_name("note_transformer.py").read_bytes()
    table = {f"notes/{name}.csv": notes_csv(name).encode() for name in DEPARTMENTS}
    vocabulary = io.StringIO()
    for number, word in enumerate(VOCABULARY):
        vocabulary.write(f"{number} {word}\n")
    return {
        "model.py": source,
        "weights.safetensors": pretrained_weights(),
        "vocabulary.txt": vocabulary.getvalue().encode(),
        "notes/schema.toml": SCHEMA.encode(),
        **table,
    }
