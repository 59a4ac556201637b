"""Test what a run shows where there is no terminal."""

from io import StringIO

from rich.console import Console

from fedegoists.cli.live_progress import LiveView

STAGES = ("data", "benefit", "training")


def shown(*, quiet: float, terminal: bool = False) -> str:
    """Return what a view prints about two stages."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=60)
    with LiveView(STAGES, console, quiet=quiet) as view:
        view("benefit", "", 0, 0, "")
        view("benefit", "local training", 1, 3, "")
        view("benefit", "local training", 2, 3, "loss [0.5]")
        view.message(
            "look at the data: [images] of the folder North are all of the same size, 3 x 3"
        )
    return stream.getvalue()


def test_without_a_terminal_a_long_stage_prints_lines() -> None:
    first, second, message = shown(quiet=0.0).splitlines()
    assert first == "benefit: local training  1/3"
    assert second.startswith("benefit: local training  2/3  loss [0.5]  ")
    assert second.endswith(" left")
    assert message.startswith("look at the data: [images] of")  # in one line, brackets as they are


def test_without_a_terminal_a_short_stage_prints_nothing_but_messages() -> None:
    assert len(shown(quiet=3600.0).splitlines()) == 1


def test_a_terminal_shows_bars_and_no_further_lines() -> None:
    assert "benefit: " not in shown(quiet=0.0, terminal=True)
