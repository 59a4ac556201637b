"""Predictions for new rows: by the names of columns, and with a word about what does not fit."""

import json

import numpy as np
import pytest
import torch

from fedegoists.consortium import Consortium, ConsortiumSettings
from fedegoists.consortium.export import PreparedModel, export, read_model
from fedegoists.consortium.prediction import predict
from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.learning.data import DataError
from tests.consortium.reports import circle, make

NAMES = ["Alder", "Birch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run's model of Alder, exported as ONNX too."""
    where = tmp_path_factory.mktemp("predict")
    run = make(where, NAMES, circle(NAMES), seeds=1, methods=("local",))
    export(run.folder, "Alder", where / "out", onnx=True)
    return where


def table(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(params=["safetensors", "onnx"])
def model(request, folder):
    return folder / "out" / f"Alder.{request.param}"


def test_columns_are_found_by_their_names(model, folder, tmp_path):
    straight = predict(model, table(tmp_path / "a.csv", "a,b\n-0.4,-0.1\n0.1,0.3\n"))
    swapped = predict(model, table(tmp_path / "b.csv", "b,id,a\n-0.1,x,-0.4\n0.3,y,0.1\n"))
    np.testing.assert_array_equal(straight.values, swapped.values)
    network, card = read_model(folder / "out" / "Alder.safetensors")
    with torch.no_grad():
        expected = PreparedModel(network, card)(torch.tensor([[-0.4, -0.1], [0.1, 0.3]]))
        wrong = PreparedModel(network, card)(torch.tensor([[-0.1, -0.4], [0.3, 0.1]]))
    np.testing.assert_allclose(straight.values, expected.numpy(), atol=1e-5)
    assert not np.allclose(straight.values, wrong.numpy(), atol=1e-3)  # the order matters
    assert straight.columns == ("probability of yes",)
    assert straight.remarks == ()
    assert swapped.remarks == ("columns not used: 'id'",)


def test_missing_columns_are_named_and_nothing_is_predicted(model, tmp_path):
    with pytest.raises(DataError, match=r"rows, .*rows.csv.*column 'b' is missing"):
        predict(model, table(tmp_path / "rows.csv", "a,c\n1,2\n"))


def test_values_outside_the_training_range_and_missing_ones_are_said(model, folder, tmp_path):
    _, card = read_model(folder / "out" / "Alder.safetensors")
    (low, high), _ = card.inputs[0].ranges
    inside = (low + high) / 2
    rows = f"a,b\n{inside},0\n{low - 1},0\n{high + 1},\n{low},0\n{high},0\n"
    found = predict(model, table(tmp_path / "rows.csv", rows))
    about_a, about_b = found.remarks
    assert about_a.startswith("'a': 2 of 5 values (line 3, line 4) are outside the range")
    assert f"{low:.6g} to {high:.6g}" in about_a
    mean = card.inputs[0].missing[1]
    assert (
        about_b == f"'b': 1 of 5 values (line 4) is missing; the training mean {mean:.6g} is used"
    )
    filled = predict(model, table(tmp_path / "filled.csv", f"a,b\n{high + 1},{mean}\n"))
    assert found.values[2] == pytest.approx(filled.values[0], abs=1e-6)


def test_the_range_hides_the_most_extreme_values(folder):
    _, card = read_model(folder / "out" / "Alder.safetensors")
    text = (folder / "data" / "Alder.csv").read_text(encoding="utf-8").splitlines()[1:]
    values = sorted(float(line.split(",")[0]) for line in text)
    (low, high), _ = card.inputs[0].ranges
    # Some of the rows are for validation and test, so at least so many are outside.
    assert low >= values[4]
    assert high <= values[-5]
    assert low in values
    assert high in values


def test_kept_columns_are_beside_the_predictions(model, tmp_path):
    found = predict(model, table(tmp_path / "r.csv", "id,a,b\nx 1,0,0\ny,0.1,0.1\n"), keep=["id"])
    lines = found.csv().decode().splitlines()
    assert lines[0] == "id,probability of yes"
    assert [line.split(",")[0] for line in lines[1:]] == ["x 1", "y"]
    assert float(lines[1].split(",")[1]) == pytest.approx(found.values[0, 0], abs=1e-6)
    assert found.remarks == ()


def test_an_onnx_file_says_what_it_takes_without_this_package(folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(folder / "out" / "Alder.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["columns"]) == {"features": ["a", "b"]}
    assert json.loads(about["classes"]) == ["no", "yes"]
    assert len(about["sha256"]) == 64


@pytest.mark.parametrize("what", ["weights", "columns"])
def test_an_onnx_file_that_was_changed_is_refused(what, folder, tmp_path):
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(folder / "out" / "Alder.onnx")
    if what == "weights":
        tensor = next(one for one in proto.graph.initializer if one.raw_data)
        tensor.raw_data = tensor.raw_data[:-1] + bytes([tensor.raw_data[-1] ^ 1])
    else:
        (card,) = (one for one in proto.metadata_props if one.key == "fedegoists")
        card.value = card.value.replace('"a", "b"', '"b", "a"')
    onnx.save(proto, tmp_path / "changed.onnx")
    rows = table(tmp_path / "rows.csv", "a,b\n1,2\n")
    with pytest.raises(FileError, match="changed after its export"):
        predict(tmp_path / "changed.onnx", rows)
    del proto.metadata_props[:]
    onnx.save(proto, tmp_path / "bare.onnx")
    with pytest.raises(FileError, match="does not say which columns it takes"):
        predict(tmp_path / "bare.onnx", rows)


def test_models_that_cannot_be_read_are_named(folder, tmp_path, monkeypatch):
    rows = table(tmp_path / "rows.csv", "a,b\n1,2\n")
    with pytest.raises(FileError, match="no such file"):
        predict(tmp_path / "no.onnx", rows)
    table(tmp_path / "text.onnx", "not a model")
    with pytest.raises(FileError, match="not an ONNX file"):
        predict(tmp_path / "text.onnx", rows)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"pip install .*\[onnx\]'"):
        predict(folder / "out" / "Alder.onnx", rows)


def test_a_damaged_model_of_a_run_does_not_predict(folder, tmp_path):
    source = folder / "runs" / "small" / "models" / "Birch.safetensors"
    rows = table(tmp_path / "rows.csv", "a,b\n1,2\n")
    good = source.read_bytes()
    assert predict(source, rows).values.shape == (1, 1)
    source.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        with pytest.raises(FileError, match="not the model that was written here"):
            predict(source, rows)
    finally:
        source.write_bytes(good)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Return the model of an organisation with categories, dates and missing values."""
    folder = tmp_path_factory.mktemp("mixed")
    names = ["North", "South"]
    rng = np.random.default_rng(0)
    (folder / "data").mkdir()
    for name in names:
        lines = [
            f"{rng.choice(['icu', 'ward', 'home'])},{2000 + k % 20}-03-01,{rng.integers(20, 90)},"
            f"{rng.choice(['no', 'yes'])}"
            for k in range(120)
        ]
        (folder / "data" / f"{name}.csv").write_text("\n".join(["unit,admitted,age,ill", *lines]))
    (folder / "data" / "schema.toml").write_text(
        'features = ["unit", "admitted", "age"]\ntarget = "ill"\ntask = "binary"\n'
        'classes = ["no", "yes"]\nmissing = "mean"\n'
        '[columns.unit]\ncategories = ["icu", "ward"]\n[columns.admitted]\nkind = "date"\n'
    )
    run = Consortium(
        ConsortiumSettings(
            name="mixed",
            data={"source": str(folder / "data")},
            benefit={"estimator": "everybody"},
            training={"methods": ("local",), "seeds": 1, "steps": 20},
            output={"folder": str(folder / "runs")},
        )
    ).run()
    export(run.folder, "North", folder / "out", onnx=True)
    return folder / "out"


@pytest.mark.parametrize("kind", ["safetensors", "onnx"])
def test_categories_and_dates_are_read_as_in_training(mixed, kind, tmp_path):
    rows = "age,unit,admitted\n50,icu,2005-03-01\n,moon,1990-03-01\n50,ward,2005-03-01\n"
    found = predict(mixed / f"North.{kind}", table(tmp_path / "rows.csv", rows))
    assert len(found.values) == 3
    assert found.values[0] != pytest.approx(found.values[2], abs=1e-4)  # the unit matters
    unit, admitted, age = found.remarks
    assert unit.startswith("'unit': 1 of 3 values (line 3) is no declared category")
    assert admitted.startswith("'admitted': 1 of 3 values (line 3) is outside the range of the")
    assert "data, 200" in admitted  # a date
    assert age.startswith("'age': 1 of 3 values (line 3) is missing; the training mean")
    # One row alone may have nothing that was declared.
    one = table(tmp_path / "one.csv", "age,unit,admitted\n,moon,1990-03-01\n")
    alone = predict(mixed / f"North.{kind}", one)
    assert alone.values[0] == pytest.approx(found.values[1], abs=1e-5)
    with pytest.raises(DataError, match=r"(?s)'unit' is missing.*'admitted' is missing"):
        predict(mixed / f"North.{kind}", table(tmp_path / "less.csv", "age\n3\n"))
    bad = table(tmp_path / "bad.csv", "age,unit,admitted\n50,icu,yesterday\n")
    with pytest.raises(DataError, match="is not a date"):
        predict(mixed / f"North.{kind}", bad)
