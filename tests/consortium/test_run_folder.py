"""The folder of a run: who can read its log."""

import stat

from fedegoists.consortium.progress import SILENT
from fedegoists.consortium.run_folder import RunFolder


def test_the_log_of_a_run_is_for_its_owner_only(tmp_path):
    folder = RunFolder(tmp_path, SILENT)
    folder.log("one")
    folder.log("two")
    log = tmp_path / "log.txt"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert [line.split(" ", 2)[2] for line in log.read_text().splitlines()] == ["one", "two"]
