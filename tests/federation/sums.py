"""A federation that shows the server no single model: sums are made of contributions."""

from collections.abc import Mapping, Sequence

import torch

from fedegoists.federation import Failure, Participant, SimulatedFederation, Train
from fedegoists.federation.mixing import (
    Mixed,
    Sum,
    bounds_of,
    contribution,
    mixture,
    receivers,
    with_withheld,
)
from fedegoists.federation.silo_mixing import (
    TrainedAtHome,
    added_vectors,
    take_mean,
    train_at_home,
)


class SummingFederation(SimulatedFederation):
    """Silos in this process that treat the server as a deployed federation does, without masks.

    Everything the server sees is in `seen`.
    """

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.seen = []

    def masks(self, coalition):
        return len(coalition) != 2

    def call(self, requests, timeout=None):
        replies = super().call(requests, timeout)
        self.seen += [
            reply.parameters.clone()
            for reply in replies.values()
            if getattr(reply, "parameters", None) is not None
        ]
        return replies

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        masked = [one for one in sums if self.masks(one.coalition)]
        members = {name for one in masked for name in (*one.weights, *one.receivers)}
        plain = {name: one for name, one in requests.items() if name not in members}
        clear = super().mix(plain, [one for one in sums if one not in masked]) if plain else None
        before = len(self.seen)
        trained = train_at_home(self, {n: one for n, one in requests.items() if n in members})
        del self.seen[before:]  # that was at the silos
        fine = {n: one for n, one in trained.items() if isinstance(one, TrainedAtHome)}
        bounds, norms, vectors = bounds_of(masked), {}, {}
        for name, one in fine.items():
            vectors[name], norm = added_vectors(self, one, bounds.get(name))
            if name in bounds:
                norms[name] = norm
        momenta = any(one.terms and one.terms.momentum is not None for one in requests.values())
        keys = ("parameters", "momentum") if momenta else ("parameters",)
        rows = {
            key: {
                name: one.parameters if key == "parameters" else torch.zeros(self.schema.size)
                for name, one in requests.items()
            }
            for key in keys
        }
        after = {key: dict(own) for key, own in rows.items()}
        if clear is not None:
            for k, name in enumerate(clear.names):
                for key in keys:
                    rows[key][name] = clear.trained[key][k]
                    after[key][name] = clear.means[key][k]
        at_home = set()
        for one in masked:
            whole = sum(one.weights.values())
            shares = {name: w / whole for name, w in one.weights.items() if name in fine}
            total = sum(share * contribution(vectors[name]) for name, share in shares.items())
            if not shares or not sum(shares.values()):
                continue
            if one.shown:
                self.seen.append(total)
            for name in one.receivers:
                if name not in fine:
                    continue
                means = mixture(self.schema, keys, total, sum(shares.values()))
                if fine[name].kept is not None:
                    take_mean(self, name, fine[name], means, one.step)
                    at_home.add(name)
                else:
                    own = with_withheld(self.schema, requests[name], means)
                    for key in keys:
                        after[key][name] = own[key]
        names = tuple(requests)
        return Mixed(
            names,
            {key: torch.stack([own[name] for name in names]) for key, own in rows.items()},
            {key: torch.stack([own[name] for name in names]) for key, own in after.items()},
            receivers(masked, fine) | (frozenset() if clear is None else clear.received),
            {name: one.reply.loss for name, one in fine.items()}
            | ({} if clear is None else dict(clear.losses)),
            {name: one.reply.sample_passes for name, one in fine.items()}
            | ({} if clear is None else dict(clear.sample_passes)),
            tuple(one for one in trained.values() if isinstance(one, Failure))
            + (() if clear is None else clear.failures),
            norms,
            frozenset(at_home),
        )
