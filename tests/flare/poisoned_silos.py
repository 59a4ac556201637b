"""Five silos with one bad one among them, which has changed its software or its data."""

import numpy as np

from fedegoists.federation import Participant
from fedegoists.federation.flare import silo_masking
from fedegoists.federation.flare.silo_secret import SECRET_FILE
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.files import private_folder, write_bytes
from tests.flare.masked_silos import NAMES, SITES, MaskedWire, write_kits
from tests.poisons import POISONS

BAD = "East"
ROWS = 600
"""Rows of a silo."""

RULE = np.array([2.0, -2.0, 1.0])


def like_minded(k, rows=ROWS, *, flipped=False):
    """The table of the silo with number k, which follows the rule of all, or has flipped labels."""
    rng = np.random.default_rng([8, k])
    x = rng.normal(size=(rows, 3))
    yes = (x @ RULE + 0.5 * rng.logistic(size=rows) > 0) ^ flipped
    lines = ["age,income,debt,default,note"]
    lines += [
        f"{a!r},{b!r},{c!r},{'yes' if label else 'no'},"
        for (a, b, c), label in zip(x.tolist(), yes, strict=True)
    ]
    return "\n".join(lines) + "\n"


def write_like_minded(folder, *, flipped=(), rows=ROWS):
    """Write kits of silos that follow one rule, some of them with flipped labels."""
    kits = write_kits(folder)
    for k, name in enumerate(NAMES):
        (folder / "data" / f"{name}.csv").write_text(like_minded(k, rows, flipped=name in flipped))
        toml = kits[SITES[name]] / "silo.toml"
        toml.write_text(toml.read_text() + "[limits]\nsingle_updates = true\n")
        # So that every run of a test draws the same batches.
        state = toml.parent / "state"
        private_folder(state)
        write_bytes(state / SECRET_FILE, bytes([k] * 32), private=True)
    return kits


class BadService(SiloService):
    """A silo that answers in its own way, and neither shortens updates nor tells norms."""

    behaviour = None

    def _federation(self, call):
        federation = super()._federation(call)
        federation._behaviours = dict.fromkeys(federation.participants, self.behaviour)
        return federation

    def answer(self, caller, message):
        honest = silo_masking.added_vectors
        silo_masking.added_vectors = lambda silos, trained, bound=None, reply=None: (
            honest(silos, trained, None, reply)[0],
            1.0,
        )
        try:
            return super().answer(caller, message)
        finally:
            silo_masking.added_vectors = honest


POISON_FILE = "poison"


def chosen_service(kit):
    """The service of a silo whose kit says how it is bad; see ``bad_silo``."""
    made = POISONS.get((kit / POISON_FILE).read_text())
    service = BadService(kit) if made else SiloService(kit)
    if made:
        service.behaviour = made()
    return service


class PoisonedWire(MaskedWire):
    """Brings messages to five silos, of which one is bad, or to four."""

    def __init__(self, kits, poison=None, *, absent=False):
        self.behaviour = POISONS[poison]() if poison and POISONS[poison] else None
        super().__init__({site: kit for site, kit in kits.items() if not absent or site != BAD})

    def restart(self, *sites):
        super().restart(*sites)
        if self.behaviour is not None:
            self.silos[BAD] = BadService(self.kits[BAD])
            self.silos[BAD].behaviour = self.behaviour

    def five(self):
        """The federation of these silos."""
        return self.federation(consenting=frozenset(NAMES))


def others(outcome):
    """The mean test loss of all but the bad one, at the steps they chose."""
    names = [Participant(name) for name in NAMES]
    known = {row.participant for row in outcome.rows}
    own = [name for name in names if name in known]
    found = {
        row.participant: row.value
        for k, name in enumerate(own)
        for row in outcome.rows
        if (row.participant, row.round, row.split, row.metric)
        == (name, outcome.best_round[k], "test", "loss")
    }
    return float(np.mean([loss for name, loss in found.items() if name.name != BAD]))
