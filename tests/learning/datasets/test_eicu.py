"""Intensive care: who is seen when, who is grouped with whom, and what must not leak."""

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning import datasets
from fedegoists.learning.data import DataError, SiloedData
from fedegoists.learning.datasets.eicu import EicuOptions, hospital_group, load_eicu
from tests.learning.real_data import real_data

HOSPITALS = """hospitalid,numbedscategory,teachingstatus,region
1,<100,f,Midwest
2,>= 500,f,Midwest
3,100 - 249,t,South
4,,f,
"""


@dataclass
class Stay:
    """A made-up stay: how many hours it has, and in which hour its label turns to 1."""

    hours: int = 30
    first_label: int | None = None
    hospital: int = 1
    patient: str = ""


def write(data_dir: Path, stays: list[Stay]) -> None:
    """Write the files of the AKI cohort; feature 0 of a row is 100 × stay + hour."""
    folder = data_dir / "eicu_demo"
    folder.mkdir(exist_ok=True)
    ids = np.arange(1000, 1000 + len(stays))
    row_stay = np.concatenate([[i] * s.hours for i, s in zip(ids, stays, strict=True)])
    hour = np.concatenate([np.arange(s.hours) for s in stays])
    label = np.concatenate(
        [np.arange(s.hours) >= (s.hours if s.first_label is None else s.first_label) for s in stays]
    )
    x = np.full((len(hour), 2), np.nan, np.float32)
    x[:, 0] = 100 * (row_stay - 1000) + hour
    np.savez(
        folder / "yaib_aki.npz",
        stay_id=row_stay.astype(np.int32),
        hour=hour.astype(np.int16),
        x=x,
        features=np.array(["hr", "crea"]),
        sta_stay_id=ids.astype(np.int32),
        sta_hospitalid=np.array([s.hospital for s in stays], np.int32),
        sta_age=np.linspace(20, 90, len(stays)).astype(np.float32),
        sta_sex=np.array(["Male", "Female", "nan"])[np.arange(len(stays)) % 3],
        sta_height=np.full(len(stays), np.nan, np.float32),
        sta_weight=np.full(len(stays), 70, np.float32),
        outc_stay_id=row_stay.astype(np.int32),
        outc_label=label.astype(np.float32),
        outc_hour=hour.astype(np.int16),
    )
    patients = "patientunitstayid,uniquepid\n" + "".join(
        f"{i},{s.patient or f'p{i}'}\n" for i, s in zip(ids, stays, strict=True)
    )
    with tarfile.open(folder / "eicu_demo_core.tar", "w") as tar:
        for name, text in (("hospital", HOSPITALS), ("patient", patients)):
            content = gzip.compress(text.encode())
            member = tarfile.TarInfo(f"eicu_demo_2.0.1/{name}.csv.gz")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def some(hospital: int = 1, count: int = 20) -> list[Stay]:
    """Return stays of which every fourth has an injury that begins in hour 26."""
    return [Stay(first_label=20 if k % 4 == 0 else None, hospital=hospital) for k in range(count)]


def raw(data: SiloedData) -> dict[int, int]:
    """Return the outcome by the number of the stay, which is written in feature 0."""
    numbers = (data.samples.inputs[0][:, 0, 0] / 100).astype(int)
    return dict(zip(numbers.tolist(), data.samples.targets.tolist(), strict=True))


class TestWhatIsSeen:
    def test_who_has_something_to_predict_at_hour_12(self, tmp_path: Path) -> None:
        special = [
            Stay(first_label=5),  # 0: began at hour 11: too late to predict
            Stay(first_label=6),  # 1: begins at hour 12: the first that counts
            Stay(hours=12),  # 2: over after hour 11
            Stay(hours=13),  # 3: still there in hour 12
            Stay(hours=13, first_label=6),  # 4: ends in the very hour it begins
        ]
        write(tmp_path, special + some())
        data = load_eicu(EicuOptions(standardise=False), data_dir=tmp_path)
        outcome = raw(data)
        assert {k: outcome.get(k) for k in range(5)} == {0: None, 1: 1, 2: None, 3: 0, 4: 1}
        assert data.notes[1] == "left out: 1 stays over by then, 1 with an injury by then"

    def test_only_the_first_hours_and_all_of_them(self, tmp_path: Path) -> None:
        write(tmp_path, some())
        for hours in (1, 12, 26):
            hourly, static = load_eicu(
                EicuOptions(hours=hours, standardise=False), data_dir=tmp_path
            ).samples.inputs
            assert hourly.shape == (20, hours, 2)
            assert np.array_equal(hourly[:, :, 0], 100 * np.arange(20)[:, None] + np.arange(hours))
            assert np.isnan(hourly[:, :, 1]).all()
            assert static.shape == (20, 4)
            assert static[0, 1] == 1.0
            assert static[1, 1] == 0.0
            assert np.isnan(static[2, 1])

    def test_the_length_of_a_record_cannot_be_seen(self, tmp_path: Path) -> None:
        # YAIB ends the record of a positive stay 6 hours after the onset.
        stays = [
            Stay(hours=27 if k % 4 == 0 else 60, first_label=14 if k % 4 == 0 else None)
            for k in range(20)
        ]
        write(tmp_path, stays)
        hourly = load_eicu(EicuOptions(standardise=False), data_dir=tmp_path).samples.inputs[0]
        assert np.array_equal(np.isnan(hourly[0]), np.isnan(hourly[1]))

    def test_values_are_scaled_by_training_stays_and_cut(self, tmp_path: Path) -> None:
        stays = some()
        write(tmp_path, stays)
        data = load_eicu(EicuOptions(), data_dir=tmp_path)
        hourly, static = data.samples.inputs
        train = hourly[data.silos[0].train][:, :, 0].astype(np.float64)
        assert (train.mean(), train.std()) == pytest.approx((0, 1), abs=1e-5)
        assert np.isnan(hourly[:, :, 1]).all()
        assert set(static[:, 1][~np.isnan(static[:, 1])]) == {0.0, 1.0}
        assert set(static[:, 3]) == {0.0}  # a constant weight
        assert np.nanmax(np.abs(hourly)) <= 10

    def test_a_table_has_summaries_and_marks_for_what_is_missing(self, tmp_path: Path) -> None:
        write(tmp_path, some())
        with np.load(tmp_path / "eicu_demo" / "yaib_aki.npz") as file:
            arrays = dict(file)
        # The second feature of stay 3: 5 in hour 2, 9 in hour 7, 1 in hour 8, and 50 after them.
        for hour, value in ((2, 5.0), (7, 9.0), (8, 1.0), (12, 50.0)):
            arrays["x"][(arrays["stay_id"] == 1003) & (arrays["hour"] == hour), 1] = value
        np.savez(tmp_path / "eicu_demo" / "yaib_aki.npz", **arrays)
        options = EicuOptions(series="summary", standardise=False)
        data = load_eicu(options, data_dir=tmp_path)
        (table,), (preparation,) = data.samples.inputs, data.preparation
        row = dict(zip(preparation.columns, table[3].tolist(), strict=True))
        assert [row[f"hr {what}"] for what in ("mean", "smallest", "largest", "last")] == [
            305.5,
            300,
            311,
            311,
        ]
        assert [row[f"crea {what}"] for what in ("mean", "smallest", "largest", "last")] == [
            5,
            1,
            9,
            1,
        ]
        assert (row["crea missing"], row["hr missing"], row["height missing"]) == (0, 0, 1)
        assert not np.isnan(table).any()
        missing = table[:, preparation.columns.index("crea missing")]
        assert missing.tolist() == [float(k != 3) for k in range(20)]
        scaled = load_eicu(EicuOptions(series="summary"), data_dir=tmp_path)
        train = scaled.samples.inputs[0][scaled.silos[0].train].astype(np.float64)
        assert (train[:, 0].mean(), train[:, 0].std()) == pytest.approx((0, 1), abs=1e-5)
        assert set(train[:, preparation.columns.index("sex missing")]) == {0.0, 1.0}


class TestWhoBelongsTogether:
    @pytest.mark.parametrize(
        ("hospital", "group"),
        [
            (("Midwest", "<100", False), "Midwest small"),
            (("Midwest", "", False), "Midwest small"),
            (("West", "250 - 499", False), "West large"),
            (("West", ">= 500", True), "West large"),
            (("South", "100 - 249", True), "South large"),
            (("Northeast", ">= 500", True), "Northeast"),
            (("", ">= 500", True), "Unknown region"),
        ],
    )
    def test_groups(self, hospital: tuple[str, str, bool], group: str) -> None:
        assert hospital_group(*hospital) == group
        assert hospital_group(*hospital, groups="region") == (hospital[0] or "Unknown region")

    def test_silos_are_groups_of_hospitals(self, tmp_path: Path) -> None:
        write(tmp_path, [stay for hospital in (1, 2, 3, 4) for stay in some(hospital)])
        data = load_eicu(EicuOptions(), data_dir=tmp_path)
        assert data.participants == (
            "Midwest large",
            "Midwest small",
            "South large",
            "Unknown region",
        )
        assert set(data.sizes().values()) == {(14, 3, 3)}
        data = load_eicu(EicuOptions(groups="region"), data_dir=tmp_path)
        assert data.participants == ("Midwest", "South", "Unknown region")

    def test_a_hospital_that_the_table_does_not_have(self, tmp_path: Path) -> None:
        write(tmp_path, some(hospital=99))
        assert load_eicu(EicuOptions(), data_dir=tmp_path).participants == ("Unknown region",)

    @pytest.mark.parametrize("seed", range(5))
    def test_all_stays_of_a_patient_have_one_purpose(self, tmp_path: Path, seed: int) -> None:
        stays = [stay for hospital in (1, 2) for stay in some(hospital, 40)]
        for k, stay in enumerate(stays):
            stay.patient = f"p{k % 30}"  # two or three stays, some in both silos
        write(tmp_path, stays)
        data = load_eicu(EicuOptions(standardise=False), data_dir=tmp_path, seed=seed)
        purposes: dict[int, set[str]] = {}
        for silo in data.silos:
            for split in ("train", "validation", "test"):
                for position in silo.of(split):
                    purposes.setdefault(int(position) % 30, set()).add(split)
        assert set(map(len, purposes.values())) == {1}

    def test_a_split_with_one_outcome(self, tmp_path: Path) -> None:
        write(tmp_path, [*some(1), *(Stay(hospital=2) for _ in range(20))])
        with pytest.raises(
            DataError,
            match=r"^eicu-demo, silo 'Midwest large': its 14 stays for training are all negative "
            r"for aki, so AUC is not defined; choose groups='region'",
        ):
            load_eicu(EicuOptions(), data_dir=tmp_path)


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(
            DataError, match=r"^eicu-demo: no file yaib_aki\.npz in .*; put there eicu_demo_core\.t"
        ):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        write(tmp_path, some())
        (tmp_path / "eicu_demo" / "eicu_demo_core.tar").unlink()
        with pytest.raises(DataError, match=r"no file eicu_demo_core\.tar in"):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        with pytest.raises(DataError, match=r"no file yaib_mortality24\.npz in"):
            load_eicu(EicuOptions(target="mortality24"), data_dir=tmp_path)

    def test_damaged_arrays(self, tmp_path: Path) -> None:
        write(tmp_path, some())
        path = tmp_path / "eicu_demo" / "yaib_aki.npz"
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **(arrays | {"stay_id": arrays["stay_id"] + 1}))
        with pytest.raises(
            DataError, match=r"row 570 is of stay 1020, which is not in sta_stay_id"
        ):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        del arrays["outc_hour"]
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=r"it has no array 'outc_hour'; it must hold stay_id,"):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        path.write_bytes(path.read_bytes()[:500])
        with pytest.raises(DataError, match=r"^eicu-demo, .*yaib_aki\.npz: not an NPZ file that"):
            load_eicu(EicuOptions(), data_dir=tmp_path)

    def test_damaged_tables(self, tmp_path: Path) -> None:
        write(tmp_path, some())
        path = tmp_path / "eicu_demo" / "eicu_demo_core.tar"
        content = bytearray(path.read_bytes())
        content[560:600] = b"\0" * 40  # inside the compressed hospital table
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"hospital\.csv\.gz cannot be read \("):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        with tarfile.open(path, "w"):
            pass
        with pytest.raises(
            DataError, match=r"it has no hospital\.csv\.gz; take it from https://ph"
        ):
            load_eicu(EicuOptions(), data_dir=tmp_path)
        path.write_bytes(b"no archive")
        with pytest.raises(DataError, match=r"hospital\.csv\.gz cannot be read \(ReadError"):
            load_eicu(EicuOptions(), data_dir=tmp_path)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"target": "los"}, ": target is 'los': input should be 'aki' or 'mortality24'$"),
            ({"groups": 8}, ": groups is 8: input should be 'region-size' or 'region'$"),
            ({"hours": 49}, ": hours is 49; for aki give 1 to 48$"),
            (
                {"target": "mortality24", "hours": 26},
                ": hours is 26; for mort.* 1 to 25$",
            ),
            ({"standardise": "yes"}, ": standardise is 'yes': input should be a valid boolean$"),
        ],
    )
    def test_options_out_of_range(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingsError, match=f"^eicu-demo{message}"):
            datasets.load("eicu-demo", **options)


class TestRealStays:
    @pytest.mark.parametrize(
        ("target", "stays", "positive", "hours"),
        [("aki", 1704, 544, 12), ("mortality24", 1367, 70, 25)],
    )
    def test_shapes_and_outcomes(self, target: str, stays: int, positive: int, hours: int) -> None:
        data = datasets.load("eicu-demo", data_dir=real_data("eicu_demo"), target=target)
        hourly, static = data.samples.inputs
        assert hourly.shape == (stays, hours, 48)
        assert static.shape == (stays, 4)
        assert data.samples.targets.sum() == positive
        assert len(data.silos) == 8
        assert sum(map(sum, data.sizes().values())) == stays

    @pytest.mark.parametrize("target", ["aki", "mortality24"])
    @pytest.mark.parametrize("groups", ["region", "region-size"])
    @pytest.mark.parametrize("seed", range(5))
    def test_auc_is_defined_in_every_split(self, target: str, groups: str, seed: int) -> None:
        data = datasets.load(
            "eicu-demo", data_dir=real_data("eicu_demo"), target=target, groups=groups, seed=seed
        )
        for split in ("train", "validation", "test"):
            assert data.label_counts(split).min() >= 1

    def test_six_hours_keep_everybody(self) -> None:
        data = datasets.load("eicu-demo", data_dir=real_data("eicu_demo"), hours=6)
        assert (len(data.samples), data.samples.targets.sum()) == (1988, 698)

    def test_the_onset_is_six_hours_after_the_first_label(self) -> None:
        # It is where creatinine was measured far more often than in any hour around it.
        with np.load(real_data("eicu_demo") / "eicu_demo" / "yaib_aki.npz") as file:
            stay, hour, label = file["stay_id"], file["hour"].astype(int), file["outc_label"] > 0
            crea = ~np.isnan(file["x"][:, file["features"].tolist().index("crea")])
        first = {int(s): int(h) for s, h in zip(stay[label][::-1], hour[label][::-1], strict=True)}
        after = np.array([h - first.get(int(s), 10**6) for s, h in zip(stay, hour, strict=True)])
        measured = {k: int(np.sum(crea & (after == k))) for k in range(13)}
        assert max(measured, key=lambda k: measured[k]) == 6
        assert measured[6] > 3 * max(count for k, count in measured.items() if k != 6)
