"""The pages' Python, and the messages they describe, are what the code has."""

import ast
import importlib
import math
import re
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from fedegoists.federation.validated import Tensors
from fedegoists.methods import METHOD_ENTRIES
from tests.docs.pages import DOCS, HowTo

PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
README = DOCS.parent / "README.md"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_imports_exists(page):
    for block in HowTo(page).blocks("python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedegoists"):
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name), f"{node.module} has no {name.name}"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.S | re.M)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["formation"].coalitions == (("North", "South"), ("East",))
    assert (tmp_path / "certificate.json").exists()


def test_an_own_model_is_trained_as_the_page_says():
    page = HowTo("how-to-own-model")
    own, code = page.block_with("def brier"), page.block_with("SimulatedFederation(")
    written: dict = {}
    exec(compile(own, "model.py", "exec"), written)
    parts = written["build"](SimpleNamespace(shapes=[(5,)]))
    assert parts["model"](torch.zeros(3, 5)).shape == (3, 1)
    for given, quick in (
        ('"my-hospitals"', '"synthetic-weak"'),
        ('("North", "West")', '("v1", "v5")'),
        ("steps=300", "steps=5"),
        ("rounds=50", "rounds=1"),
    ):
        assert code.count(given) == 1
        code = code.replace(given, quick)
    names: dict = {}
    exec(compile(code, "how-to-own-model.md", "exec"), names)
    assert names["outcome"].best.shape == (8, names["federation"].schema.size)
    assert names["outcome"].best.isfinite().all()


def test_the_losses_and_metrics_on_the_page_are_what_they_say():
    from fedegoists.learning.own_task import own_task
    from fedegoists.learning.task import TASKS

    code = HowTo("how-to-own-model").block_with("def auroc")
    own: dict = {}
    exec(compile(code, "how-to-own-model.md", "exec"), own)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(40, 1, generator=generator).round(decimals=1)  # with ties
    yes = (torch.rand(40, generator=generator) < 0.4).float()
    times = torch.randn(40, generator=generator)
    score, index = TASKS["binary"].score(outputs, yes), TASKS["survival"].score(outputs, times)
    assert float(own["auroc"](outputs, yes)) == pytest.approx(score)
    assert float(own["concordance"](outputs, times)) == pytest.approx(index)
    plain = TASKS["binary"].losses(outputs, yes)
    torch.testing.assert_close(own["costly_misses"](outputs, yes), plain * (1 + 4 * yes))
    sure = 20 * (2 * yes - 1)[:, None]
    assert own["dice"](sure, yes) == pytest.approx(0.0, abs=1e-6)
    assert own["dice"](-sure, yes) == pytest.approx(1 - 1 / 41, abs=1e-6)
    classes = torch.tensor([0, 2])
    logits = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 50.0]])
    expected = torch.tensor([(2 / 3) ** 2 * math.log(3), 0.0])  # probabilities of 1/3 and 1
    torch.testing.assert_close(own["focal"](logits, classes), expected)
    for name, each in (("dice", False), ("costly_misses", True)):
        assert own_task(TASKS["binary"], own[name]).of_each_sample(sure, yes) == each


def test_the_network_of_a_script_trains_on_images_as_the_page_says(tmp_path):
    """The page's model.py, on images of two organisations in three classes."""
    from fedegoists.federation import SimulatedFederation, Train, Trained, TrainSettings
    from fedegoists.learning.own_models import model_parts
    from tests.own_modules import own_silos

    code = HowTo("how-to-own-model").block_with("AdaptiveAvgPool2d")
    (tmp_path / "model.py").write_text(code, encoding="utf-8")
    data = own_silos("residual", (60, 70))
    parts = model_parts(data, f"{tmp_path / 'model.py'}:build")
    assert parts.settings["optimiser"] == "adamw"
    silos = SimulatedFederation(data, parts)
    start, settings = silos.schema.drawn(0), TrainSettings(steps=2, optimiser="adamw")
    replies = silos.call(
        {one: Train(parameters=start, settings=settings) for one in silos.participants}
    )
    assert all(isinstance(one, Trained) for one in replies.values())


def test_onnx_runtime_alone_predicts_as_the_page_says(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("pandas")
    from fedegoists.consortium.export import export
    from fedegoists.consortium.prediction import predict
    from tests.consortium.reports import circle, make

    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), seeds=1, methods=("local",))
    export(run.folder, "North", tmp_path / "north-model", onnx=True)
    rows = tmp_path / "new-patients.csv"
    rows.write_text("b,patient_id,a\n0.5,7,-0.25\n")
    monkeypatch.chdir(tmp_path)
    (code,) = HowTo("how-to-use-a-model").blocks("python")
    found: dict = {}
    exec(compile(code, "how-to-use-a-model.md", "exec"), found)
    expected = predict("north-model/North.safetensors", rows).values
    assert found["probabilities"] == pytest.approx(expected, abs=1e-5)
    rows.write_text("b,patient_id\n0.5,7\n")
    with pytest.raises(SystemExit, match="columns are missing: \\['a'\\]"):
        exec(compile(code, "how-to-use-a-model.md", "exec"), {})


@pytest.mark.parametrize(
    "package",
    ["", ".benefit", ".consortium", ".federation", ".learning.datasets", ".methods", ".training"],
)
def test_the_reference_has_every_public_name(package):
    text = HowTo("reference-python").text
    methods = {entry.place.split(":")[1] for entry in METHOD_ENTRIES.values()}
    public = set(importlib.import_module(f"fedegoists{package}").__all__)
    for name in public - methods - {"__version__"}:  # methods have a page of their own
        assert re.search(rf"\b{name}\b", text), name


def test_messages_are_as_described():
    pytest.importorskip("safetensors")
    from fedegoists.federation.flare import messages, wire

    page = HowTo("reference-files").text
    section, masked = (
        page.split(f"\n## {name}")[1].split("\n## ")[0] for name in ("Messages", "Masked sums")
    )
    assert f"| `protocol` | `{wire.PROTOCOL}`;" in section
    for operation in get_args(messages.Operation):
        assert f"`{operation}`" in section + masked
    for kind in (messages.Call, messages.Answers):
        for field in kind.model_fields:
            assert f"`{field}`" in section
    (example,) = re.findall(r"^```json\n(.*?)^```$", section, re.S | re.M)
    tensors = Tensors({"0": torch.zeros(3)})
    call = messages.Call.model_validate_json(example, context=tensors)
    (request,) = call.requests("North").values()
    assert request.parameters.shape == (3,)
    sizes = {2000: wire.MOST_TENSORS, 4 * 1024**2: wire.LARGEST_HEADER}
    assert all(said == real for said, real in sizes.items())
