"""Logs of training for TensorBoard, MLflow and Weights & Biases.

They have the results of all participants, so they are for whoever may see these: the person who
simulates, or the manager. Packages are imported when a log is asked for.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.install_hints import install_command
from fedegoists.methods.method_run import Observer
from fedegoists.methods.outcome import Outcome

UNUSUAL = re.compile(r"[^\w\-. /:]")
"""Characters that MLflow refuses in names."""

Report = Callable[[str, dict[str, float], int], None]
"""Called with a method, its measurements by name, and the round they were made after."""


@contextmanager
def run_logs(kinds: Sequence[str], folder: Path, name: str) -> Iterator[tuple[Observer, ...]]:
    """Context manager that opens logs, yields observers that fill them, and closes them.

    Parameters
    ----------
    kinds : sequence of str
        Names of `LOGS`.
    folder : Path
        Where logs that are files are written.
    name : str
        The run's name in the logs.

    Raises
    ------
    SettingsError
        For an unknown name.
    MissingDependencyError
        If the package is not installed.
    """
    for kind in kinds:
        if kind not in LOGS:
            raise SettingsError(f"unknown log {kind!r}; logs are {', '.join(LOGS)}")
    with ExitStack() as stack:
        yield tuple(_observer(stack.enter_context(LOGS[kind](folder, name))) for kind in kinds)


def _observer(report: Report) -> Observer:
    def observe(method: str, done: int, total: int, outcome: Outcome) -> None:  # noqa: ARG001
        if not outcome.rows or outcome.rows[-1].round != done:
            return  # this round was not evaluated
        values = {
            f"{method}/{row.split} {row.metric}/{row.participant}": row.value
            for row in outcome.rows
            if row.round == done
        }
        report(method, values, done)

    return observe


def _package(module: str, kind: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependencyError(
            f"the log {kind!r} needs a package that is not installed: {install_command(extra)}"
        ) from None


@contextmanager
def _tensorboard(folder: Path, name: str) -> Iterator[Report]:  # noqa: ARG001
    writer = _package("torch.utils.tensorboard", "tensorboard", "train").SummaryWriter(
        str(folder / "tensorboard")
    )

    def report(_method: str, values: dict[str, float], done: int) -> None:
        for tag, value in values.items():
            writer.add_scalar(tag, value, done)

    try:
        yield report
    finally:
        writer.close()


@contextmanager
def _mlflow(folder: Path, name: str) -> Iterator[Report]:  # noqa: ARG001 - MLFLOW_TRACKING_URI says where
    mlflow = _package("mlflow", "mlflow", "mlflow")

    def report(_method: str, values: dict[str, float], done: int) -> None:
        mlflow.log_metrics({UNUSUAL.sub("_", key): v for key, v in values.items()}, step=done)

    with mlflow.start_run(run_name=name):
        yield report


@contextmanager
def _wandb(folder: Path, name: str) -> Iterator[Report]:
    wandb = _package("wandb", "wandb", "wandb")
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(project="fedegoists", name=name, dir=str(folder))

    def report(method: str, values: dict[str, float], done: int) -> None:
        # Steps of a run must not go back, and every method begins with round 0.
        run.log({**values, f"{method}/round": done})

    try:
        yield report
    finally:
        run.finish()


LOGS = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
"""All logs by name."""
