"""Commands that were moved out of the package."""

import pytest


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ((), "run: python -m reproduction\n"),
        (("--help",), "run: python -m reproduction --help\n"),
        (
            ("table1", "--methods", "local, four times", "--resume"),
            "run: python -m reproduction table1 --methods 'local, four times' --resume\n",
        ),
    ],
)
def test_reproduce_says_where_it_is(run, given, shown):
    code, out, err = run("reproduce", *given)
    assert (code, out) == (2, "")
    assert err.endswith(shown)


def test_the_old_command_is_no_longer_listed(run):
    assert "reproduce" not in run("--help")[1]
