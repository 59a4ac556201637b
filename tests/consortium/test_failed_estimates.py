"""A decision that would rest on failed estimates is not called one."""

from dataclasses import replace

import pytest

from fedegoists.cli import main
from fedegoists.consortium import Consortium, pipeline
from fedegoists.consortium.consortium_settings import BenefitSection
from fedegoists.methods.failed_rounds import FailedRunError
from tests.consortium.reports import circle, make

NAMES = ["North", "South", "West"]


@pytest.fixture
def settings(tmp_path):
    run = make(tmp_path, NAMES, circle(NAMES), seeds=1, methods=("local",))
    return run.settings.model_copy(update={"benefit": BenefitSection(repeats=2, steps=5)})


def fail_for(monkeypatch, names):
    """Have the silos of some participants fail in every call of the estimator."""
    learned = pipeline.learn
    failures = tuple(f"{name}: failed 2 times, last not finite" for name in names)
    monkeypatch.setattr(
        pipeline,
        "learn",
        lambda *given, **more: replace(
            learned(*given, **more), absent=tuple(names), failures=failures
        ),
    )


def test_a_run_whose_estimates_all_failed_stops_and_keeps_nothing(settings, monkeypatch):
    with monkeypatch.context() as broken:
        fail_for(broken, NAMES[:2])
        with pytest.raises(FailedRunError, match="North: failed 2 times, last not finite; South"):
            Consortium(settings).run("other")
    consortium = Consortium(settings)
    assert not (consortium.store.folder / "other" / "report.html").exists()
    # The next run asks the silos again.
    assert consortium.run("again").incomplete == ()


def test_a_run_that_failed_for_somebody_says_so_and_does_not_end_with_success(
    settings, tmp_path, monkeypatch, capsys
):
    from fedegoists.consortium.toml_text import config_toml

    fail_for(monkeypatch, NAMES[:1])
    (tmp_path / "c.toml").write_text(config_toml(settings), encoding="utf-8")
    monkeypatch.setattr(
        "sys.argv", ["fedegoists", "run", str(tmp_path / "c.toml"), "--name", "failed"]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "Incomplete: North: its benefits could not be estimated" in capsys.readouterr().out
