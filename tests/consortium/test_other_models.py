"""Boosted trees and models on arrays, from consortium.toml to the report and the export."""

import csv
import sys
from dataclasses import replace

import pytest
from markupsafe import escape

from fedegoists.consortium import tree_yardstick
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.example_files import init
from fedegoists.consortium.export import export, read_model
from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.prediction import predict
from fedegoists.errors import SettingsError
from fedegoists.install_hints import install_command
from fedegoists.learning.own_models import OwnTrainerError
from tests.consortium.reports import circle, make, pages_of
from tests.docs.pages import HowTo
from tests.federation.test_array_trainer import OWN_TRAINER

pytest.importorskip("lightgbm")
NAMES = ["North", "South", "East"]


def consortium(tmp_path, training, benefit=None, example="trees"):
    folder = tmp_path / "c"
    if not folder.exists():
        init(folder, example)
    return Consortium(
        ConsortiumSettings(
            data={"source": str(folder / {"trees": "clinics"}[example])},
            competition={"pairs": (("Aspen", "Beech"),)},
            benefit=benefit or {"repeats": 2, "threshold": 0.05},
            training={"seeds": 1, "steps": 20, "round_steps": 10, **training},
            output={"folder": str(tmp_path / "runs")},
        )
    )


def test_trees_go_from_the_file_to_a_report_and_an_exported_model(tmp_path):
    made = consortium(tmp_path, {"model": "trees"})
    assert made.wanted.methods == ("local", "bagging")
    assert made.model.name == "trees(members=5, trees=50)"
    run = made.run()
    assert not run.incomplete
    assert run.settings.training.methods == ("local", "bagging")
    assert run.benefit.estimate.estimator == "transfer"
    assert max(map(len, run.formation.coalitions)) > 1
    assert not run.yardstick.values  # local is that row
    files = export(run.folder, "Hazel", tmp_path / "out")
    rows = tmp_path / "c" / "clinics" / "Hazel.csv"
    predicted = predict(files[0], rows).values
    assert predicted.shape == (800, 1)
    assert predicted.std() > 0.02
    model, _ = read_model(files[0])
    assert model.weight.shape == (5,)


def test_an_exported_forest_predicts_the_same_in_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    run = make(tmp_path, NAMES, circle(NAMES), model="trees", methods=("bagging",), seeds=1)
    files = {path.suffix: path for path in export(run.folder, "North", tmp_path / "o", onnx=True)}
    rows = tmp_path / "data" / "North.csv"
    plain, other = (predict(files[kind], rows).values for kind in (".safetensors", ".onnx"))
    assert plain == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize(
    ("training", "benefit", "complaint"),
    [
        ({"methods": ("local", "fedavg")}, None, "training.methods: fedavg: .* local, bagging"),
        ({"methods": ("bagging+ft",)}, None, "unknown method 'bagging\\+ft'|fine-tun"),
        ({}, {"estimator": "hypernetwork"}, "hypernetwork cannot be used .* are transfer"),
        ({}, {"estimator": "alignment"}, "alignment cannot be used with this model"),
        ({"learning_rate": "auto"}, None, "trees need a number, such as 0.1"),
        ({"optimiser": "adamw"}, None, "training.optimiser: trees are not trained by gradient"),
        ({"accumulate": 4}, None, "training.accumulate: trees are not trained by gradient"),
        ({"sam_radius": 0.1}, None, "training.sam_radius: trees are not trained by gradient"),
        ({"precision": "bf16"}, None, "training.precision: trees are not trained by gradient"),
        ({"start": "runs/last"}, None, "trees of an earlier run fill their places"),
        ({"model": "mlp", "methods": ("bagging",)}, None, 'bagging: .* set model = "trees"'),
    ],
)
def test_what_trees_cannot_do_is_refused_before_anything_is_trained(
    tmp_path, training, benefit, complaint
):
    with pytest.raises(SettingsError, match=complaint):
        consortium(tmp_path, {"model": "trees", **training}, benefit)


def test_trees_are_for_tables_of_all_tasks_and_keep_their_settings():
    settings = ConsortiumSettings(
        data={"source": "synthetic-weak"}, training={"model": "trees(depth=2)"}
    )
    made = Consortium(settings)
    assert dict(made.model.given) == {"depth": 2, "members": 8, "trees": 200}
    for task in ("regression", "survival"):
        assert not made.model.misfit(replace(made.data, task=task, classes=None))


def test_a_report_on_a_table_shows_trees_alone(tmp_path):
    run = make(tmp_path, NAMES, circle(NAMES))
    assert set(run.yardstick.values) == {*NAMES, "all"}
    with (run.folder / "trees-alone.csv").open() as file:
        assert [row["participant"] for row in csv.DictReader(file)] == [
            "East",
            "North",
            "South",
            "all",
        ]
    pages = pages_of(run)
    for page in pages.values():
        assert "trees alone<br>" in page
        assert "is a yardstick, not a method of this run" in page
    other = f"{run.yardstick.values['South'][0]:.3f}"
    assert other in pages["report.html"]
    # A member's page has its own value only.
    assert run.yardstick.about("North").values.keys() == {"North"}


def test_without_lightgbm_the_report_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    run = make(tmp_path, NAMES, circle(NAMES), seeds=1)
    assert not run.yardstick.values
    assert str(escape(install_command("trees"))) in pages_of(run)["report.html"]
    assert not (run.folder / "trees-alone.csv").exists()


def test_a_yardstick_that_fails_does_not_stop_the_run(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise SettingsError("South has no luck")

    monkeypatch.setattr(tree_yardstick, "train_methods", fails)
    run = make(tmp_path, NAMES, circle(NAMES), seeds=1)
    pages = pages_of(run)
    assert "South has no luck" in pages["report.html"]
    assert "no luck" not in pages["members/North.html"]


def test_scikit_learn_goes_from_the_file_to_a_report_and_predicts(tmp_path):
    pytest.importorskip("sklearn")
    path = tmp_path / "model.py"
    path.write_text(HowTo("how-to-own-model").block_with("SGDClassifier"), encoding="utf-8")
    model = f"{path}:build"
    made = consortium(tmp_path, {"model": model, "seeds": 1})
    assert made.wanted.methods == ("local", "fedavg+ft", "egomix")
    run = made.run()
    assert not run.incomplete
    assert run.benefit.estimate.estimator == "transfer"
    files = export(run.folder, "Hazel", tmp_path / "out")
    predicted = predict(files[0], tmp_path / "c" / "clinics" / "Hazel.csv").values
    assert predicted.shape == (800, 1)
    assert 0 < predicted.min() < predicted.max() < 1
    with pytest.raises(SettingsError, match=r"model.py:build is no PyTorch module"):
        export(run.folder, "Hazel", tmp_path / "o", onnx=True)
    with pytest.raises(SettingsError, match=r"training.methods: fedegoists: it needs steps"):
        consortium(tmp_path, {"model": model, "methods": ("fedegoists",)})
    with pytest.raises(SettingsError, match=r"hypernetwork cannot .* which has no gradients"):
        consortium(tmp_path, {"model": model}, {"estimator": "hypernetwork"})


def test_the_model_of_an_own_trainer_is_exported_and_only_its_code_predicts(tmp_path):
    (tmp_path / "model.py").write_text(OWN_TRAINER)
    run = make(
        tmp_path,
        NAMES,
        circle(NAMES),
        task="regression",
        seeds=1,
        model=f"{tmp_path / 'model.py'}:build",
    )
    files = export(run.folder, "North", tmp_path / "out")
    assert [path.suffix for path in files] == [".safetensors", ".json", ".md"]
    with pytest.raises(OwnTrainerError, match="only its code knows how to predict"):
        predict(files[0], tmp_path / "data" / "North.csv")
