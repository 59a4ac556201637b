"""How often the decision of the first example finds the two forms of the disease.

The example's settings were chosen on seeds 10 to 12 of its generator; the package uses seed 0. Here
are 20 other seeds, each with other patients and other effects of the proteins. A decision finds the
two forms if no coalition has registries of both. The first few seeds are also trained. Every seed
is written when it is done, and not computed again.

    python -m benchmarks.bench_first_example [--seeds 20] [--trained 5]
"""

import argparse
import csv
import tempfile
from pathlib import Path

import torch

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.example_files import GIVEN
from fedegoists.consortium.example_rare_disease import FIRST_FORM, rare_disease_files
from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.report.bottom_line import mean_gain, plain_unit
from fedegoists.consortium.report.results_section import Results
from fedegoists.files import write_all
from fedegoists.learning.estimates import Estimate

FIRST_SEED = 100
OUT = Path(__file__).parent / "results" / "first_example.csv"
COLUMNS = (
    "seed", "mixed", "together", "coalitions", "gain", "gain_low", "gain_high", "better", "worse",
    "everybody", "everybody_low", "everybody_high", "everybody_worse",
)  # fmt: skip


def examined(seed: int, *, trained: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        files = rare_disease_files(seed)
        write_all([(place / path, content) for path, content in files.items()], private=False)
        given = {**GIVEN["registries"], "data": {"source": str(place / "registries")}}
        settings = ConsortiumSettings.model_validate(
            {**given, "output": {"folder": str(place / "runs")}}
        )
        consortium = Consortium(settings)
        run = consortium.run() if trained else None
        formation = consortium.form(consortium.learn_benefit()) if run is None else run.formation
        groups = [group for group in formation.coalitions if len(group) > 1]
        row: dict[str, object] = {
            "seed": seed,
            "mixed": sum(0 < len(set(group) & set(FIRST_FORM)) < len(group) for group in groups),
            "together": sum(map(len, groups)),
            "coalitions": "; ".join(", ".join(group) for group in groups),
        }
        if run is not None:
            results, unit = Results.of(run), plain_unit(run)
            gain = mean_gain(run, results, unit).interval()
            verdicts = [one.gain.verdict for one in results.delivered if one.method != "local"]
            assert run.everybody is not None
            alone = {one.participant: one.alone for one in run.everybody.gains}
            all_ = {
                name: unit.estimate(one, alone[name])
                for (method, name), one in run.everybody.estimates.items()
                if method == "fedavg"
            }
            mean = Estimate.mean_of(list(all_.values())).interval()
            row |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
            row |= {"better": verdicts.count("better"), "worse": verdicts.count("worse")}
            row |= {"everybody": mean.value, "everybody_low": mean.low, "everybody_high": mean.high}
            row["everybody_worse"] = sum(one.interval().high < 0 for one in all_.values())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trained", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    done = []
    if OUT.exists():
        with OUT.open(encoding="utf-8", newline="") as file:
            done = list(csv.DictReader(file))
    known = {int(row["seed"]) for row in done}
    for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds):
        if seed not in known:
            row = examined(seed, trained=seed < FIRST_SEED + asked.trained)
            done.append({
                key: f"{value:.4g}" if isinstance(value, float) else str(value)
                for key, value in row.items()
            })  # fmt: skip
            with OUT.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(sorted(done, key=lambda one: int(one["seed"])))
            print(done[-1], flush=True)
    found = sum(row["mixed"] == "0" and int(row["together"]) > 0 for row in done)
    print(f"the two forms were kept apart, in coalitions, in {found} of {len(done)} seeds")
    mean = sum(int(row["together"]) for row in done) / len(done)
    print(f"registries in a coalition: {mean:.1f} of 8 on average")


if __name__ == "__main__":
    main()
