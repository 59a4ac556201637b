"""Settings for all tests, made-up data, and the command line inside a test."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

import tests.conftest  # noqa: F401 - the same settings of PyTorch and of the terminal
from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.cifar import CifarOptions, siloed
from fedegoists.learning.datasets.cifar_files import CIFAR10, CIFAR100, Images
from fedegoists.training import repetitions as training
from reproduction.__main__ import main
from tests.learning.datasets.test_eicu import some, write

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with made-up hospitals, and made-up images wherever CIFAR is asked for."""
    write(tmp_path, [stay for hospital in range(1, 5) for stay in some(hospital)])

    def made_up(name, *, data_dir=None, seed=0, **options):
        if not name.startswith("cifar"):
            return load(name, data_dir=data_dir, seed=seed, **options)
        release = CIFAR100 if name == "cifar100" else CIFAR10
        each = (20, 4) if release.classes == 10 else (10, 2)
        labels = np.concatenate([np.repeat(np.arange(release.classes), n) for n in each])
        rng = np.random.default_rng(1)
        pixels = rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
        images = Images(pixels, labels, each[0] * release.classes)
        return siloed(release, images, CifarOptions(**{"participants": 4, **options}), seed=seed)

    monkeypatch.setattr(training, "load", made_up)
    return tmp_path


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Run:
    """Return a function that calls the command line: exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("FEDEGOISTS_DATA", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["python -m reproduction", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call
