"""The help lists every command once, by what a user wants to do."""

from typer.main import get_command

from fedegoists.cli import PANELS, app


def test_every_command_is_in_one_panel():
    shown = {name: one for name, one in get_command(app).commands.items() if not one.hidden}
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(shown)
    for panel, names in PANELS.items():
        assert all(shown[name].rich_help_panel == panel for name in names)


def test_long_commands_print_json():
    commands = get_command(app).commands
    for name in ("form", "what-if", "run", "train", "benefit"):
        options = {flag for one in commands[name].params for flag in one.opts}
        assert {"--json", "--quiet"} <= options, name
