"""The example program that loads an exported model."""

import textwrap
from collections.abc import Mapping

from fedegoists.learning.model_files import ModelCard
from fedegoists.learning.models import SLOPE
from fedegoists.learning.named_networks import OFFSET_SCALE

# It needs PyTorch and safetensors only.
PLAIN = """\
import json, pathlib, torch, torch.nn.functional as F
from safetensors.torch import load_file

about = json.loads(pathlib.Path({json!r}).read_text(encoding="utf-8"))["inputs"][0]
center, factor, missing = (torch.tensor([float("nan") if v is None else v for v in about[part]])
                           for part in ("center", "factor", "missing"))
weights = load_file({safetensors!r})
# Put rows of your own here; float("nan") is what was not measured.
rows = torch.tensor([{row}])
inputs = (torch.where(rows.isnan(), missing, rows) - center) * factor
{outputs}
print({link})
"""

MLP_OUTPUTS = f"""\
hidden = F.leaky_relu(F.linear(inputs, weights["hidden.weight"], weights["hidden.bias"]), {SLOPE})
outputs = F.linear(hidden, weights["output.weight"], weights["output.bias"])"""
LINEAR_OUTPUTS = f"""\
outputs = F.linear(inputs, weights["weight"]) + {OFFSET_SCALE} * weights["offset"]"""
PLAIN_OUTPUTS = {"mlp": MLP_OUTPUTS, "logistic": LINEAR_OUTPUTS, "linear": LINEAR_OUTPUTS}
"""How the networks are computed that need no code of this package, by name."""

OTHER = """\
import torch
from fedegoists.consortium.export import PreparedModel, read_model

model = PreparedModel(*read_model({safetensors!r}))  # takes values as they were measured
inputs = [{tensors}]  # put your own here
with torch.no_grad():
    print(model(*inputs))
"""

LINKS = {
    "binary": "outputs.sigmoid()",
    "classification": "outputs.softmax(-1)",
    "regression": "outputs",
    "survival": "outputs",
}


def loading_example(file: str, card: ModelCard, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return a program that loads a model and predicts with it.

    Parameters
    ----------
    file : str
        The base name of the model's files.
    card : ModelCard
        The model's card.
    shapes : mapping of str to tuple of int
        The shape of one sample in each input.
    """
    lines = [
        f"The model of {card.participant}, {card.delivered}.",
        card.description,
        *(f"Columns of {one.name}: {', '.join(one.columns)}." for one in card.inputs),
        _meaning(card),
    ]
    comment = "".join(f"{wrapped}\n" for text in lines for wrapped in _comment(text))
    outputs = PLAIN_OUTPUTS.get(card.model.partition("(")[0])
    if outputs is not None:
        one = card.inputs[0]
        usual = [
            center if missing is None else missing
            for center, missing in zip(one.center, one.missing, strict=True)
        ]
        code = PLAIN.format(
            json=f"{file}.json",
            safetensors=f"{file}.safetensors",
            row=[float(f"{value or 0.0:.6g}") for value in usual],
            outputs=outputs,
            link=_link(card),
        )
        return f"{comment}# Needs: pip install torch safetensors\n{code}"
    kinds = {one.name: one.kind for one in card.inputs}
    tensors = ", ".join(
        f"torch.zeros(1, {', '.join(map(str, shape))}"
        f"{', dtype=torch.int64' if kinds[name] == 'whole' else ''})"
        for name, shape in shapes.items()
    )
    code = OTHER.format(safetensors=f"{file}.safetensors", tensors=tensors)
    return f"{comment}# Needs: pip install 'fedegoists[train]'\n{code}"


def _link(card: ModelCard) -> str:
    link = LINKS[card.task]
    return link if card.target is None else f"{card.target.center} + {card.target.spread} * {link}"


def _meaning(card: ModelCard) -> str:
    if card.task == "survival":
        return "It prints the logarithm of the relative risk."
    if card.task == "regression":
        return "It prints the predicted value."
    if card.task == "binary":
        return f"It prints the probability of {repr(card.classes[1]) if card.classes else 1}."
    return f"It prints the probabilities of {', '.join(card.classes) or 'all classes'}."


def _comment(text: str) -> list[str]:
    # Names come from files, and must not end the comment.
    safe = "".join(c if c.isprintable() else " " for c in text)
    return textwrap.wrap(safe, 98, initial_indent="# ", subsequent_indent="#   ")
