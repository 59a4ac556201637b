"""Predictions for images, sequences and arrays: read as in training, or refused with a way on."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.consortium.export import PreparedModel, export, read_model
from fedegoists.consortium.prediction import predict
from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_own
from tests.docs.pages import HowTo
from tests.learning.datasets.pictures import SCHEMA, dicom, grey, save, scans
from tests.learning.datasets.test_step_tables import SCHEMA as STEPS
from tests.learning.datasets.test_step_tables import ward


def trained(folder, source, model, **settings):
    """Train alone for a moment, and export the model of North."""
    run = Consortium(
        ConsortiumSettings(
            name="small",
            data={"source": str(source)},
            benefit={"estimator": "everybody"},
            training={
                "methods": ("local",),
                "model": model,
                "model_settings": settings,
                "seeds": 1,
                "steps": 4,
            },
            output={"folder": str(folder / "runs")},
        )
    ).run()
    export(run.folder, "North", folder / "out", onnx=True)


@pytest.fixture(scope="module")
def hounsfield(tmp_path_factory):
    """Return a folder with a model of 16-bit images that are resized and converted."""
    folder = tmp_path_factory.mktemp("images")
    declared = 'size = [8, 8]\ncolours = "grey"\nrange = [-1000, 400]\nbits = 16\n'
    scans(folder / "data", schema=SCHEMA + declared, size=(6, 7))
    trained(folder, folder / "data", "cnn", width=2)
    return folder


@pytest.fixture(params=["safetensors", "onnx"])
def kind(request):
    return request.param


def model_of(folder, kind="safetensors"):
    return folder / "out" / f"North.{kind}"


def outputs_of(folder, data, silo, split):
    """Return what the model says about a part of the training data, in its order."""
    from fedegoists.federation.silo_operations import _ready

    network, card = read_model(model_of(folder))
    network.eval()
    inputs = [_ready(torch.from_numpy(np.array(one))) for one in data.part(silo, split).inputs]
    with torch.no_grad():
        return PreparedModel(network, card).model(*inputs).sigmoid().numpy()


def test_images_are_decoded_as_in_training(hounsfield, kind):
    """All images of a folder, class folders or not, as the network saw them in training."""
    found = predict(model_of(hounsfield, kind), hounsfield / "data" / "North")
    assert found.columns == ("probability of spot",)
    assert found.kept["path"][:2] == ["blank/000.png", "blank/001.png"]
    assert found.remarks == ("24 images were resized",)
    data = load_own(hounsfield / "data")
    every = np.sort(data.silo("North").all)  # as sorted paths
    assert len(every) == len(found.values) == 24
    for split in ("train", "validation", "test"):
        places = np.searchsorted(every, getattr(data.silo("North"), split))
        expected = outputs_of(hounsfield, data, "North", split)
        np.testing.assert_allclose(found.values[places], expected, atol=1e-4)
    assert found.values.std() > 1e-4  # they differ


def test_dicom_and_single_images_and_lists(hounsfield, tmp_path):
    model, stored = model_of(hounsfield), grey(5).astype(np.int16) - 900
    file = tmp_path / "one"  # DICOM files may have no ending
    file.write_bytes(dicom(stored, bits=12, slope=1, intercept=-100))
    one = predict(model, file)
    assert (one.kept, one.remarks) == ({"path": ["one"]}, ())
    save(tmp_path / "deep" / "two.png", np.stack([grey(6)] * 3, axis=-1))
    (tmp_path / "new.csv").write_text("patient,path\nA,one\nB,deep/two.png\n")
    two = predict(model, tmp_path / "new.csv", keep=["patient"])
    assert two.kept == {"path": ["one", "deep/two.png"], "patient": ["A", "B"]}
    assert two.remarks == ("1 images were converted to grey",)
    assert two.values[0] == pytest.approx(one.values[0])
    assert two.csv().decode().splitlines()[0] == "path,patient,probability of spot"
    # Values of the file, in its units: what the model's own scaling expects.
    network, card = read_model(model)
    raw = torch.tensor(stored - 100.0, dtype=torch.float32)[None, ..., None]
    with torch.no_grad():
        expected = PreparedModel(network.eval(), card)(raw)
    assert one.values == pytest.approx(expected.numpy(), abs=1e-3)


def test_what_is_wrong_with_images_is_told_at_once(hounsfield, tmp_path):
    model = model_of(hounsfield)
    save(tmp_path / "new" / "good.png", grey(1))
    (tmp_path / "new" / "bad.png").write_bytes(b"no image")
    (tmp_path / "new" / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"(?s)2 problems:.*notes.txt: not an image.*bad.png: cann"):
        predict(model, tmp_path / "new")
    (tmp_path / "new.csv").write_text("path\nnew/good.png\nnew/gone.png\n")
    with pytest.raises(DataError, match=r"new.csv, line 3, column 'path': .*gone.png is no file"):
        predict(model, tmp_path / "new.csv")
    (tmp_path / "old.csv").write_text("file\nnew/good.png\n")
    with pytest.raises(DataError, match="column 'path' is missing"):
        predict(model, tmp_path / "old.csv")
    with pytest.raises(FileError, match=r"no such file; give an image \(.png"):
        predict(model, tmp_path / "nowhere")
    with pytest.raises(FileError, match="not an image or table that can be read"):
        predict(model, tmp_path / "new" / "notes.txt")
    with pytest.raises(SettingsError, match="no column 'patient' to keep, as this is no table"):
        predict(model, tmp_path / "new" / "good.png", keep=["patient"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images"):
        predict(model, tmp_path / "empty")


def test_images_must_have_the_form_of_the_training_images_where_none_was_declared(tmp_path):
    scans(tmp_path / "data")
    trained(tmp_path, tmp_path / "data", "cnn", width=2)
    model = model_of(tmp_path)
    save(tmp_path / "wide" / "a.png", grey(1, (8, 9)))
    with pytest.raises(DataError, match=r"it is 8 × 9, but the model's training images are 8 × 8"):
        predict(model, tmp_path / "wide")
    save(tmp_path / "colour" / "a.png", np.stack([grey(1)] * 3, axis=-1))
    with pytest.raises(DataError, match="it is rgb, but the model's training images are grey"):
        predict(model, tmp_path / "colour")
    deep = save(tmp_path / "deep" / "a.png", grey(1).astype(np.uint16) * 9)
    with pytest.raises(DataError, match="more than 8 bits"):
        predict(model, deep)


def test_a_list_as_in_training_is_found_and_numbers_have_the_names_of_their_column(tmp_path):
    folder = tmp_path / "data"
    scans(folder)
    schema = 'task = "regression"\n[images]\nlist = "all.csv"\npath = "file"\nlabel = "size"\n'
    (folder / "schema.toml").write_text(schema)
    for name in ("North", "South"):
        lines = [f"{label}/{k:03}.png,{50 + k}" for label in ("blank", "spot") for k in range(12)]
        (folder / name / "all.csv").write_text("\n".join(["file,size", *lines]) + "\n")
    trained(tmp_path, folder, "cnn", width=2)
    new = tmp_path / "new"
    shutil.copytree(folder / "North" / "spot", new / "spot")
    (new / "all.csv").write_text("file\nspot/003.png\n")
    found = predict(model_of(tmp_path), new)
    assert (found.columns, found.kept) == (("size",), {"file": ["spot/003.png"]})
    assert 40 < found.values[0, 0] < 75  # in its own units


@pytest.fixture(scope="module")
def wards(tmp_path_factory):
    """Return a folder with a model of measurements over time."""
    folder = tmp_path_factory.mktemp("wards")
    ward(folder / "data")
    ward(folder / "data", "South", older=3)
    (folder / "data" / "schema.toml").write_text(STEPS.replace("standardise = false\n", ""))
    trained(folder, folder / "data", "lstm", width=4)
    return folder


def test_sequences_have_the_same_columns_and_steps_as_in_training(wards, kind, tmp_path):
    found = predict(model_of(wards, kind), wards / "data" / "North")
    assert found.kept == {"stay": [str(k) for k in range(30)]}
    assert found.remarks[0] == "columns not used: 'died'"
    data = load_own(wards / "data")
    for split in ("train", "test"):
        places = getattr(data.silo("North"), split)
        expected = outputs_of(wards, data, "North", split)
        np.testing.assert_allclose(found.values[places], expected, atol=1e-4)
    # One new stay in another order of columns and rows, with a later hour that is not used.
    (tmp_path / "patients.csv").write_text("age,ward,stay\n47,A,7\n")
    (tmp_path / "steps.csv").write_text(
        "lactate,stay,hour,pulse\n7,7,7.9,\n1.5,7,2,90\n,7,3.5,110\n,7,0,67\n9,7,12,99\n,8,0,1\n"
    )
    one = predict(model_of(wards, kind), tmp_path, keep=["ward"])
    assert one.kept == {"stay": ["7"], "ward": ["A"]}
    assert one.values[0] == pytest.approx(found.values[7], abs=1e-5)
    assert one.remarks == (
        "1 rows of steps.csv are not used: their 'stay' is not in patients.csv",
        "1 rows of steps.csv are not used: their 'hour' is outside of the steps",
    )


def test_what_is_missing_in_sequences_is_said(wards, tmp_path):
    model = model_of(wards)
    (tmp_path / "patients.csv").write_text("stay,age\n7,47\n8,500\n")
    (tmp_path / "steps.csv").write_text("stay,hour,pulse,lactate\n7,0,67,\n")
    found = predict(model, tmp_path)
    assert found.remarks[0].startswith("'age': 1 of 2 values (line 3) is outside the range")
    assert found.remarks[1:] == (
        "steps.csv: 1 of 2 have no measurements",
        "steps.csv: no measurement of 'lactate' is in the steps",
    )
    (tmp_path / "steps.csv").write_text("stay,hour,pulse\n7,0,67\n")
    with pytest.raises(DataError, match="column 'lactate' is missing"):
        predict(model, tmp_path)
    (tmp_path / "patients.csv").write_text("stay,age\n7,47\n7,50\n")
    with pytest.raises(DataError, match="'7' is there already, in line 2"):
        predict(model, tmp_path)
    with pytest.raises(FileError, match=r"is a file; this model takes a folder with patients.csv"):
        predict(model, tmp_path / "patients.csv")


def test_own_functions_predict_as_they_train(tmp_path):
    """The page's data.py: for its organisation, from another folder, or from arrays alone."""
    code = HowTo("how-to-own-data").blocks("python")[0]
    path = tmp_path / "data.py"
    path.write_text(
        code + "\n\ndef new(folder, organisation):\n    assert (folder, organisation) == ('f', "
        "'North')\n    return stays(organisation, folder)['inputs']\n"
    )
    trained(tmp_path, f"{path}:load", "lstm", width=3)
    model = model_of(tmp_path)
    found = predict(model, f"{path}:load")
    assert (len(found.values), found.kept) == (120, {})
    again = predict(model, f"{path}:new", folder="f")
    np.testing.assert_array_equal(found.values, again.values)
    (steps, static), shifted = _inputs_of(path), np.zeros((2, 24, 3))
    one = predict(model, (steps[:1], static[:1]))
    assert one.values[0] == pytest.approx(found.values[0], abs=1e-6)
    with pytest.raises(DataError, match=r"1 arrays; this model takes hourly \(samples × 24 × 3\)"):
        predict(model, {"inputs": shifted})
    with pytest.raises(DataError, match=r"static: an array of \(2, 3\)"):
        predict(model, (shifted, np.zeros((2, 3))))
    with pytest.raises(DataError, match=r"static: an array of \(1, 2\)"):
        predict(model, (shifted, np.zeros((1, 2))))
    with pytest.raises(DataError, match="keys targets; expected a dictionary with inputs"):
        predict(model, {"targets": []})
    with pytest.raises(SettingsError, match="arrays have no columns"):
        predict(model, (shifted, static[:2]), keep=["id"])
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with pytest.raises(FileError, match=r"takes hourly and static, which were given as arrays"):
        predict(model, tmp_path / "rows.csv")
    with pytest.raises(SettingsError, match=r"which is for a function such as data.py:load"):
        predict(model, tmp_path / "rows.csv", folder="f")
    with pytest.raises(FileError, match="no such file; give the path of the file"):
        predict(model, tmp_path / "no.py:load")


def _inputs_of(path):
    from fedegoists.learning.own_models import function_in

    return function_in(path, "stays")("North", None)["inputs"]


TOKENS = """\
import numpy as np, torch

def load(organisation=None):
    rng = np.random.default_rng(0)
    def own():
        tokens = rng.integers(0, 9, (40, 5))
        images = rng.integers(0, 256, (40, 4, 6, 3), dtype=np.uint8)
        return {"inputs": (tokens, images), "targets": tokens[:, 0] % 2}
    return {"task": "binary", "classes": 2, "organisations": {"North": own(), "South": own()}}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = torch.nn.Embedding(9, 4), torch.nn.Linear(7, 1)

    def forward(self, tokens, images):
        assert images.shape[-3:] == (3, 4, 6)
        return self.out(torch.cat([self.words(tokens).mean(-2), images.mean((-2, -1))], -1))

def build():
    return Net()
"""


def test_tokens_stay_whole_and_images_beside_them_have_their_colours_in_front(tmp_path, kind):
    (tmp_path / "both.py").write_text(TOKENS)
    trained(tmp_path, f"{tmp_path}/both.py:load", f"{tmp_path}/both.py:build")
    model = model_of(tmp_path, kind)
    found = predict(model, f"{tmp_path}/both.py:load")
    assert found.values.shape == (40, 1)
    tokens, images = np.array([[1, 2, 3, 4, 5]]), np.full((1, 4, 6, 3), 255, dtype=np.uint8)
    one = predict(model, (tokens, images)).values[0, 0]
    network, _ = read_model(model_of(tmp_path))
    with torch.no_grad():
        expected = network(torch.from_numpy(tokens), torch.ones(1, 3, 4, 6)).sigmoid()
    assert one == pytest.approx(expected.item(), abs=1e-5)
    with pytest.raises(DataError, match="input0: float64; this model takes whole numbers"):
        predict(model, (tokens / 2, images))


def test_data_frames_are_put_in_order_by_their_columns(tmp_path):
    lines = [
        "import numpy as np, pandas as pd",
        "def load():",
        "    rng = np.random.default_rng(0)",
    ]
    (tmp_path / "data.py").write_text(
        "\n".join(lines) + "\n    def own():\n"
        "        frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=['a', 'b'])\n"
        "        return {'inputs': frame, 'targets': (np.ones(40), np.arange(40) % 2)}\n"
        "    return {'task': 'survival', 'organisations': {'North': own(), 'South': own()}}\n"
    )
    trained(tmp_path, f"{tmp_path}/data.py:load", "cox")
    model = model_of(tmp_path)
    frame = pd.DataFrame({"b": [1.0, -1.0], "id": [1, 2], "a": [0.0, 2.0]})
    by_frame, by_array = predict(model, frame), predict(model, frame[["a", "b"]].to_numpy())
    np.testing.assert_array_equal(by_frame.values, by_array.values)
    np.testing.assert_array_equal(predict(model, (frame,)).values, by_array.values)
    assert by_frame.columns == ("logarithm of the relative risk",)
    assert "columns not used: 'id'" in by_frame.remarks
    with pytest.raises(DataError, match="column 'a' is missing"):
        predict(model, (frame[["b"]],))
