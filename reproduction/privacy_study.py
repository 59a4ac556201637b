"""What privacy costs alone and in coalitions: accuracy at several budgets ε.

Every silo trains with differential privacy (DP-SGD, Poisson samples, noise for its own number of
samples) so that all that it sends about a sample costs ε at δ = 1e-5; label counts, which EgoMix
asks for, are noisy and counted in. Clipping and learning rate are chosen for each method and budget
on the validation data of repetitions 10 to 14; what is reported is the test metric of the last
round in repetitions 0 to 9. The choice itself is not accounted for, as usual. An area under the
curve that is not defined, of test data with one class only, is left out of means.

Private training from scratch needs few parameters. The model is linear: on the attributes of heart
patients, and on fixed random features of CIFAR-10's images, which depend on no data (Tramèr and
Boneh, Differentially private learning needs better features, ICLR 2021).

    python -m reproduction.privacy_study heart --out reproduction/results/privacy
    python -m reproduction.privacy_study cifar10 --device cuda --out reproduction/results/privacy
"""

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedegoists.coalitions import form
from fedegoists.federation import (
    Describe,
    Failure,
    Participant,
    SimulatedFederation,
    Train,
    TrainSettings,
)
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon, noise_for
from fedegoists.federation.replies import ReplyT
from fedegoists.federation.requests import Request
from fedegoists.files import csv_bytes
from fedegoists.folder_swap import write_folder
from fedegoists.graphs import BenefitGraph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import load
from fedegoists.methods import RunSettings, run
from fedegoists.methods.method_registry import METHOD_ENTRIES
from fedegoists.training.decisions import random_competition

__all__ = ["Study", "main"]

DELTA = 1e-5
COUNT_NOISE = 10.0
"""Noise on label counts."""

COMPETITION = 0.2
BUDGETS = (math.inf, 8.0, 3.0, 1.0)
METHODS = ("local", "fedavg", "egomix")
CHOSEN_ON, REPORTED_ON = tuple(range(10, 15)), tuple(range(10))
RATE_STEP = 1.1
"""Sampling rates are rounded up to powers of this, so that few have to be accounted for."""


class LinearModel(nn.Module):
    """A linear model; its layer is called as in the other networks."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.output = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs)."""
        out: Tensor = self.output(x)
        return out


@dataclass(frozen=True)
class Candidate:
    """Clipping and learning rate of training."""

    clip: float | None
    learning_rate: float


@dataclass(frozen=True)
class Study:
    """A data set, and how silos train on it."""

    data: str
    batch_size: int
    rounds: int
    steps: int
    clips: tuple[float, ...]
    rates: tuple[float, ...]

    def settings(self, candidate: Candidate) -> TrainSettings:
        """Return how silos train; the noise is each silo's own."""
        return TrainSettings(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=candidate.learning_rate,
            total_steps=self.rounds * self.steps,
            clip=candidate.clip,
        )

    def candidates(self, budget: float) -> list[Candidate]:
        """Return what is tried."""
        clips: Iterable[float | None] = (None,) if math.isinf(budget) else self.clips
        return [Candidate(clip, rate) for clip in clips for rate in self.rates]


STUDIES = {
    "heart": Study("heart", 64, 10, 10, (0.3, 1.0), (0.01, 0.03, 0.1, 0.3)),
    "cifar10": Study("cifar10", 512, 15, 20, (0.3, 1.0), (0.1, 0.4, 1.6)),
}


class PrivateSilos(SimulatedFederation):
    """Silos that add noise to what they answer, each for its own budget and size."""

    noises: Mapping[Participant, float] | None = None

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each, to be answered with noise."""
        return super().call(
            {name: self._private(name, request) for name, request in requests.items()}, timeout
        )

    def _private(self, name: Participant, request: Request[ReplyT]) -> Request[ReplyT]:
        if self.noises is None:
            return request
        if isinstance(request, Train):
            settings = request.settings.model_copy(update={"noise": self.noises[name]})
            return cast("Request[ReplyT]", request.model_copy(update={"settings": settings}))
        if isinstance(request, Describe):
            return cast("Request[ReplyT]", request.model_copy(update={"noise": COUNT_NOISE}))
        return request


@lru_cache(maxsize=4096)
def silo_noise(budget: float, rate: float, steps: int) -> float:
    """Return the noise multiplier for a budget that the label counts share."""
    return noise_for(budget, DELTA, rate, steps, [NoisyAnswers(COUNT_NOISE)])


def rounded_rate(batch: int, size: int) -> float:
    """Return the probability of a sample to be in a batch, rounded up."""
    rate = min(batch / size, 1.0)
    return min(RATE_STEP ** math.ceil(math.log(rate, RATE_STEP)), 1.0)


class Silos:
    """The silos of some repetitions, with their widest coalitions."""

    def __init__(self, study: Study, data: Mapping[int, SiloedData], device: str) -> None:
        self.study = study
        first = next(iter(data.values()))
        outputs = first.classes if first.task == "classification" and first.classes else 1
        model = LinearModel(first.samples.inputs[0].shape[1], outputs)
        self.federation = PrivateSilos(
            data, model, device=device, execution="stacked", graphs=False
        )
        self.sizes = {
            Participant(silo.name, repetition): silo.sizes[0]
            for repetition, one in data.items()
            for silo in one.silos
        }
        self.coalitions: list[tuple[Participant, ...]] = []
        for repetition, one in data.items():
            names = one.participants
            complete = BenefitGraph(np.ones((len(names), len(names))) - np.eye(len(names)), names)
            rivals = random_competition(names, COMPETITION, repetition)
            groups = form(complete, rivals, "published").coalitions
            self.coalitions += Participant.groups(groups, repetition)

    def scores(
        self, method: str, budget: float, candidate: Candidate, split: str
    ) -> dict[Participant, float]:
        """Train, and return the metric of every participant after the last round."""
        study, federation = self.study, self.federation
        steps = study.rounds * study.steps
        federation.noises = None
        if not math.isinf(budget):
            federation.noises = {
                name: silo_noise(budget, rounded_rate(study.batch_size, size), steps)
                for name, size in self.sizes.items()
            }
        entry = METHOD_ENTRIES[method]
        more: dict[str, Any] = {} if entry.benefit == "unused" else {"benefit": None}
        chosen = entry.load()(study.settings(candidate), (), **more)
        alone = [(name,) for name in federation.participants]
        initial = torch.zeros(len(self.sizes), federation.schema.size, device=federation.device)
        settings = RunSettings(rounds=study.rounds, seed=0, evaluate_every=study.rounds)
        coalitions = alone if entry.coalitions == "alone" else self.coalitions
        outcome = run(chosen, federation, coalitions, initial, settings)
        if outcome.failures:
            return dict.fromkeys(self.sizes, math.nan)
        return {
            row.participant: row.value
            for row in outcome.rows
            if row.round == study.rounds and row.split == split and row.metric != "loss"
        }

    def spent(self, budget: float) -> float:
        """Return the largest ε of all silos, from their true sampling rates."""
        if math.isinf(budget):
            return math.inf
        steps, batch = self.study.rounds * self.study.steps, self.study.batch_size
        return max(
            epsilon([NoisyAnswers(noise, min(batch / size, 1.0), steps), *COUNTS], DELTA)
            for size in set(self.sizes.values())
            for noise in [silo_noise(budget, rounded_rate(batch, size), steps)]
        )


COUNTS = (NoisyAnswers(COUNT_NOISE),)


def image_features(images: np.ndarray, device: str, filters: int = 256) -> np.ndarray:
    """Return fixed features of images: rectified random filters, pooled over quarters."""
    generator = torch.Generator().manual_seed(0)
    kernels = torch.randn(filters, 3, 6, 6, generator=generator)
    kernels -= kernels.mean((1, 2, 3), keepdim=True)
    kernels = (kernels / kernels.flatten(1).norm(dim=1)[:, None, None, None]).to(device)
    found = []
    for part in np.array_split(images, max(1, len(images) // 1000)):
        x = torch.from_numpy(part.copy()).to(device).float().movedim(-1, 1) / 127.5 - 1
        x = x - x.mean((1, 2, 3), keepdim=True)
        x = x / x.std((1, 2, 3), keepdim=True).clamp_min(1e-3)
        z = F.conv2d(x, kernels, stride=2)
        both = torch.cat([F.relu(z - 1.0), F.relu(-z - 1.0)], 1)
        pooled = F.adaptive_avg_pool2d(both, 2).flatten(1)
        pooled = pooled - pooled.mean(1, keepdim=True)
        found.append(F.normalize(pooled, dim=1).cpu())
    return torch.cat(found).numpy()


def load_repetitions(
    study: Study, repetitions: Iterable[int], device: str
) -> dict[int, SiloedData]:
    """Return the data of repetitions, images as features."""
    if study.data != "cifar10":
        return {seed: load(study.data, seed=seed) for seed in repetitions}
    loaded = {seed: load("cifar10", seed=seed, partition="dirichlet") for seed in repetitions}
    first = next(iter(loaded.values())).samples
    images, targets = first.inputs[0], first.targets
    features = image_features(images, device)
    result = {}
    for seed, one in loaded.items():
        assert one.samples.inputs[0] is images or np.array_equal(one.samples.inputs[0], images)
        targets = next(iter(loaded.values())).samples.targets
        assert np.array_equal(one.samples.targets, targets)
        # Features are made from all images alike: no silo has prepared them.
        samples = replace(one.samples, inputs=(features,), targets=targets)
        result[seed] = replace(one, samples=samples, preparation=())
    return result


def study_rows(
    study: Study, device: str, chosen_on: tuple[int, ...], reported_on: tuple[int, ...]
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Return the choices, and the test metrics of all participants."""
    began = time.monotonic()
    data = load_repetitions(study, (*chosen_on, *reported_on), device)
    trial = Silos(study, {seed: data[seed] for seed in chosen_on}, device)
    final = Silos(study, {seed: data[seed] for seed in reported_on}, device)
    choices: list[tuple[object, ...]] = []
    rows: list[tuple[object, ...]] = []
    for budget in BUDGETS:
        for method in METHODS:
            tried = {
                candidate: float(
                    np.nanmean(list(trial.scores(method, budget, candidate, "validation").values()))
                )
                for candidate in study.candidates(budget)
            }
            best = max(tried, key=lambda one: -math.inf if math.isnan(tried[one]) else tried[one])
            for candidate, score in tried.items():
                used = "yes" if candidate == best else ""
                own = (candidate.clip, candidate.learning_rate, f"{score:.6f}", used)
                choices.append((study.data, budget, method, *own))
            scores = final.scores(method, budget, best, "test")
            for name, score in scores.items():
                rows.append(
                    (study.data, budget, method, name.repetition, name.name, f"{score:.6f}")
                )
            mean = np.nanmean(list(scores.values()))
            told = f"epsilon {budget:g} {method}: {mean:.4f} with {best}"
            print(f"[{time.monotonic() - began:6.1f} s] {told}", file=sys.stderr, flush=True)
        spent = final.spent(budget)
        print(f"largest epsilon spent by a silo: {spent:.4g}", file=sys.stderr, flush=True)
    return choices, rows


def page(study: Study, rows: list[tuple[object, ...]], origin: str) -> str:
    """Return the results as a page: means, and differences to training alone."""
    from scipy.stats import t

    means: dict[tuple[float, str], list[float]] = {}
    for budget in BUDGETS:
        for method in METHODS:
            own: dict[object, list[float]] = {}
            for _, of, by, repetition, _, score in rows:
                if (of, by) == (budget, method):
                    own.setdefault(repetition, []).append(float(str(score)))
            means[budget, method] = [100 * float(np.nanmean(one)) for one in own.values()]
    lines = [
        f"# Privacy on {study.data}",
        "",
        f"Mean test metric in points over {len(next(iter(means.values())))} repetitions; "
        "differences to Local are paired by repetition, with 95 % intervals.",
        "",
        "| ε | " + " | ".join(METHODS) + " | fedavg minus local | egomix minus local |",
        "|---|" + "---|" * (len(METHODS) + 2),
    ]
    for budget in BUDGETS:
        cells = [f"{np.mean(means[budget, method]):.1f}" for method in METHODS]
        for method in ("fedavg", "egomix"):
            gaps = np.subtract(means[budget, method], means[budget, "local"])
            half = t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / math.sqrt(len(gaps))
            cells.append(
                f"{gaps.mean():+.1f} ({gaps.mean() - half:+.1f} to {gaps.mean() + half:+.1f})"
            )
        shown = "∞" if math.isinf(budget) else f"{budget:g}"
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", origin, ""])


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", choices=sorted(STUDIES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true", help="two repetitions, to try it out")
    given = parser.parse_args()
    study = STUDIES[given.data]
    chosen_on, reported_on = (CHOSEN_ON, REPORTED_ON)
    if given.small:
        study = replace(study, rounds=2, rates=study.rates[:2], clips=(1.0,))
        chosen_on, reported_on = (10,), (0, 1)
    began = time.monotonic()
    choices, rows = study_rows(study, given.device, chosen_on, reported_on)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    origin = (
        f"Written by `python -m reproduction.privacy_study {given.data} --device {given.device}` "
        f"at commit {commit[:12] or 'unknown'}, seed 0, torch {torch.__version__}, "
        f"{time.monotonic() - began:.0f} s. Batches of {study.batch_size}, "
        f"{study.rounds} rounds of {study.steps} steps, competition with probability {COMPETITION}."
    )
    columns = ("data", "epsilon", "method")
    chosen = (*columns, "clip", "learning_rate", "validation", "chosen")
    contents = {
        f"{given.data}-choices.csv": csv_bytes(chosen, choices),
        f"{given.data}.csv": csv_bytes((*columns, "repetition", "participant", "test"), rows),
        f"{given.data}.md": page(study, rows, origin).encode(),
    }
    write_folder(given.out, contents, replace=True, private=False)


if __name__ == "__main__":
    main()
