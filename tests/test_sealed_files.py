"""Seals: no other byte, name, key or age of a file passes."""

import shutil
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import FileError
from fedegoists.sealed_files import (
    BLANK,
    KEY_FILE,
    LEDGER_FILE,
    Seal,
    SealedFolder,
    SealError,
    derived_key,
    owner_secret,
    read_sealed_text,
    write_sealed_text,
)

SEAL = Seal(b"k" * 32)
CONTENT = b'head {"seal": "' + BLANK.encode() + b'"} body \x00\xff' + bytes(range(256))
STAMPED = SEAL.stamped(CONTENT, "place")


@given(
    st.integers(0, len(STAMPED) - 1),
    st.integers(1, 255),
)
def test_a_changed_byte_anywhere_is_noticed(where, change):
    changed = bytearray(STAMPED)
    changed[where] ^= change
    with pytest.raises(SealError):
        SEAL.check(bytes(changed), "place")


@given(st.integers(0, len(STAMPED) - 1))
def test_a_content_that_is_cut_off_is_noticed(length):
    with pytest.raises(SealError):
        SEAL.check(STAMPED[:length], "place")
    with pytest.raises(SealError):
        SEAL.check(STAMPED + STAMPED[:length] + b"x", "place")


def test_another_key_and_another_place_are_noticed():
    SEAL.check(STAMPED, "place")
    with pytest.raises(SealError):
        SEAL.check(STAMPED, "other place")
    with pytest.raises(SealError):
        Seal(b"l" * 32).check(STAMPED, "place")
    # The end of a place is no part of the content.
    assert SEAL.of("ab", b"c") != SEAL.of("a", b"bc")


@pytest.mark.parametrize("content", [b"", b'{"seal": "00"}', STAMPED])
def test_only_a_blank_seal_can_be_stamped(content):
    with pytest.raises(ValueError, match="no blank seal"):
        SEAL.stamped(content, "place")


def test_a_secret_is_drawn_once_and_private(tmp_path):
    path = tmp_path / "new" / "secret"
    secret = owner_secret(path)
    assert owner_secret(path) == secret
    assert owner_secret(tmp_path / "other") != secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert derived_key(secret, "a") != derived_key(secret, "b")


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_secret_is_refused_and_not_replaced(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(FileError, match="restore it from a copy"):
        owner_secret(path)
    assert path.read_bytes() == content


def test_a_secret_is_kept_where_files_have_one_name_only(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refused)
    assert owner_secret(tmp_path / "secret") == owner_secret(tmp_path / "secret")
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_processes_that_draw_a_secret_at_once_get_the_same(tmp_path):
    found, start = [], threading.Barrier(8)

    def draw():
        start.wait()
        found.append(owner_secret(tmp_path / "secret"))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {(tmp_path / "secret").read_bytes()}


def test_a_sealed_folder_returns_what_was_written_last(tmp_path):
    folder = SealedFolder(tmp_path, SEAL)
    folder.write("a", b"1")
    folder.write_all({"a": b"2", "b": b"3"})
    assert folder.read("a") == (b"2", True)
    assert SealedFolder(tmp_path, SEAL).read("b") == (b"3", True)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    with pytest.raises(FileError, match="cannot be read"):
        folder.read("c")


def test_a_process_may_be_killed_between_the_ledger_and_the_file(tmp_path):
    folder = SealedFolder(tmp_path, SEAL)
    folder.write("a", b"1")
    folder.write("a", b"2")
    (tmp_path / "a").write_bytes(b"1")  # as if the last one had not been written
    assert folder.read("a") == (b"1", False)
    folder.write("a", b"3")
    assert folder.read("a") == (b"3", True)


def test_an_older_file_is_refused(tmp_path):
    folder = SealedFolder(tmp_path, SEAL)
    for content in (b"1", b"2", b"3"):
        folder.write("a", content)
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(SealError, match="not what was written here last"):
        folder.read("a")


def test_files_that_change_places_or_come_from_elsewhere_are_refused(tmp_path):
    here, there = SealedFolder(tmp_path, SEAL), SealedFolder(tmp_path / "x", Seal(b"l" * 32))
    here.write_all({"a": b"1", "b": b"2"})
    there.write("a", b"3")
    shutil.copy(tmp_path / "a", tmp_path / "b")
    with pytest.raises(SealError):
        here.read("b")
    shutil.copy(tmp_path / "x" / "a", tmp_path / "a")
    with pytest.raises(SealError):
        here.read("a")
    shutil.copy(tmp_path / "x" / LEDGER_FILE, tmp_path / LEDGER_FILE)
    with pytest.raises(SealError, match="cannot be used"):
        here.read("a")


def test_a_damaged_or_missing_ledger_refuses_all_it_sealed_but_not_new_files(tmp_path):
    folder = SealedFolder(tmp_path, SEAL)
    folder.write_all({"a": b"1", "b": b"2"})
    (tmp_path / LEDGER_FILE).write_bytes(b"{}")
    with pytest.raises(SealError):
        folder.read("a")
    folder.write("c", b"3")
    assert folder.read("c") == (b"3", True)
    with pytest.raises(SealError):
        folder.read("a")
    (tmp_path / LEDGER_FILE).unlink()
    with pytest.raises(SealError):
        folder.read("c")


def test_the_seal_of_a_removed_file_is_forgotten(tmp_path):
    folder = SealedFolder(tmp_path, SEAL)
    folder.write("a", b"1")
    (tmp_path / "a").unlink()
    folder.write("b", b"2")
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(SealError):
        folder.read("a")


def test_a_sealed_text_is_its_folders_alone(tmp_path):
    write_sealed_text(tmp_path / "a" / "t", 'text with "seal": "x"\n')
    assert read_sealed_text(tmp_path / "a" / "t") == 'text with "seal": "x"\n'
    write_sealed_text(tmp_path / "b" / "t", "another")
    shutil.copy(tmp_path / "b" / "t", tmp_path / "a" / "t")
    with pytest.raises(SealError):
        read_sealed_text(tmp_path / "a" / "t")
    # With its key it is the other folder.
    shutil.copy(tmp_path / "b" / KEY_FILE, tmp_path / "a" / KEY_FILE)
    assert read_sealed_text(tmp_path / "a" / "t") == "another"
