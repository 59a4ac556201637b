"""Checkpoints of a run: only what was written is read again, or the one before it."""

import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from fedegoists.errors import FileError
from fedegoists.learning.tensor_files import (
    TEXT_KEY,
    previous,
    read_checkpoint,
    tensors_and_text,
    write_checkpoint,
)
from fedegoists.sealed_files import KEY_FILE

OFTEN = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(path, number):
    write_checkpoint(path, {"w": torch.full((3,), float(number))}, f"round {number}")


def read(path):
    tensors, text = read_checkpoint(path)
    assert text == f"round {tensors['w'][0]:.0f}"
    return float(tensors["w"][0])


def test_a_checkpoint_is_a_safetensors_file_with_its_text(tmp_path):
    path = tmp_path / "new" / "c.safetensors"
    written(path, 1)
    assert read(path) == 1
    assert load_file(path)["w"].tolist() == [1, 1, 1]
    assert not previous(path).exists()
    written(path, 2)
    assert (read(path), read_checkpoint(path)[1]) == (2, "round 2")


@OFTEN
@given(part=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_anywhere_leads_to_the_one_before(tmp_path, caplog, part, change):
    path = tmp_path / "c.safetensors"
    written(path, 1)
    written(path, 2)
    content = bytearray(path.read_bytes())
    content[int(part * len(content))] ^= change
    path.write_bytes(content)
    caplog.clear()
    assert read(path) == 1
    assert "going on from the checkpoint before it" in caplog.text
    assert path.with_suffix(".damaged").read_bytes() == content
    assert read(path) == 1  # it is the last one now


@OFTEN
@given(part=st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_off_is_refused(tmp_path, part):
    path = tmp_path / "c.safetensors"
    path.unlink(missing_ok=True)
    previous(path).unlink(missing_ok=True)
    written(path, 1)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileError, match="remove it to start again"):
        read(path)


def test_checkpoints_of_another_method_or_run_are_refused(tmp_path):
    one, other, elsewhere = (
        tmp_path / n for n in ("a/m.safetensors", "a/n.safetensors", "b/m.safetensors")
    )
    for path in (one, other, elsewhere):
        written(path, 1)
    for source in (other, elsewhere):
        shutil.copy(source, one)
        with pytest.raises(FileError, match="not a checkpoint of this folder"):
            read(one)
    # A folder that is copied as a whole has its key.
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    assert read(tmp_path / "copy" / "m.safetensors") == 1
    (tmp_path / "copy" / KEY_FILE).unlink()
    with pytest.raises(FileError, match="not a checkpoint of this folder"):
        read(tmp_path / "copy" / "m.safetensors")


def test_the_one_before_is_kept_where_files_have_one_name_only(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    path = tmp_path / "c.safetensors"
    monkeypatch.setattr("os.link", refused)
    for number in (1, 2):
        written(path, number)
    path.write_bytes(b"damaged")
    assert read(path) == 1


def test_a_file_without_a_seal_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    path.write_bytes(save({"w": torch.ones(3)}, {TEXT_KEY: "round 1"}))
    with pytest.raises(FileError, match="of an earlier version"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 20, save({"w": torch.ones(3)}), save({"w": torch.ones(3)}, {"x": "y"})]
)
def test_other_content_is_not_read(content):
    with pytest.raises(ValueError, match=r".*"):
        tensors_and_text(content)
