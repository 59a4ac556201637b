"""Learning a benefit graph from the command line."""

import csv

import pytest

QUICK = ("benefit", "--data", "own", "--out", "r", "--repeats", "2", "--quiet")


@pytest.fixture
def own(tmp_path):
    write_own(tmp_path)


def write_own(tmp_path):
    """Three organisations, of which two have the same task."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "schema.toml").write_text('features = ["x"]\ntarget = "y"\ntask = "regression"\n')
    for name, sign in (("north", 1), ("south", 1), ("west", -1)):
        places = [k % 9 - 4 + k / 1000 for k in range(60)]
        rows = [(x, sign * x + (k * 7 % 5 - 2) * 0.3) for k, x in enumerate(places)]
        text = "".join(f"{x},{y}\n" for x, y in rows)
        (folder / f"{name}.csv").write_text("x,y\n" + text)


def test_benefit_feeds_form(run, tmp_path, own):
    code, out, err = run(*QUICK, "--threshold", "0.02")
    assert (code, err) == (0, "")
    assert "Who benefits from whom" in out
    folder = tmp_path / "r"
    with (folder / "weights.csv").open() as file:
        weights = {(r["source"], r["target"]): float(r["weight"]) for r in csv.DictReader(file)}
    assert len(weights) == 6
    assert weights["north", "south"] > weights["west", "south"]
    assert (folder / "benefit.csv").read_text().startswith("source,target,weight\n")
    for picture in ("heatmap.png", "thresholds.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    report = (folder / "report.md").read_text()
    for part in ("ε = 0.02", "Cost of one silo", "between repeats"):
        assert part in report
    (tmp_path / "rivals.csv").write_text("a,b\nnorth,west\n")
    code, out, _ = run("form", "r/benefit.csv", "rivals.csv")
    assert code == 0
    assert "south" in out


def test_estimators_and_seeds_are_compared(run, tmp_path, own):
    steps = ("--learn", "steps=20", "--learn", "preference_steps=5", "--seeds", "2")
    code, _, err = run(*QUICK, "--estimator", "transfer,hypernetwork,alignment", *steps)
    assert (code, err) == (0, "")
    report = (tmp_path / "r/report.md").read_text()
    assert "between 2 seeds" in report
    with (tmp_path / "r/estimates.csv").open() as file:
        places = [(row["estimator"], row["seed"]) for row in csv.DictReader(file)]
    names = ("transfer", "hypernetwork", "alignment")
    assert places == [(name, seed) for name in names for seed in "01" for _ in range(6)]


@pytest.mark.parametrize(
    "moved", [("--measure",), ("--measure-repeats", "2"), ("--no-leave-one-out",)]
)
def test_measuring_the_truth_has_moved(run, tmp_path, own, moved):
    code, _, err = run(*QUICK, *moved)
    assert code == 2
    assert "python -m reproduction benefit-study" in err
    assert not (tmp_path / "r").exists()
    assert moved[0] not in run("benefit", "--help")[1]


def test_weights_that_are_zero_between_competitors_are_private(run, tmp_path, own):
    run(*QUICK)
    for path in (tmp_path / "r").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_report_keeps_competitors_apart(run, tmp_path, own):
    """Without the file north and south would be together at a threshold of 0."""
    (tmp_path / "rivals.csv").write_text("a,b\nnorth,south\nnorth,west\nsouth,west\n")
    code, _, err = run(*QUICK, "--estimator", "alignment", "--competition", "rivals.csv")
    assert (code, err) == (0, "")
    sweep = (tmp_path / "r/report.md").read_text().split("## Edges")[1].split("##")[0]
    assert "north, south" not in sweep
    assert "| none |" in sweep


def test_privacy_is_accounted_for_in_the_report(run, tmp_path, own):
    pytest.importorskip("dp_accounting")
    code, _, err = run(
        *QUICK,
        *("--estimator", "hypernetwork", "--learn", "steps=20", "--learn", "preference_steps=5"),
        *("--clip", "1", "--noise", "2"),
    )
    assert (code, err) == (0, "")
    report = (tmp_path / "r/report.md").read_text()
    assert "| participant | ε | δ |" in report
    assert "one seed" not in report
    assert "without clipping" not in report


def test_a_seed_of_learning_can_be_given(run, tmp_path, own):
    weights = []
    for seed in "12":
        assert (
            run(*QUICK, "--estimator", "alignment", "--learn", f"seed={seed}", "--replace")[0] == 0
        )
        weights.append((tmp_path / "r/weights.csv").read_text())
    assert weights[0] != weights[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--estimator", "guess"), "unknown estimator 'guess'"),
        (("--estimator", ""), "at least one estimator"),
        (("--learn", "colour=red"), "settings are steps"),
        (("--clip", "1"), "sends trained models"),
        (("--threshold", "0.1", "--confidence", "0.9"), "not both"),
        (("--confidence", "2"), "confidence is 2.0"),
        (("--set", "rho=1"), "a folder of files has no options"),
        (("--learn", "steps=abc"), "steps is abc; expected a whole number"),
        (("--learn", "steps=1.5"), "steps is 1.5; expected a whole number"),
        (("--learn", "steps"), "--learn 'steps': expected KEY=VALUE"),
        (("--learn", "noise=4"), "--learn noise: use --noise"),
        (("--estimator", "hypernetwork", "--clip", "inf"), "clip is inf"),
        (("--estimator", "alignment", "--repeats", "1"), "or a threshold"),
        (("--estimator", "hypernetwork", "--clip", "1", "--repeats", "1"), "or a threshold"),
    ],
)
def test_bad_options_are_named(run, own, tmp_path, arguments, message):
    code, _, err = run(*QUICK, *arguments)
    assert code == 2
    assert message in err
    assert not (tmp_path / "r").exists()
