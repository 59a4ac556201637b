"""The kit of a silo with data of its own, and a way to ask it."""

import datetime
from typing import Any, NamedTuple

from fedegoists.federation import (
    Candidate,
    Deliver,
    Evaluate,
    Gradient,
    Personal,
    Train,
    TrainSettings,
)
from fedegoists.federation.flare.messages import Answers, Call, Lineage, RepeatedRequest, Rollback
from fedegoists.federation.flare.wire import pack, schema_digest, unpack
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from tests.flare.loopback import write_tables

NAMES = ("North Bank", "South", "East")
MODEL = build_model("mlp", 0, features=3, outputs=1)
SCHEMA = ParameterSchema.of(MODEL)
START = SCHEMA.flatten(dict(MODEL.named_parameters()))
TRAINED = 42
"""South's rows for training, with the seed of its kit."""
SETTINGS = TrainSettings(steps=5, batch_size=16, learning_rate=0.1)


def kit(folder, more=""):
    """Write a kit; single updates leave, and without protection, unless `more` says otherwise."""
    write_tables(folder, NAMES)
    more = (
        more.replace("[privacy]\n", '[privacy]\nlevel = "none"\n') if "level" not in more else more
    )
    more = more if "[privacy]" in more else more + '\n[privacy]\nlevel = "none"\n'
    if "single_updates" not in more:
        head, section, rest = more.partition("[limits]\n")
        more = (
            f"{head}[limits]\nsingle_updates = true\n{rest}"
            if section
            else f"{more}\n[limits]\nsingle_updates = true\n"
        )
    (folder / "silo.toml").write_text(
        'participant = "South"\n[data]\nfile = "South.csv"\nschema = "schema.toml"\nseed = 1\n'
        + more
    )
    return folder


class Answer(NamedTuple):
    """What a silo answers in the one repetition it was asked about."""

    reply: Any
    refused: str | None


def asked(service, request, caller="server", **changes):
    """Ask a silo in the repetition 1; without a request, one of the coordinator's own calls."""
    parts = () if isinstance(request, str) else (RepeatedRequest(repetition=1, request=request),)
    call = Call(
        operation=request if isinstance(request, str) else request.operation,
        run="r",
        model="mlp",
        schema_is=schema_digest(SCHEMA),
        repetitions=2,
        asked=parts,
    ).model_copy(update=changes)
    answers = unpack(Answers, service.answer(caller, pack(call)))
    (reply,) = (one.reply for one in answers.answered) if answers.answered else (None,)
    return Answer(reply, answers.refused)


def lineage(checkpoint, *rollbacks, owner="fedavg"):
    """Where a run stands: a checkpoint, and the rollbacks (to, at) before it."""
    made = tuple(Rollback(to=to, at=at) for to, at in rollbacks)
    return {owner: Lineage(checkpoint=checkpoint, rollbacks=made)}


def today():
    return datetime.datetime.now(datetime.UTC).date().isoformat()


TRAIN = Train(parameters=START, settings=SETTINGS, seed="0/0")
GRADIENT = Gradient(parameters=START[None], batch_size=8, seed=1, step=0)
SCORE = Evaluate(parameters=START, split="test")
HALF = Evaluate(parameters=START, split="validation", share=0.5, step=1, seed="0/validation")
MODEL_SENT = Deliver(parameters=START[None], candidates=(Candidate(method="fedavg", round=1),))
OWN = Personal(prefixes=("output.",), slot="fedavg")
