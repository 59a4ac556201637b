"""The study of privacy, on a few random images."""

import math
from dataclasses import replace

import numpy as np
import pytest

from reproduction import privacy_study
from reproduction.privacy_study import STUDIES, Silos, image_features, page, study_rows
from tests.silos import silos

pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")


def test_the_study_trains_every_method_at_every_budget(monkeypatch):
    images = silos("cifar10-cnn")
    monkeypatch.setattr(privacy_study, "load", lambda name, seed, **options: images)
    monkeypatch.setattr(privacy_study, "BUDGETS", (math.inf, 8.0))
    study = replace(
        STUDIES["cifar10"], batch_size=16, rounds=2, steps=2, clips=(1.0,), rates=(0.1,)
    )
    choices, rows = study_rows(study, "cpu", (10,), (0, 1))
    assert len(choices) == 2 * 3
    assert len(rows) == 2 * 3 * 2 * 3  # budgets, methods, repetitions, participants
    assert all(0 <= float(row[-1]) <= 1 for row in rows)
    shown = page(study, rows, "origin")
    assert "| ∞ |" in shown
    assert "| 8 |" in shown


def test_no_silo_spends_more_than_its_budget():
    study = replace(STUDIES["cifar10"], batch_size=16, rounds=2, steps=3)
    data = privacy_study.load_repetitions(replace(study, data="synthetic-weak"), [0], "cpu")
    trial = Silos(study, data, "cpu")
    assert 0.8 * 3 < trial.spent(3.0) <= 3.0


def test_features_depend_on_no_other_image():
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    whole, one = image_features(images, "cpu", 8), image_features(images[2:3], "cpu", 8)
    assert whole.shape == (5, 64)
    np.testing.assert_allclose(whole[2:3], one, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0, atol=1e-5)
