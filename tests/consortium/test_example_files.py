"""Example files: every setting is in them, and every commented line can be used as it is."""

import re
import subprocess
import sys

import pytest

from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.consortium.example_files import EXAMPLES, init
from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import MODELS


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_setting_is_written_with_its_default_as_a_comment(example, tmp_path):
    (file, *_) = init(tmp_path, example)
    text = file.read_text()
    settings = read_settings(file)
    for name, section in settings:
        if name == "name":
            continue
        table = text.split(f"[{name}]\n")[1].split("\n[")[0]
        for key, field in type(section).model_fields.items():
            (line,) = re.findall(rf"^(?:# )?{key} = .*$", table, re.M)
            assert field.description.split()[0] in line
    assert all(model in text for model in MODELS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_comment_is_a_setting_that_can_be_used(example, tmp_path):
    (file, *_) = init(tmp_path, example)
    lines = file.read_text().splitlines()
    before, table, used = read_settings(file), "", 0
    for k, line in enumerate(lines):
        if line.startswith("["):
            table = line.strip("[]")
        found = re.match(r"# (\w+) = ", line)
        if not found:
            continue
        file.write_text("\n".join([*lines[:k], line[2:], *lines[k + 1 :]]) + "\n")
        if table == "competition" or found[1] in ("file", "epochs"):
            continue  # only one of several may be given, or another one is needed
        if (example, found[1]) in {("text", "model_settings"), ("images", "transfers")}:
            continue  # its model comes from a file; its estimator is not curves
        changed = read_settings(file)
        used += 1
        value = getattr(getattr(changed, table), found[1])
        kind = ConsortiumSettings.model_fields[table].annotation
        if not kind.model_fields[found[1]].examples:
            assert value == getattr(getattr(before, table), found[1])
    assert used > 20


def test_the_clinics_for_trees_come_with_their_files(tmp_path):
    written = init(tmp_path, "trees")
    assert len(written) == 7
    data = load(str(tmp_path / "clinics"))
    assert data.participants == ("Aspen", "Beech", "Hazel", "Maple", "Rowan")
    assert min(sum(silo.sizes) for silo in data.silos) == 700
    share = data.samples.targets.mean()
    assert 0.3 < share < 0.7


def test_banks_come_with_their_files_and_nothing_is_overwritten(tmp_path):
    written = init(tmp_path, "banks")
    assert [path.name for path in written[:3]] == ["consortium.toml", "schema.toml", "Alder.csv"]
    with pytest.raises(FileError, match="is there already; nothing was written"):
        init(tmp_path, "banks")
    with pytest.raises(SettingsError, match="unknown example 'bank'; examples are registries, sy"):
        init(tmp_path, "bank")


def test_no_pytorch_is_needed(tmp_path):
    code = (
        "import sys; from fedegoists.cli import app\n"
        "app(['init', sys.argv[1]], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    seen = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert seen.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("example", "task", "participants"),
    [
        ("images", "binary", ("Harbour", "Lakeside", "Meadow", "Ridge")),
        ("survival", "survival", ("Coast", "Delta", "Forest", "Plain", "Summit")),
    ],
)
def test_examples_with_data_run_to_a_report(example, task, participants, tmp_path):
    pytest.importorskip("torch")
    from fedegoists.consortium import Consortium

    (file, *_) = init(tmp_path, example)
    quick = [
        "benefit.estimator=everybody",
        'training.methods=["local", "fedavg"]',
        "training.steps=4",
        "training.seeds=1",
    ]
    consortium = Consortium(read_settings(file, quick))
    assert consortium.engine.data.task == task
    assert consortium.engine.data.participants == participants
    assert not consortium.engine.samples.warnings
    run = consortium.run()
    assert (run.folder / "report.html").is_file()


def test_scans_of_a_patient_are_for_one_purpose(tmp_path):
    from fedegoists.learning.datasets import load_own

    init(tmp_path, "images")
    data = load_own(tmp_path / "scans")
    assert all(len(part) % 2 == 0 for silo in data.silos for part in silo.parts)
