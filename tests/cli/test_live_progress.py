"""Test what a run shows where there is no terminal."""

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedegoists.cli import app, live_progress
from fedegoists.cli.live_progress import LiveView
from fedegoists.examples import banks

STAGES = ("data", "benefit", "training")


def shown(*, every: float, terminal: bool = False) -> str:
    """Return what a view prints about two stages."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=60)
    with LiveView(STAGES, console, every=every) as view:
        view("benefit", "", 0, 0, "")
        view("benefit", "local training", 1, 3, "")
        view("benefit", "local training", 2, 3, "loss [0.5]")
        view.message(
            "look at the data: [images] of the folder North are all of the same size, 3 x 3"
        )
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines() -> None:
    begins, first, second, message = shown(every=0.0).splitlines()
    assert begins == "benefit: …"
    assert first == "benefit: local training: 1/3"
    assert second.startswith("benefit: local training: 2/3  loss [0.5]  ")
    assert second.endswith(" left")
    assert message.startswith("look at the data: [images] of")  # in one line, brackets as they are


def test_each_part_prints_a_line_when_it_begins_and_then_only_now_and_then() -> None:
    assert shown(every=3600.0).splitlines()[:2] == ["benefit: …", "benefit: local training: 1/3"]
    assert len(shown(every=3600.0).splitlines()) == 3


def test_a_terminal_shows_bars_and_no_further_lines() -> None:
    assert "benefit: " not in shown(every=0.0, terminal=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_the_quiet_see_messages_only(terminal, monkeypatch) -> None:
    monkeypatch.setattr(live_progress, "_quiet", True)
    (message,) = shown(every=0.0, terminal=terminal).splitlines()
    assert message.startswith("look at the data")


@pytest.mark.parametrize("command", ["run", "train", "benefit", "form", "what-if", "demo"])
def test_every_long_command_can_be_quiet(command) -> None:
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert "--quiet" in told.output


def test_forming_is_quiet_or_tells_without_a_terminal(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedegoists.cli.output.EVERY", 0.0)
    benefit, competition = banks()
    (tmp_path / "b.csv").write_bytes(benefit.csv_bytes())
    (tmp_path / "c.csv").write_bytes(competition.csv_bytes())
    command = ["form", str(tmp_path / "b.csv"), str(tmp_path / "c.csv")]
    told, quiet = (CliRunner().invoke(app, [*command, *more]) for more in ([], ["--quiet"]))
    assert "Forming coalitions … " in told.stderr
    assert "Forming coalitions" not in quiet.stderr
    assert told.stdout == quiet.stdout
    assert not live_progress.is_quiet()  # the next command is heard again
