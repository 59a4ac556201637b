"""Silos with certificates in one process, between which masked sums are made."""

import re
from collections import defaultdict

from fedegoists.federation import Participant, SimulatedFederation, Train
from fedegoists.federation.flare.flare_federation import FlareFederation
from fedegoists.federation.flare.messages import Call
from fedegoists.federation.flare.relay_connection import Lost
from fedegoists.federation.flare.silo_service import SiloService, stream_secret
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.flare.upload_memory import UPLOADS_FILE
from fedegoists.federation.flare.wire import unpack
from fedegoists.federation.secure_sums.agreed_training import agreed_seed
from fedegoists.federation.secure_sums.sum_requests import MaskedTrain
from fedegoists.learning.models import build_model
from tests.flare.authorities import new_authority, write_identities
from tests.flare.loopback import write_tables

NAMES = ("North Bank", "South", "East", "West", "Middle")
TABLE = {"features": 3, "outputs": 1}
SITES = {name: name.replace(" ", "-") for name in NAMES}


def write_kits(folder, names=NAMES, authority=None):
    """Write a kit for each silo, with data and certificate."""
    kits = {}
    write_tables(folder / "data", names)
    for name in names:
        kit = kits[SITES[name]] = folder / SITES[name]
        kit.mkdir()
        (kit / "silo.toml").write_text(
            f'participant = "{name}"\n[data]\nfile = "../data/{name}.csv"\n'
            'schema = "../data/schema.toml"\n'
            '[privacy]\nlevel = "none"\n'
        )
    write_identities(authority or new_authority(), folder / "coordinator", kits)
    return kits


def forget_uploads(kits):
    """Have silos forget from which models they have trained in which company."""
    for kit in kits.values():
        (kit / "state" / UPLOADS_FILE).unlink(missing_ok=True)


class Agreements:
    """Who took part in which training: the batches of members depend on it."""

    def __init__(self):
        self.known = {}

    def note(self, message):
        """Read a message to a silo."""
        for one in unpack(Call, message).asked:
            if isinstance(one.request, MaskedTrain):
                agreement, seed = one.request.agreement, one.request.train.seed
                for site in agreement.sites:
                    self.known[one.repetition, seed, site] = agreement

    def as_agreed(self, name, request):
        """Return a request in the clear with the batches of the masked one before."""
        site = SITES.get(name.name, name.name)
        agreement = self.known.get((name.repetition, getattr(request, "seed", None), site))
        if not isinstance(request, Train) or agreement is None:
            return request
        return request.changed(seed=agreed_seed(request, agreement))


class MaskedWire:
    """Brings messages to silos in this process, and records what the server sends and gets."""

    run = "r"

    def __init__(self, kits):
        self.kits, self.told = kits, []
        self.tell = self.told.append
        self.record = []
        self.sent, self.received = defaultdict(int), defaultdict(int)
        self.lose = {}
        self.agreements = Agreements()
        self.tamper = lambda site, message: message
        self.silos = {}
        self.restart()

    def restart(self, *sites):
        """Every job has a process of its own."""
        for site in sites or self.kits:
            self.silos[site] = SiloService(self.kits[site])

    def ask(self, messages, timeout=None):
        answers = {}
        for site, message in messages.items():
            operation = re.search(rb'\\"operation\\":\\"([a-z_]+)', message)[1].decode()
            self.record.append(("to", site, operation, message))
            if operation in ("masked_train", "train"):
                self.agreements.note(message)
            self.sent[site] += len(message)
            when = self.lose.get(site, ())
            if operation in when or "always" in when:
                answers[site] = Lost("error", "the silo is away")
                if f"before {operation}" in when:
                    continue
                self.silos[site].answer("server", self.tamper(site, message))
                continue
            answers[site] = self.silos[site].answer("server", self.tamper(site, message))
            self.received[site] += len(answers[site])
            self.record.append(("from", site, operation, answers[site]))
        return answers

    def operations(self):
        """The calls in their order, each once."""
        found = []
        for way, _, operation, _ in self.record:
            if way == "to" and (not found or found[-1] != operation):
                found.append(operation)
        return found

    def federation(self, repetitions=None, **more):
        settings = [read_silo_settings(kit / "silo.toml") for kit in self.kits.values()]
        samples = {one.participant: load_silo(one).silos[0].sizes.train for one in settings}
        return FlareFederation(
            self,
            {name: SITES[name] for name in SITES if SITES[name] in self.kits},
            repetitions=repetitions,
            **{"task": "binary", "model": "mlp", "options": TABLE, "samples": samples, **more},
        )

    def simulation(self, repetitions=None, model=None):
        """The same silos in a simulation that draws the same batches."""
        model = model or (lambda: build_model("mlp", 0, **TABLE))
        settings = {site: read_silo_settings(kit / "silo.toml") for site, kit in self.kits.items()}
        numbers = [None] if repetitions is None else range(repetitions)
        return _Each(
            {
                Participant(one.participant, number): SimulatedFederation(
                    {number: load_silo(one)},
                    model(),
                    secrets={
                        one.participant: stream_secret(load_silo(one), self.kits[site] / "state")
                    },
                )
                for site, one in settings.items()
                for number in numbers
            },
            self.agreements.as_agreed,
        )


class _Each:
    """A simulation of each silo alone, called as one federation."""

    def __init__(self, silos, as_agreed):
        self.silos, self.participants, self.as_agreed = silos, tuple(silos), as_agreed
        self.schema = next(iter(silos.values())).schema

    def call(self, requests, timeout=None):
        return {
            name: self.silos[name].call({name: self.as_agreed(name, request)})[name]
            for name, request in requests.items()
        }
