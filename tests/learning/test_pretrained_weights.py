"""Pre-trained weights: found, hashed, complete, and where models start."""

import hashlib
import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import file_digest, model_parts, weights_in
from fedegoists.learning.pretrained_weights import load_weights, weights_digest
from tests.own_modules import own_silos

CODE = """
from torch import nn

def build(data):
    body = nn.Linear(6, 4).requires_grad_(False)
    return {"model": nn.Sequential(body, nn.Tanh(), nn.Linear(4, 3)), "weights": NAME}
"""


def written(folder, name='"w.safetensors"', tensors=None):
    (folder / "model.py").write_text(CODE.replace("NAME", name))
    if tensors is None:
        tensors = {"0.weight": torch.full((4, 6), 0.5), "0.bias": torch.arange(4.0)}
    save_file(tensors, folder / "w.safetensors")
    return f"{folder / 'model.py'}:build"


def test_the_file_is_loaded_and_its_hash_is_an_option(tmp_path):
    name, data = written(tmp_path), own_silos("linear")
    options = model_options(data, name)
    assert weights_in(options) == ("w.safetensors", file_digest(tmp_path / "w.safetensors"))
    parts, other = model_parts(data, name), build_model(name, 5, **options)
    for module in (parts.module, other):
        assert torch.equal(module[0].weight, torch.full((4, 6), 0.5))
        assert module[0].bias.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not torch.equal(parts.module[2].weight, other[2].weight)  # not in the file: by the seed
    schema = SimulatedFederation(data, parts).schema
    assert schema.names == ("2.weight", "2.bias")
    assert (schema.size, schema.frozen) == (15, 28)


def test_a_file_that_changed_is_another_model(tmp_path):
    name, data = written(tmp_path), own_silos("linear")
    options = model_options(data, name)
    other = {"0.weight": torch.zeros(4, 6), "0.bias": torch.zeros(4)}
    written(tmp_path, tensors=other)
    with pytest.raises(SettingsError, match=r"w.safetensors has changed.*put back the file with"):
        build_model(name, 0, **options)
    assert model_options(data, name)["weights_sha256"] != options["weights_sha256"]
    assert not model_parts(data, name).module[0].weight.any()


def test_everything_starts_at_the_models_own_initial_values(tmp_path):
    """Also an estimator, which draws its own start: an adapter that begins at 0 must do so."""
    trained = {"2.weight": torch.full((3, 4), 0.25), "0.weight": torch.zeros(4, 6)}
    name = written(tmp_path, tensors={**trained, "0.bias": torch.zeros(4)})
    data = own_silos("linear")
    schema = SimulatedFederation(data, model_parts(data, name)).schema
    for seed in (0, 1):
        own = schema.unflatten(schema.drawn(seed))
        assert torch.equal(own["2.weight"], trained["2.weight"])
    assert not torch.equal(schema.drawn(0), schema.drawn(1))  # the bias is not in the file
    assert torch.equal(schema.drawn(1), schema.drawn(1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ('"w.pt"', r"w.pt may hold code.*name w.safetensors instead: python -c .*torch.load"),
        ('"sub/w.safetensors"', "expected a file beside it that ends in .safetensors, without a"),
        ('"w.csv"', "expected a file beside it that ends in .safetensors"),
        ("3", "weights is 3; expected the name of a file beside it"),
        ('"away.safetensors"', "away.safetensors: the weights cannot be read.*beside the model's"),
    ],
)
def test_other_files_are_refused(tmp_path, name, message):
    with pytest.raises(SettingsError, match=message):
        model_parts(own_silos("linear"), written(tmp_path, name))


def test_the_command_in_the_refusal_converts_a_pickled_file(tmp_path, monkeypatch):
    import re
    import subprocess
    import sys

    monkeypatch.chdir(tmp_path)
    torch.save(nn.Linear(6, 4).state_dict(), "w.pt")
    with pytest.raises(SettingsError) as refused:
        model_parts(own_silos("linear"), written(tmp_path, '"w.pt"'))
    (code,) = re.findall(r'python -c "(.*)"$', str(refused.value))
    (tmp_path / "w.safetensors").unlink()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    load_weights(nn.Linear(6, 4), tmp_path / "w.safetensors")


BODY = {"0.weight": torch.zeros(4, 6), "0.bias": torch.zeros(4)}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({**BODY, "fc.weight": torch.zeros(2)}, "tensors that the model does not: fc.weight;"),
        ({"0.weight": torch.zeros(4, 6)}, "lacks frozen parts of the model: 0.bias; they would"),
        ({**BODY, "2.bias": torch.zeros(9)}, r"another shape.*: 2.bias \(9,\) instead of \(3,\)"),
    ],
)
def test_keys_that_do_not_fit_are_named(tmp_path, tensors, message):
    with pytest.raises(SettingsError, match=message):
        model_parts(own_silos("linear"), written(tmp_path, tensors=tensors))


def test_a_damaged_file_is_named(tmp_path):
    name = written(tmp_path)
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(SettingsError, match=r"w.safetensors: not a safetensors file that can"):
        model_parts(own_silos("linear"), name)


def test_statistics_of_a_frozen_layer_must_be_there_and_one_of_tied_names_is_enough(tmp_path):
    norm = nn.BatchNorm1d(2).requires_grad_(False)
    path = tmp_path / "w.safetensors"
    save_file({"weight": torch.ones(2), "bias": torch.zeros(2)}, path)
    with pytest.raises(SettingsError, match="lacks frozen parts of the model: running_mean, runn"):
        load_weights(norm, path)
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    tied.requires_grad_(False)
    save_file({"0.weight": torch.eye(2)}, path)
    load_weights(tied, path)
    assert torch.equal(tied[1].weight, torch.eye(2))


def test_the_hash_of_weights_is_of_their_content_not_of_their_time(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"one")
    before, facts = weights_digest(path), path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert weights_digest(path) == hashlib.sha256(b"two").hexdigest() != before
