"""Reading and writing files: clear errors, and all files or none."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists import files
from fedegoists.errors import FedEgoistsError, FileError, GraphError
from fedegoists.files import read_text, write_all, write_bytes


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestReadText:
    def test_text_comes_back_as_written(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes("Zürich\r\n東京\n".encode())
        assert read_text(tmp_path / "a.txt") == "Zürich\r\n東京\n"

    def test_a_path_may_be_a_string(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"x")
        assert read_text(str(tmp_path / "a.txt")) == "x"

    def test_the_byte_order_mark_is_removed_once(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfx")
        assert read_text(tmp_path / "a.txt") == "\ufeffx"

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match=r"none\.csv: no such file"):
            read_text(tmp_path / "none.csv")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match=f"{tmp_path.name}: is a folder, not a file"):
            read_text(tmp_path)

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"x")
        with pytest.raises(FileError, match=r"b\.txt: cannot be read \(Not a directory\)"):
            read_text(tmp_path / "a.txt" / "b.txt")

    def test_not_permitted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(FileError, match=r"a\.txt: cannot be read \(Permission denied\)"):
            read_text(tmp_path / "a.txt")

    def test_endless_links(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to(tmp_path / "b")
        (tmp_path / "b").symlink_to(tmp_path / "a")
        with pytest.raises(FileError, match=r"a: cannot be read \(Too many levels"):
            read_text(tmp_path / "a")

    @pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
    def test_impossible_names(self, name: str) -> None:
        with pytest.raises(FileError, match="no file can have this name"):
            read_text(name)

    def test_latin_1_with_its_line_and_byte(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes("a,b\nZürich,Genf\n".encode("latin-1"))
        # "a,b\n" are bytes 0 to 3, "Z" is byte 4, "ü" byte 5.
        with pytest.raises(FileError, match=r"a\.csv, line 2: byte 5 is not UTF-8.*save .* UTF-8"):
            read_text(tmp_path / "a.csv")

    def test_a_first_line_that_is_empty_counts(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"\n\xff")
        (tmp_path / "b.csv").write_bytes(b"\n\0")
        with pytest.raises(FileError, match=r"a\.csv, line 2: byte 1 is not UTF-8"):
            read_text(tmp_path / "a.csv")
        with pytest.raises(FileError, match=r"b\.csv, line 2: contains a NUL"):
            read_text(tmp_path / "b.csv")

    def test_line_and_byte_after_a_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa,b\n\xff")
        with pytest.raises(FileError, match="line 2: byte 7 is not UTF-8"):
            read_text(tmp_path / "a.csv")

    def test_utf_16_with_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes("a,b\n".encode("utf-16"))
        with pytest.raises(FileError, match=r"a\.csv, line 1: byte 0 is not UTF-8"):
            read_text(tmp_path / "a.csv")

    def test_utf_16_without_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes("a,b\n".encode("utf-16-le"))
        with pytest.raises(FileError, match=r"a\.csv, line 1: contains a NUL character"):
            read_text(tmp_path / "a.csv")

    def test_nul_on_the_third_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"a,b\nx,y\nx\0,z\n")
        with pytest.raises(FileError, match="line 3: contains a NUL character"):
            read_text(tmp_path / "a.csv")

    def test_just_small_enough_and_too_large(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "MAX_BYTES", 1000)
        (tmp_path / "a.csv").write_bytes(b"x" * 1000)
        (tmp_path / "b.csv").write_bytes(b"x" * 1001)
        assert read_text(tmp_path / "a.csv") == "x" * 1000
        with pytest.raises(FileError, match=r"b\.csv: files over 1,000 bytes are refused"):
            read_text(tmp_path / "b.csv")

    @pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs the endless /dev/zero")
    def test_an_endless_device_is_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "MAX_BYTES", 1000)
        with pytest.raises(FileError, match="over 1,000 bytes"):
            read_text("/dev/zero")

    @given(content=st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "any"
        path.write_bytes(content)
        try:
            text = read_text(path)
        except FileError:
            return
        assert text.encode() == content.removeprefix(b"\xef\xbb\xbf")

    def test_the_error_is_both_ours_and_pythons(self, tmp_path: Path) -> None:
        assert issubclass(FileError, FedEgoistsError)
        with pytest.raises(OSError, match="no such file"):
            read_text(tmp_path / "none")


class TestWriteAll:
    def test_content_is_written_and_nothing_else(self, tmp_path: Path) -> None:
        write_all([(tmp_path / "a", b"1"), (tmp_path / "b", b"\0\xff")])
        assert (tmp_path / "a").read_bytes() == b"1"
        assert (tmp_path / "b").read_bytes() == b"\0\xff"
        assert names_in(tmp_path) == ["a", "b"]

    def test_nothing_to_write(self) -> None:
        write_all([])

    def test_existing_content_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a long old content")
        write_bytes(str(tmp_path / "a"), b"new")
        assert (tmp_path / "a").read_bytes() == b"new"

    def test_missing_folders_are_made(self, tmp_path: Path) -> None:
        write_bytes(tmp_path / "x" / "y" / "a", b"1")
        assert (tmp_path / "x" / "y" / "a").read_bytes() == b"1"

    def test_a_reader_keeps_the_whole_old_content(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with (tmp_path / "a").open("rb") as reader:
            write_bytes(tmp_path / "a", b"new")
            assert reader.read() == b"old"

    def test_new_files_have_the_usual_permissions(self, tmp_path: Path, usual_umask: None) -> None:
        write_bytes(tmp_path / "a", b"1")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644

    def test_a_private_file_stays_private(self, tmp_path: Path, usual_umask: None) -> None:
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(0o600)
        write_bytes(tmp_path / "a", b"new")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600

    def test_the_longest_name_a_file_can_have(self, tmp_path: Path) -> None:
        write_bytes(tmp_path / ("x" * 255), b"1")
        assert names_in(tmp_path) == ["x" * 255]

    def test_none_changes_when_a_folder_is_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "folder").mkdir()
        with pytest.raises(FileError, match="folder: cannot be written, as a folder or device"):
            write_all([(tmp_path / "a", b"new"), (tmp_path / "folder", b"1")])
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names_in(tmp_path) == ["a", "folder"]

    def test_none_changes_when_a_name_is_impossible(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileError, match="no file can have this name"):
            write_all([(tmp_path / "a", b"new"), (tmp_path / "x\0y", b"1")])
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names_in(tmp_path) == ["a"]

    def test_none_changes_when_a_name_is_too_long(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match=r"cannot be written \(File name too long\)"):
            write_all([(tmp_path / "a", b"new"), (tmp_path / ("x" * 256), b"1")])
        assert names_in(tmp_path) == []

    def test_a_file_where_a_folder_is_needed(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileError, match=r"b: cannot be written, as .*a is not a folder"):
            write_bytes(tmp_path / "a" / "b", b"1")
        assert (tmp_path / "a").read_bytes() == b"old"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_a_device_is_not_replaced_by_a_file(self, tmp_path: Path) -> None:
        # A pipe stands for /dev/null and its like: a failing test must not harm the machine.
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FileError, match="pipe: cannot be written, as a folder or device"):
            write_bytes(tmp_path / "pipe", b"1")
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)

    @pytest.mark.parametrize("kind", [GraphError, KeyError, PermissionError])
    def test_none_changes_when_the_contents_fail_to_come(
        self, tmp_path: Path, kind: type[Exception]
    ) -> None:
        def contents() -> Iterator[tuple[Path, bytes]]:
            yield tmp_path / "a", b"1"
            raise kind("told as it is")

        with pytest.raises(kind, match="told as it is"):
            write_all(contents())
        assert names_in(tmp_path) == []

    def test_none_changes_when_the_disk_is_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = []

        def full_at_the_second(handle: int) -> None:
            calls.append(handle)
            if len(calls) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full_at_the_second)
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileError, match=r"b: cannot be written \(No space left on device\)"):
            write_all([(tmp_path / "a", b"new"), (tmp_path / "b", b"1")])
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names_in(tmp_path) == ["a"]

    def test_exchanges_are_undone_when_a_later_one_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace = Path.replace

        def refuse_c(self: Path, target: Path) -> Path:
            if target.name == "c":
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", refuse_c)
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "c").write_bytes(b"old c")
        with pytest.raises(FileError, match=r"c: cannot be written \(Operation not permitted\)"):
            write_all([(tmp_path / name, b"new") for name in "abacd"])
        assert (tmp_path / "a").read_bytes() == b"old"
        assert (tmp_path / "c").read_bytes() == b"old c"
        assert names_in(tmp_path) == ["a", "c"]
