"""The synthetic regressions: the formula, its moments, and the paper's settings."""

import numpy as np
import pytest

from fedegoists import CompetitionGraph
from fedegoists.errors import SettingsError
from fedegoists.learning import datasets
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets.synthetic import (
    STRONG,
    WEAK,
    Setting,
    SyntheticOptions,
    load_synthetic,
)

LARGE = {"v1", "v2", "v5", "v6"}


def powers(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """x, x² and x³ side by side, elementwise."""
    x = x.astype(np.float64)
    return np.concatenate([x, x * x, x * x * x], axis=1)


def everything(data: SiloedData, name: str) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    part = data.samples.take(data.silo(name).all)
    return part.inputs[0], part.targets


def drawn(setting: Setting, *, seed: int = 0, rho: float = 0.01) -> SiloedData:
    return load_synthetic(setting, SyntheticOptions(rho=rho), seed=seed)


class TestSettings:
    def test_weak(self) -> None:
        data = datasets.load("synthetic-weak")
        assert data.participants == tuple(f"v{i}" for i in range(1, 9))
        for name, sizes in data.sizes().items():
            assert sizes == ((1800, 200, 1000) if name in LARGE else (90, 10, 1000))
        assert data.task == "regression"
        assert data.classes is None
        assert data.samples.inputs[0].shape == (4 * 3000 + 4 * 1100, 20)
        assert data.samples.inputs[0].dtype == data.samples.targets.dtype == np.float32

    def test_strong(self) -> None:
        data = datasets.load("synthetic-strong")
        assert set(data.sizes().values()) == {(1800, 200, 1000)}

    def test_competition_of_the_paper(self) -> None:
        weak, strong = (
            CompetitionGraph(data.competition_pairs, data.participants)
            for data in (
                drawn(WEAK),
                drawn(STRONG),
            )
        )
        number = {f"v{i}": i for i in range(1, 9)}
        found = {tuple(sorted((number[a], number[b]))) for a, b in weak.pairs}
        assert found == {(1, 5), (1, 6), (2, 5), (2, 6), (1, 7), (2, 8), (3, 5), (4, 6)}
        found = {tuple(sorted((number[a], number[b]))) for a, b in strong.pairs}
        assert found == {(1, 3), (1, 4), (2, 3), (2, 4), (5, 7), (5, 8), (6, 7), (6, 8)}

    def test_the_seed_decides(self) -> None:
        one, again, other = (drawn(WEAK, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.samples.targets, again.samples.targets)
        assert not np.array_equal(one.samples.targets, other.samples.targets)

    def test_v1_has_the_same_data_in_both_settings(self) -> None:
        # Only what the settings are about differs.
        weak, strong = (everything(drawn(s, seed=3), "v1") for s in (WEAK, STRONG))
        assert np.array_equal(weak[0], strong[0])
        assert np.array_equal(weak[1], strong[1])

    @pytest.mark.parametrize("rho", [0, -1, "x"])
    def test_what_is_no_rho(self, rho: float) -> None:
        with pytest.raises(SettingsError, match=r"^synthetic-weak: rho is .*: input should be "):
            datasets.load("synthetic-weak", rho=rho)


class TestFormula:
    def test_inputs_are_uniform(self) -> None:
        x = drawn(STRONG).samples.inputs[0]
        assert x.min() >= -1
        assert x.max() <= 1
        assert x.mean() == pytest.approx(0, abs=0.01)
        assert x.var() == pytest.approx(1 / 3, abs=0.01)
        assert (x.astype(np.float64) ** 4).mean() == pytest.approx(1 / 5, abs=0.01)

    @pytest.mark.parametrize("setting", [WEAK, STRONG], ids=["weak", "strong"])
    def test_coefficients_and_noise_from_least_squares(self, setting: Setting) -> None:
        data = drawn(setting, seed=4)
        solved = {}
        for name in ("v1", "v2", "v5", "v6"):
            x, y = everything(data, name)
            solution, residual, *_ = np.linalg.lstsq(powers(x), y, rcond=None)
            solved[name] = solution.reshape(3, 20)
            # 3,000 samples and 60 coefficients: what is left over is the noise, N(0, 0.5²).
            assert residual[0] / (3000 - 60) == pytest.approx(0.25, rel=0.08)
        sign = 1 if setting is WEAK else -1
        # v ~ U[0, 1]; squares are known better than the correlated odd powers.
        for name in ("v1", "v2"):
            assert solved[name][1].min() > -0.15
            assert solved[name][1].max() < 1.15
        # The same v for all participants, for every power; rho is too small to be seen.
        assert solved["v1"][1] == pytest.approx(solved["v2"][1], abs=0.2)
        assert solved["v1"][1] == pytest.approx(sign * solved["v5"][1], abs=0.2)
        total = solved["v1"][0] + solved["v1"][2]  # the value at x = 1
        assert total == pytest.approx(2 * solved["v1"][1], abs=0.45)
        assert np.corrcoef(total, solved["v1"][1])[0, 1] > 0.9

    def test_rho_is_the_deviation_between_participants(self) -> None:
        data = drawn(STRONG, seed=1, rho=2.0)
        squares = []
        for name in ("v1", "v2", "v3", "v4"):
            x, y = everything(data, name)
            squares.append(np.linalg.lstsq(powers(x), y, rcond=None)[0].reshape(3, 20)[1])
        # Of four participants' coefficients around a common one: 20 sample deviations.
        assert np.std(squares, axis=0, ddof=1).mean() == pytest.approx(2.0 * 0.92, rel=0.15)

    def test_the_noise_floor_of_the_squared_error(self) -> None:
        data = drawn(STRONG, seed=2)
        train, test = data.part("v1", "train"), data.part("v1", "test")
        solution = np.linalg.lstsq(powers(train.inputs[0]), train.targets, rcond=None)[0]
        error = np.mean((powers(test.inputs[0]) @ solution - test.targets) ** 2)
        assert 0.2 < error < 0.32
        other = data.part("v5", "test")
        error = np.mean((powers(other.inputs[0]) @ solution - other.targets) ** 2)
        assert error > 10  # the opposite sign
