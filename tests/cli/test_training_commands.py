"""Training from the command line."""

import csv
import json
import math

import pytest
import torch

from fedegoists.cli.training_commands import _named_methods, _validated
from fedegoists.federation import Participant
from fedegoists.methods import Outcome
from fedegoists.methods.method import State
from fedegoists.methods.method_registry import methods_for
from fedegoists.methods.outcome import Row

QUICK = ("train", "--data", "synthetic-weak", "--seeds", "2", "--steps", "40")


def test_train_writes_metrics_and_summary(run, tmp_path):
    code, out, err = run(
        *QUICK, "--out", "result", "--competition", "0.3", "--coalitions", "cliques", "--quiet"
    )
    assert (code, err) == (0, "")
    assert "fedavg+ft" in out
    for name in ("coalitions", "failures", "metrics", "summary"):
        mode = (tmp_path / f"result/{name}.csv").stat().st_mode
        assert mode & 0o077 == 0, "who is alone, or with whom, lets one guess who competes"
    with (tmp_path / "result/metrics.csv").open() as file:
        metrics = list(csv.DictReader(file))
    assert list(metrics[0]) == [
        "seed",
        "method",
        "participant",
        "round",
        "split",
        "metric",
        "value",
    ]
    assert {row["seed"] for row in metrics} == {"0", "1"}
    assert {row["method"] for row in metrics} == {"local", "fedavg", "fedavg+ft"}
    assert {row["participant"] for row in metrics} == {f"v{k}" for k in range(1, 9)}
    assert {row["split"] for row in metrics} == {"validation", "test", "train"}
    with (tmp_path / "result/summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    assert list(summary[0]) == ["method", "participant", "metric", "mean", "std", "n"]
    local = [r for r in summary if r["method"] == "local" and r["metric"] == "mse"]
    assert [r["participant"] for r in local] == [*(f"v{k}" for k in range(1, 9)), "all"]
    assert {r["n"] for r in local} == {"2"}
    # The summary is the test value at the round that validation chose, averaged over seeds.
    chosen = []
    for seed in ("0", "1"):
        own = [
            r
            for r in metrics
            if (r["seed"], r["method"], r["participant"], r["metric"])
            == (seed, "local", "v3", "mse")
        ]
        best = min((r for r in own if r["split"] == "validation"), key=lambda r: float(r["value"]))
        (test,) = (r for r in own if r["split"] == "test" and r["round"] == best["round"])
        chosen.append(float(test["value"]))
    (row,) = (r for r in local if r["participant"] == "v3")
    assert float(row["mean"]) == pytest.approx(sum(chosen) / 2, rel=1e-5)
    # What to choose by is shown, too: everybody's validation error at the chosen steps.
    validated = {}
    for r in metrics:
        if (r["method"], r["split"], r["metric"]) == ("local", "validation", "mse"):
            validated.setdefault((r["seed"], r["participant"]), []).append(float(r["value"]))
    mean = sum(min(own) for own in validated.values()) / len(validated)
    assert f"{mean:.4f}" in out


def test_the_same_command_gives_the_same_bytes(run, tmp_path):
    for folder in ("one", "two"):
        assert run(*QUICK, "--out", folder, "--methods", "fedavg")[0] == 0
    assert (tmp_path / "one/metrics.csv").read_bytes() == (
        tmp_path / "two/metrics.csv"
    ).read_bytes()


def test_results_are_not_overwritten_unasked(run):
    assert run(*QUICK, "--out", "r", "--methods", "local")[0] == 0
    code, _, err = run(*QUICK, "--out", "r", "--methods", "local")
    assert code == 2
    assert "holds results already; use --resume or another folder" in err
    assert run(*QUICK, "--out", "r", "--methods", "local", "--resume")[0] == 0
    code, _, err = run(*QUICK, "--out", "r", "--methods", "fedavg", "--resume")
    assert code == 2
    assert "written for other settings" in err


def test_coalitions_from_a_file(run, tmp_path):
    rows = "".join(f"v{k},{'x' if k < 5 else 'y'}\n" for k in range(1, 9))
    (tmp_path / "groups.csv").write_text("participant,coalition\n" + rows)
    assert run(*QUICK, "--out", "a", "--methods", "fedavg", "--coalitions", "groups.csv")[0] == 0
    (tmp_path / "rivals.csv").write_text("a,b\nv1,v2\n")
    code, _, err = run(
        *QUICK, "--out", "b", "--coalitions", "groups.csv", "--competition", "rivals.csv"
    )
    assert code == 2
    assert "'v1' and 'v2' compete but share a coalition" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "fedsgd"), "unknown method 'fedsgd'; methods are local, fedavg, fedavg+ft"),
        (("--methods", "local+ft"), "unknown method 'local+ft'"),
        (("--competition", "1.5"), "probability of competition is 1.5"),
        (("--set", "rho"), "expected KEY=VALUE"),
        (("--set", "colour=red"), "colour"),
        (("--model", "resmet"), "unknown model 'resmet'; models are mlp, logistic, linear, cox"),
        (("--model", "resnet"), "it takes samples of the shape (…, …, …), not samples of"),
        (("--model", "cifar10-cnn"), "the model 'cifar10-cnn' does not suit the data set"),
        (("--device", "cuda:99"), "GPU"),
    ],
)
def test_bad_options_are_named(run, arguments, message):
    code, _, err = run(*QUICK, "--out", "r", *arguments)
    assert code == 2
    assert message in err


def test_personal_parameters(run, tmp_path):
    assert run(*QUICK, "--out", "r", "--methods", "fedavg", "--personal", "output.")[0] == 0
    rows = (tmp_path / "r/summary.csv").read_text().splitlines()
    (sent,) = (row.split(",") for row in rows if ",all,bytes_sent," in row)
    assert float(sent[3]) == 2 * 4 * 2_100  # two rounds without the last layer's 101 parameters
    code, _, err = run(*QUICK, "--out", "s", "--methods", "fedavg", "--personal", "head.")
    assert code == 2
    assert "no parameter starts with 'head.'" in err


def test_naming_the_network_that_auto_chooses_gives_the_same_bytes(run, tmp_path):
    for folder, model in (("one", "auto"), ("two", "mlp")):
        assert run(*QUICK, "--out", folder, "--methods", "local", "--model", model)[0] == 0
    one, two = (tmp_path / f"{folder}/metrics.csv" for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_missing_data_says_what_to_do(run):
    code, _, err = run("train", "--data", "cifar10", "--out", "r")
    assert code == 2
    assert "FEDEGOISTS_DATA" in err


def test_tensorboard(run, tmp_path):
    assert run(*QUICK, "--out", "r", "--methods", "local", "--tensorboard")[0] == 0
    assert list((tmp_path / "r/tensorboard").glob("events.*"))


def test_data_list_and_show(run, tmp_path):
    code, out, _ = run("data", "list")
    assert code == 0
    for name in ("synthetic-weak", "cifar100", "eicu-demo", "heart"):
        assert name in out
    code, out, _ = run("data", "show", "synthetic-weak")
    assert code == 0
    assert "1,800" in out
    code, _, err = run("data", "show", "mnist")
    assert code == 2
    assert "mnist" in err


def test_the_comparison_is_kept_beside_its_results(run, tmp_path):
    run(*QUICK, "--out", "r", "--methods", "local")
    kept = json.loads((tmp_path / "r/comparison.json").read_text())
    assert kept["data"] == "synthetic-weak"
    assert kept["seeds"] == [0, 1]


def test_ones_own_silos(run, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "schema.toml").write_text(
        'features = ["x"]\ntarget = "y"\ntask = "binary"\nclasses = ["0", "1"]\n'
    )
    for name in ("north", "south"):
        rows = "".join(f"{k % 7 + (k % 2) + k / 100},{k % 2}\n" for k in range(40))
        (folder / f"{name}.csv").write_text("x,y\n" + rows)
    arguments = ("train", "--data", "own", "--seeds", "2", "--steps", "20", "--out")
    code, _, err = run(*arguments, "a", "--competition", "published")
    assert code == 2
    assert "own comes with no published competition" in err
    assert run(*arguments, "a")[0] == 0
    (folder / "south.csv").write_text("x,y\n" + "1,0\n" * 20 + "many,1\n" * 20)
    code, _, err = run(*arguments, "b")
    assert code == 2
    for part in ("south", "line 22", "'x'", "many"):
        assert part in err
    assert not (tmp_path / "b" / "metrics.csv").exists()


def test_a_command_that_fails_leaves_nothing_behind(run, tmp_path):
    for wrong in (["--personal", "head."], ["--with", "fedavg.mu=1"], ["--personal", ""]):
        assert run(*QUICK, "--out", "r", *wrong)[0] == 2
        assert not (tmp_path / "r").exists()
    assert run(*QUICK, "--out", "r", "--methods", "local")[0] == 0
    assert (tmp_path / "r/failures.csv").read_text().startswith("seed,participant,method,round")
    assert (tmp_path / "r/coalitions.csv").exists()


def test_an_interrupted_comparison_says_how_to_go_on(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedegoists.training.compare", interrupt)
    code, out, err = run(*QUICK, "--out", "result")
    assert code == 130
    assert "Go on with the same command and --resume" in out + err


def test_settings_of_a_method_also_by_the_name_of_its_tuning(run):
    settings = ["--with", "fedprox+ft.mu=0.5", "--with", "fedprox.mu=x"]
    code, _, err = run(*QUICK, "--out", "r", "--methods", "fedprox+ft", *settings)
    assert (code, "fedprox: mu is 'x'; expected a number" in err) == (2, True)


@pytest.mark.parametrize(
    ("metric", "values", "scores", "shown"),
    [
        ("auc", (0.5, 0.75), (0.5, 0.75), "0.6250"),
        ("mse", (0.5, 0.75), (-0.5, -0.75), "0.6250"),
        # Somebody with one class only has no AUC, and was chosen for by its loss; a silo that
        # never answered has no row.
        ("auc", (0.5, math.nan), (0.5, 0.0), "not for all"),
        ("auc", (0.5,), (0.5, -math.inf), "not for all"),
    ],
)
def test_what_to_choose_by_is_only_shown_where_everybody_has_it(metric, values, scores, shown):
    silos = [Participant(f"v{k}", 0) for k in range(2)]
    rows = [
        Row(one, 1, "validation", metric, value) for one, value in zip(silos, values, strict=False)
    ]
    rows += [Row(silos[0], 1, "validation", "loss", math.nan), Row(silos[0], 1, "test", metric, 9)]
    best = [(score, -1.0) for score in scores]
    outcome = Outcome(State(1, {"parameters": torch.zeros(2, 1)}), torch.zeros(2, 1), [1, 1], best)
    outcome.rows.extend(rows)
    assert _validated(outcome, metric) == shown


def test_all_methods_are_those_that_suit_the_task():
    everything = set(_named_methods("all", "auto", "cifar10"))
    assert everything == set(methods_for("network"))
    assert everything - set(_named_methods("all", "auto", "synthetic-weak")) == {"fedpac"}
    assert _named_methods("fedpac, local,fedpac", "mlp", "heart") == ("fedpac", "local")


def test_all_methods_are_those_that_suit_the_model(run):
    pytest.importorskip("lightgbm")
    trees = (*QUICK, "--model", "trees")
    code, out, err = run(
        *trees,
        "--methods",
        "all",
        "--out",
        "r",
        "--benefit",
        "learn",
        "--coalitions",
        "best",
        "--quiet",
    )
    assert (code, err) == (0, "")
    assert "bagging" in out
    assert "fedavg" not in out
    code, _, err = run(*trees, "--out", "other")
    assert code == 2
    assert "fedavg: it averages parameters or follows gradients" in " ".join(err.split())
