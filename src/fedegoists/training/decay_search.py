"""Weight decays for a run: silos try several, and tell losses on samples that were not trained on.

How much a linear model must be held back depends on the data: noisy tables of a hundred rows need a
hundred times the weight decay of clean ones. A yardstick with the wrong one is too weak. The more
samples, the less: so coalitions have another one than models that are trained alone.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import cast

import numpy as np
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Keep, Participant, Personal, Repetition, Train
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.mixing import Mixed, Sum
from fedegoists.federation.replies import ReplyT
from fedegoists.federation.requests import EVERYTHING, Request
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.methods.fedavg import FedAvg
from fedegoists.methods.method import Coalitions
from fedegoists.training.repetitions import Repetitions

DECAYS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight decays that are tried; of equally good ones, the strongest is taken."""
PART = 4
"""A weight decay is tried for one in so many steps of training: for a linear model these suffice to
tell which is better, and the search costs less than training with two methods."""
SLOT = "decay"
HALVES = 2
REPEATS = 2
"""How often the samples are divided into halves. All of it costs a silo as many passes of samples
as models of all samples would: they have twice the samples and twice the steps."""


Tried = Callable[[float], Mapping[Participant, float]]
"""Returns the losses of models trained with a weight decay, on other samples."""
Told = Callable[[int, int], object]
"""Called with how many weight decays have been tried, and how many there are."""


def _silent(_done: int, _total: int) -> None:
    """Tell nothing."""


def searched_decays(
    repetitions: Repetitions, progress: Told = _silent
) -> dict[Repetition | None, float]:
    """Return, for each repetition, the weight decay with which models trained alone are best.

    Every silo divides its training samples into halves, twice. It trains alone on each half with
    each weight decay, and tells the model's loss on the other half; the models stay at home. So
    every sample judges, where validation data is often too little: with a few dozen patients, the
    best weight decay differs by a factor of ten or more from one division of them to the next. A
    half has half the samples, so it is trained with twice the weight decay.

    One weight decay for all silos of a repetition, by their mean loss: the data of a single silo is
    often too little to choose by, and so are metrics that compare a few events, such as AUC and the
    concordance index.

    Raises
    ------
    SettingsError
        If a silo does not tell its losses.
    """
    federation, settings = repetitions.federation, repetitions.defaults.train
    rows = dict(zip(federation.participants, repetitions.initial, strict=True))
    steps = -(-repetitions.defaults.rounds * settings.steps // (PART * HALVES))
    whole = None if settings.total_steps is None else steps
    personal = Personal(prefixes=EVERYTHING, slot=SLOT)

    def on_half(decay: float, half: _OnHalf) -> dict[Participant, float]:
        own = settings.changed(steps=steps, total_steps=whole, weight_decay=decay)
        # Every weight decay starts from the initial model.
        federation.call(dict.fromkeys(rows, Keep(slot=SLOT)))
        trained, _ = sorted_out(
            half.call(
                {
                    name: Train(parameters=row, settings=own, personal=personal)
                    for name, row in rows.items()
                }
            )
        )
        return half.losses({name: rows[name] for name in trained}, personal)

    # One sample has no halves.
    able = [name for name in rows if federation.samples(name) >= HALVES]
    return _best(partial(_on_halves, federation, on_half), able, progress)


def searched_decays_together(
    repetitions: Repetitions, coalitions: Coalitions, progress: Told = _silent
) -> dict[Repetition | None, float]:
    """Return, for each repetition, the weight decay with which models of coalitions are best.

    They are those of FedAvg, after a part of its rounds, on halves of every member's samples as in
    `searched_decays`. Repetitions in which everybody is alone have none.

    Raises
    ------
    SettingsError
        If a member does not tell its losses.
    """
    federation, defaults = repetitions.federation, repetitions.defaults
    settings, rounds = defaults.train, -(-defaults.rounds // (PART * HALVES))
    whole = None if settings.total_steps is None else rounds * settings.steps
    members = [
        name
        for group in coalitions
        for name in group
        if len(group) > 1 and federation.samples(name) >= HALVES
    ]
    place = {name: k for k, name in enumerate(federation.participants)}

    def on_half(decay: float, half: _OnHalf) -> dict[Participant, float]:
        method = FedAvg(settings.changed(total_steps=whole, weight_decay=decay))
        method = method.keeping_models_home(half, coalitions)
        state = method.start(half, coalitions, repetitions.initial, 0)
        for _ in range(rounds):
            state, _report = method.round(half, coalitions, state, 0)
        return half.losses({name: state.parameters[place[name]] for name in members})

    return _best(partial(_on_halves, federation, on_half), members, progress) if members else {}


class _OnHalf:
    """A federation whose silos train on one half of their samples, and judge on the other."""

    def __init__(self, federation: Federation, seed: int, half: int) -> None:
        self._federation, self._seed, self._half = federation, seed, half
        self.participants, self.schema = federation.participants, federation.schema
        self.task, self.device = federation.task, federation.device
        self.deployed = federation.deployed
        self.stream_name, self.samples = federation.stream_name, federation.samples
        self.masks, self.consents = federation.masks, federation.consents

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        halved = {
            name: cast("Request[ReplyT]", self._halved(one)) if isinstance(one, Train) else one
            for name, one in requests.items()
        }
        return self._federation.call(halved, timeout)

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        """Have participants train, and return means of their models; see `Federation.mix`."""
        halved = {name: self._halved(one) for name, one in requests.items()}
        return self._federation.mix(halved, sums, timeout)

    def losses(
        self, models: Mapping[Participant, Tensor], personal: Personal | None = None
    ) -> dict[Participant, float]:
        """Return the loss of each participant's model on the half that it was not trained on."""
        other = partial(
            Evaluate, split="train", share=1 / HALVES, step=1 - self._half, seed=self._seed
        )
        replies, _ = sorted_out(
            self._federation.call(
                {name: other(parameters=row, personal=personal) for name, row in models.items()}
            )
        )
        return {name: reply.losses[0] for name, reply in replies.items()}

    def _halved(self, request: Train) -> Train:
        # One seed for all rounds: it tells which samples are in the half.
        return request.changed(seed=self._seed, share=1 / HALVES, part=self._half)


def _on_halves(
    federation: Federation,
    trained: Callable[[float, _OnHalf], Mapping[Participant, float]],
    decay: float,
) -> dict[Participant, float]:
    """Return the sum of losses over all halves, of participants that told each of them.

    A half has half the samples, so it is trained with twice the weight decay.
    """
    sums: dict[Participant, float] = dict.fromkeys(federation.participants, 0.0)
    for repeat, half in product(range(REPEATS), range(HALVES)):
        seed = stream_seed(0, repeat, SLOT)
        found = trained(HALVES * decay, _OnHalf(federation, seed, half))
        sums = {name: sums[name] + found[name] for name in sums if name in found}
    return sums


def _best(
    tried: Tried, participants: Collection[Participant], progress: Told
) -> dict[Repetition | None, float]:
    """Return the weight decay with the lowest mean loss of the participants of a repetition."""
    repetitions = {name.repetition for name in participants}
    best: dict[Repetition | None, tuple[float, float]] = {}
    for done, decay in enumerate(DECAYS):
        progress(done, len(DECAYS))
        losses = tried(decay)
        for repetition in repetitions:
            members = [name for name in participants if name.repetition == repetition]
            if not all(name in losses for name in members):
                continue
            loss = float(np.mean([losses[name] for name in members]))
            if loss < best.get(repetition, (math.inf, 0.0))[0]:
                best[repetition] = loss, decay
    if len(best) < len(repetitions):
        raise SettingsError(
            'weight_decay = "auto" needs an answer of every silo about its own data; set a '
            "number, such as weight_decay = 0.1"
        )
    return {repetition: decay for repetition, (_, decay) in best.items()}
