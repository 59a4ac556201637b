"""pFedGraph by hand."""

from itertools import combinations

import numpy as np
import torch

from fedegoists.federation import LocalTerms, Participant, Train, TrainSettings
from fedegoists.methods import FedAvg, PFedGraph
from fedegoists.methods.pfedgraph import onto_simplex
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.0)
GROUP = [["a", "b", "c"]]


def silos():
    """The first two learn nearly the same, the third the contrary."""
    return lines((6, 3, 4), slopes=[[1.0, 2.0], [2.0, 1.0], [-1.0, -2.0]])


def best_weights(shares, distances, alpha):
    """The least α‖x − p‖² + dᵀx on the simplex, by trying every set of entries above zero."""
    best = None
    for size in range(1, len(shares) + 1):
        for support in combinations(range(len(shares)), size):
            # On a support, 2α (x − p) + d is the same everywhere and x sums to one.
            free = np.array([shares[k] - distances[k] / (2 * alpha) for k in support])
            x = np.zeros(len(shares))
            x[list(support)] = free + (1 - free.sum()) / size
            value = alpha * np.sum((x - shares) ** 2) + distances @ x
            if x.min() >= 0 and (best is None or value < best[0]):
                best = value, x
    assert best is not None
    return best[1]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def cosine_slope(w, target):
    """The gradient of cos(w, target) by central differences."""
    steps = 1e-6 * np.eye(len(w))
    return np.array([(cosine(w + s, target) - cosine(w - s, target)) / 2e-6 for s in steps])


def by_hand(silos_, sizes, alpha, lam):
    """Cosines of both models and weights, models after mixing and before it, of two rounds."""
    shares = np.array(sizes) / sum(sizes)
    models, expected = [START] * len(sizes), []
    for number in range(2):
        trained = np.array(
            [
                descended(
                    # There is no aggregate to be drawn to before the first round is over.
                    lambda w, k=k, target=models[k], strength=lam * number: (
                        silos_.gradient(k, w) - strength * cosine_slope(w, target)
                    ),
                    models[k],
                    [0.1] * 3,
                )
                for k in range(len(sizes))
            ]
        )
        updates = trained - START
        cosines = np.array([[cosine(u, v) for v in updates] for u in updates])
        distances = np.where(cosines > 0.9, -1, -cosines)
        weights = np.array([best_weights(shares, row, alpha) for row in distances])
        models = list(weights @ trained)
        expected.append((cosines, weights, models, trained))
    return expected


def test_two_rounds_by_hand():
    """Weights by trying all supports, where public code calls a solver; both are exact.

    The cosine term draws to the aggregate, as in the paper. Public code adds it to the loss, so
    that it pushes away, and takes the aggregate of models of length one there.
    """
    sizes, slopes = (6, 3, 4, 5), [[1.0, 2.0], [2.0, 1.0], [-1.0, -2.0], [1.3, 1.9]]
    four = lines(sizes, slopes=slopes)
    expected = by_hand(four, sizes, alpha=0.8, lam=0.3)
    cosines, weights, *_ = expected[0]
    # The third learns alone, the others share, and some count as the same: all cases are in here.
    assert (weights == 0).any()
    assert 0 < weights[0, 1] < 1
    assert ((cosines > 0.9) & (cosines < 0.999)).any()
    assert ((cosines > 0) & (cosines < 0.9)).any()
    for federation in four.federations():
        method = PFedGraph(SETTINGS, alpha=0.8, lam=0.3)
        states, reports = played(method, federation, [["a", "b", "c", "d"]], 2)
        for state, (*_, models, trained) in zip(states[1:], expected, strict=True):
            assert_close(state.tensors["aggregate"], models)
            assert_close(state.parameters, trained)  # one's own model after local training
        assert reports[1].sample_passes == {"a": 18, "b": 9, "c": 12, "d": 15}
        assert reports[1].bytes_sent == reports[1].bytes_received == dict.fromkeys("abcd", 12)


def test_held_to_data_shares_it_is_fedavg():
    for federation in silos().federations():
        method = PFedGraph(SETTINGS, alpha=1e8, lam=0.0)
        held, _ = played(method, federation, GROUP, 2)
        plain, _ = played(FedAvg(SETTINGS), federation, GROUP, 2)
        torch.testing.assert_close(held[2].tensors["aggregate"], plain[2].parameters)


def test_the_cosine_term_pulls_towards_its_target():
    """One step follows −∇(ℓ(w) − lam · cos(w, target)), so the cosine grows."""
    target = np.array([-0.5, 0.4, 0.9])
    settings = TrainSettings(steps=1, batch_size=64, learning_rate=0.1, momentum=0.0)
    for federation in silos().federations():
        reached = {}
        for strength in (0.0, 0.6):
            terms = LocalTerms(towards=torch.tensor(target).float(), attraction=strength)
            start = torch.tensor(START).float()
            request = Train(parameters=start, settings=settings, terms=terms)
            (reply,) = federation.call({Participant("a"): request}).values()
            slope = silos().gradient(0, START) - strength * cosine_slope(START, target)
            assert_close(reply.parameters, START - 0.1 * slope)
            reached[strength] = cosine(reply.parameters.numpy(), target)
        assert reached[0.6] > reached[0.0]


def test_silos_stay_nearer_to_their_aggregate_when_drawn_to_it():
    """The second round starts at the aggregate; with the other sign silos would end further off."""
    for federation in silos().federations():
        near = {}
        for lam in (0.0, 0.5):
            # Everybody keeps its own model, so what is trained can be seen after the round.
            method = PFedGraph(SETTINGS, alpha=1e-3, lam=lam)
            states, _ = played(method, federation, [["a", "c"], ["b"]], 2)
            before, after = (states[k].tensors["aggregate"][2].numpy() for k in (1, 2))
            near[lam] = cosine(before, after)
        assert near[0.5] > near[0.0] + 1e-4


def test_weights_at_the_least_strength():
    """The distances decide alone: everything for oneself, and for who points the same way."""
    method = PFedGraph(SETTINGS, alpha=1e-9)
    updates = torch.tensor([[1.0, 0.0], [0.99, 0.01], [0.0, 1.0], [-1.0, 0.0]])
    weights = method.weights(updates, torch.tensor([6.0, 3.0, 4.0, 1.0]))
    # The shares 6/14 and 3/14 of the first two leave 5/14, which they divide evenly.
    pair = [6 / 14 + 5 / 28, 3 / 14 + 5 / 28, 0, 0]
    assert_close(weights, [pair, pair, [0, 0, 1, 0], [0, 0, 0, 1]])


def test_onto_simplex_takes_the_nearest_point():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4))
    nearest = [best_weights(row, np.zeros(4), 1.0) for row in rows]
    assert_close(onto_simplex(torch.tensor(rows)), nearest)
