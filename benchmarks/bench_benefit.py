"""Learning a benefit graph: time and traffic against the number of silos, beside a plain loop."""

import sys
import time

import numpy as np
import torch

from benchmarks.measure import report
from fedegoists.benefit import LearnSettings, learn
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model

SIZES = (4, 8, 20, 50, 100)
MOST_LOOPED = 20
"""With more silos than this, one at a time takes too long to be waited for."""
ESTIMATORS = {
    "transfer": {"local": TrainSettings(steps=50, learning_rate=0.02), "repeats": 1},
    "alignment": {"local": TrainSettings(steps=50, learning_rate=0.02), "repeats": 1},
    "hypernetwork": {"steps": 50, "preference_steps": 5, "repeats": 1},
}


def silos(n: int) -> SiloedData:
    """Return regressions of 20 features with 64 training and 32 validation samples a silo."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * 100, 20)).astype(np.float32)
    y = (x @ rng.normal(size=20) + rng.normal(size=len(x))).astype(np.float32)
    parts = [
        SiloIndices(f"s{k}", *np.split(np.arange(100 * k, 100 * (k + 1)), [64, 96]))
        for k in range(n)
    ]
    return SiloedData("bench", "regression", Samples((x,), y), tuple(parts), None, "", ())


def main() -> None:
    torch.set_num_threads(1)
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    rows = []
    for execution in ("looped", "stacked"):  # what is set up once does not count
        model = build_model("mlp", 0, features=20)
        warm = SimulatedFederation(silos(4), model, device=device, execution=execution)
        for name, given in ESTIMATORS.items():
            learn(warm, LearnSettings(estimator=name, **given))
    for name, given in ESTIMATORS.items():
        settings = LearnSettings(estimator=name, **given)
        for n in SIZES:
            times = {}
            for execution in ("looped", "stacked") if n <= MOST_LOOPED else ("stacked",):
                model = build_model("mlp", 0, features=20)
                federation = SimulatedFederation(
                    silos(n), model, device=device, execution=execution
                )
                start = time.perf_counter()
                cost = learn(federation, settings).cost
                times[execution] = time.perf_counter() - start
            rows.append(
                (
                    name,
                    n,
                    f"{times['stacked']:.2f}",
                    f"{times['looped']:.2f}" if "looped" in times else "",
                    f"{times['looped'] / times['stacked']:.1f}" if "looped" in times else "",
                    cost.rounds,
                    f"{cost.bytes_sent / 1e6:.2f}",
                )
            )
    report(
        f"benefit_{device}",
        f"A benefit graph of n silos on {device}: 50 steps, one repeat",
        ("estimator", "silos", "seconds", "one silo at a time", "ratio", "rounds", "MB a silo"),
        rows,
    )


if __name__ == "__main__":
    main()
