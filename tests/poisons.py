"""Coalitions of five with one bad member, for tests of the defences against it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedegoists.federation import Participant, SimulatedFederation, Train, TrainSettings
from fedegoists.federation.behaviours import Behaviour, claiming, drifting, garbage, times
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.methods import Callbacks, EgoMix, FedAvg, FedEgoists, Outcome, RunSettings, run
from fedegoists.methods.method import Method

NAMES = ("a", "b", "c", "d", "e")
BAD = "c"
FEATURES, CLASSES, STEPS, ROUNDS = 8, 3, 10, 20
POISONS: dict[str, Any] = {
    "times -10": lambda: times(-10.0),
    "label flip": None,
    "claimed samples": lambda: claiming(2**50),
    "garbage": lambda: garbage(10.0),
    "drift": drifting,
}
METHODS: dict[str, type[Any]] = {"fedavg": FedAvg, "egomix": EgoMix, "fedegoists": FedEgoists}


def table(
    names: Iterable[str] = NAMES,
    flipped: Iterable[str] = (),
    seed: int = 0,
    *,
    train: int = 60,
    unlike: float = 0.3,
) -> SiloedData:
    """Draw silos that follow one rule, each a little different; some have their labels shifted."""
    rule = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES))
    inputs, targets, parts, start = [], [], [], 0
    for name in names:
        rng = np.random.default_rng([seed, ord(name)])
        rows = train + 120
        x = rng.normal(size=(rows, FEATURES)) + 0.3 * rng.normal(size=FEATURES)
        own = rule + unlike * rng.normal(size=rule.shape)
        y = (x @ own + 0.5 * rng.gumbel(size=(rows, CLASSES))).argmax(1)
        if name in flipped:
            y = (y + 1) % CLASSES
        own_rows = np.arange(start, start + rows)
        parts.append(SiloIndices(name, own_rows[:train], own_rows[train:-80], own_rows[-80:]))
        inputs.append(x.astype(np.float32))
        targets.append(y.astype(np.int64))
        start += rows
    samples = Samples((np.concatenate(inputs),), np.concatenate(targets))
    return SiloedData("five", "classification", samples, tuple(parts), CLASSES, "", ())


def method(name: str, rounds: int = ROUNDS, personal: tuple[str, ...] | None = None) -> Method:
    """Return a method that trains for some rounds; output layers as they are by default."""
    settings = TrainSettings(
        steps=STEPS, batch_size=20, learning_rate=0.03, total_steps=rounds * STEPS
    )
    if personal is None:
        personal = ("output.",) if name == "fedegoists" else ()
    made: Method = METHODS[name](settings, personal)
    return made


def silos(
    poison: str | None = None,
    *,
    absent: bool = False,
    behaviour: Behaviour | None = None,
    seed: int = 0,
) -> SimulatedFederation:
    """Return the five, or the four without the bad member."""
    names = [one for one in NAMES if not (absent and one == BAD)]
    if poison and POISONS[poison]:
        behaviour = POISONS[poison]()
    return SimulatedFederation(
        table(names, (BAD,) if poison == "label flip" else (), seed),
        build_model("mlp", 0, features=FEATURES, outputs=CLASSES, hidden=20),
        behaviours={Participant(BAD): behaviour} if behaviour else {},
    )


class Watching(SimulatedFederation):
    """Silos that tell about every request to train."""

    watch: Any = None

    def call(self, requests: Any, timeout: float | None = None) -> Any:
        """Tell, and call."""
        if self.watch and any(isinstance(one, Train) for one in requests.values()):
            self.watch(requests)
        return super().call(requests, timeout)


def trained(
    name: str,
    poison: str | None,
    *,
    absent: bool = False,
    behaviour: Behaviour | None = None,
    seed: int = 0,
    watch: Any = None,
    checkpoint: Any = None,
    stop: Any = None,
    **settings: Any,
) -> Outcome:
    """Train the five, or the four without the bad member."""
    federation = silos(poison, absent=absent, behaviour=behaviour, seed=seed)
    if watch is not None:
        federation.__class__ = Watching
        federation.watch = watch  # type: ignore[attr-defined]
    return run(
        method(name),
        federation,
        [federation.participants],
        torch.stack([start(seed)] * len(federation.participants)),
        RunSettings(**{"rounds": ROUNDS, "seed": seed, **settings}),
        Callbacks(checkpoint, stop=stop),
    )


def start(seed: int) -> Tensor:
    """Return the parameters to start from."""
    module = build_model("mlp", seed + 1, features=FEATURES, outputs=CLASSES, hidden=20)
    return torch.cat([value.detach().flatten() for _, value in module.named_parameters()])


def losses(outcome: Outcome, *, chosen: bool = True) -> dict[str, float]:
    """Return the test losses of all but the bad member, at their chosen or the last round."""
    names = sorted({row.participant for row in outcome.rows})
    found = {}
    for k, name in enumerate(names):
        when = outcome.best_round[k] if chosen else outcome.state.round
        rows = [
            r.value
            for r in outcome.rows
            if (r.participant, r.round, r.split, r.metric) == (name, when, "test", "loss")
        ]
        if name.name != BAD:
            found[name.name] = rows[-1] if rows else float("inf")
    return found


def mean_loss(outcome: Outcome, *, chosen: bool = True) -> float:
    """Return the mean of `losses`."""
    return float(np.mean(list(losses(outcome, chosen=chosen).values())))
