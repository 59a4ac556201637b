"""A whole secure sum in one process: members, and a server that writes down what it sees."""

import numpy as np
import torch

from fedegoists.federation.secure_sums.fixed_point import encode
from fedegoists.federation.secure_sums.silo_sums import SiloSums
from fedegoists.federation.secure_sums.sum_collector import SumCollector
from fedegoists.federation.secure_sums.sum_messages import (
    AgreedSum,
    Agreement,
    Roster,
    SumError,
    SumPurpose,
)
from tests.federation.secure_sums.authority import identity

PURPOSE = SumPurpose(run="r", method="fedavg", repetition="0", schema_is="abc")


class Party:
    """Members of a session with the server between them; the offers of the next round are kept."""

    def __init__(self, sites, policy=None):
        self.silos = {site: SiloSums(identity(site), policy) for site in sites}
        keys = {site: silo.advertise(PURPOSE) for site, silo in self.silos.items()}
        self.roster = Roster(purpose=PURPOSE, peers=tuple(keys[site] for site in sorted(keys)))
        self.offers = {site: silo.join(self.roster) for site, silo in self.silos.items()}
        self.number = 0
        self.seen = []

    def agreement(self, weights=None, sums=None, sites=None, **more):
        sites = sorted(sites or self.silos)
        if sums is None:
            weights = weights or [1 / len(sites)] * len(sites)
            sums = (AgreedSum(members=tuple(sites), weights=tuple(weights)),)
        keys = tuple(self.offers[site].key for site in sites)
        return Agreement(
            session=self.roster.session, number=self.number, keys=keys, sums=sums, **more
        )

    def sealed(self, site, agreement):
        return {
            other: self.offers[other].shares[site] for other in agreement.sites if other != site
        }

    def encoded(self, agreement, site, vector):
        return {
            k: encode(vector, one.weights[one.members.index(site)], agreement.bits)
            for k, one in enumerate(agreement.sums)
            if site in one.members
        }

    def upload(self, site, agreement, vector):
        silo = self.silos[site]
        return silo.masked(
            agreement, self.sealed(site, agreement), self.encoded(agreement, site, vector)
        )

    def round(self, vectors, dropped=(), silent=(), agreement=None):
        """Carry out a round; `dropped` do not upload, `silent` give no shares."""
        agreement = agreement or self.agreement(sites=vectors)
        collector = SumCollector(self.roster, agreement, len(next(iter(vectors.values()))))
        following = {}
        for site, vector in vectors.items():
            masked, following[site] = self.upload(site, agreement, vector)
            self.seen += [ring.tobytes() for ring in masked.values()]
            if site not in dropped:
                collector.add(site, masked)
        self.offers, self.number = {**self.offers, **following}, self.number + 1
        order = collector.order()
        for site in order.survivors:
            if site not in silent:
                shares = self.silos[site].unmasked(order)
                self.seen.append(shares.model_dump_json().encode())
                collector.share(site, shares)
        sums = collector.sums()
        self.seen += [one.total.tobytes() for one in sums]
        return sums


def sites_of(count):
    return [f"s{k:02}" for k in range(count)]


def vectors_of(sites, length=50, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return {site: torch.tensor(scale * rng.normal(size=length)).float() for site in sites}


def refusal(call, *arguments):
    """Return why a step is refused."""
    try:
        call(*arguments)
    except SumError as error:
        return str(error)
    raise AssertionError("was not refused")
