"""A silo remembers in which company it trained from a model, whatever happens meanwhile."""

import logging

import pytest

from fedegoists.federation.flare import upload_memory
from fedegoists.federation.flare.upload_memory import UPLOADS_FILE, UploadMemory

LOG = logging.getLogger("test")


@pytest.fixture
def kit(tmp_path):
    return tmp_path / "kit"


def memory(kit):
    return UploadMemory(kit, LOG)


def test_what_was_noted_is_known_after_a_restart_and_only_that(kit):
    one = memory(kit)
    one.note("start", "all")
    one.note("start", "rest")
    one.note("other", "all")
    for known in (one, memory(kit)):
        assert known.companies("start") == ("all", "rest")
        assert known.companies("other") == ("all",)
        assert known.companies("unknown") == ()
    path = kit / "state" / UPLOADS_FILE
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_first_company_can_be_replaced(kit):
    one = memory(kit)
    one.note("start", "all")
    one.note("start", "some", first=True)
    assert memory(kit).companies("start") == ("some", "all")
    one.note("start", "all", first=True)
    one.note("start", "some")
    assert one.companies("start") == memory(kit).companies("start") == ("all", "some")


def test_jobs_of_one_silo_know_of_each_other(kit):
    one, other = memory(kit), memory(kit)
    one.note("start", "all")
    other.note("start", "rest")
    assert one.companies("start") == other.companies("start") == ("all", "rest")


def test_a_sum_is_noted_once(kit):
    one = memory(kit)
    for _ in range(3):
        one.note("start", "all")
    assert (kit / "state" / UPLOADS_FILE).read_text().count("\n") == 1


def test_damaged_and_forged_lines_are_left_out_and_said(kit, caplog):
    memory(kit).note("start", "all")
    path = kit / "state" / UPLOADS_FILE
    line = path.read_text()
    path.write_bytes(
        line.replace("start", "third").encode() + b"\xff\n\n" + line.encode() + b"half"
    )
    found = memory(kit)
    assert found.companies("start") == ("all",)
    assert found.companies("third") == ()
    assert caplog.text.count("damaged line") == 3


def test_a_line_after_one_that_was_cut_off_is_kept(kit):
    memory(kit).note("start", "all")
    path = kit / "state" / UPLOADS_FILE
    path.write_bytes(path.read_bytes() + b"half a li")
    memory(kit).note("start", "rest")
    assert memory(kit).companies("start") == ("all", "rest")


def test_the_oldest_are_forgotten(kit, monkeypatch):
    monkeypatch.setattr(upload_memory, "MOST_LINES", 10)
    one, other = memory(kit), memory(kit)
    for number in range(40):
        one.note(str(number), "all")
    assert other.companies("0") == ()
    other.note("more", "all")
    for known in (one, other, memory(kit)):
        assert known.companies("39") == known.companies("more") == ("all",)
    assert (kit / "state" / UPLOADS_FILE).read_text().count("\n") <= 20
