"""FedAvg by hand."""

import torch

from fedegoists.federation import Personal, TrainSettings
from fedegoists.methods import FedAvg, Local
from tests.methods.hand import START, assert_close, descended, lines, played
from tests.silos import federation, groups, initial, named


def test_two_rounds_by_hand():
    """Two steps a round; a has 6 samples and b 3, so the average is (2 w_a + w_b)/3; c is alone."""
    silos = lines((6, 3, 4))
    method = FedAvg(TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.5))
    models = [START] * 3
    for _ in range(2):
        a, b, c = (
            descended(lambda w, k=k: silos.gradient(k, w), models[k], [0.1, 0.1], 0.5)
            for k in range(3)
        )
        models = [(2 * a + b) / 3, (2 * a + b) / 3, c]
    for both in silos.federations():
        states, reports = played(method, both, [["a", "b"], ["c"]], 2)
        assert_close(states[2].parameters, models)
        assert states[2].round == 2
        assert reports[1].sample_passes == {"a": 12, "b": 6, "c": 8}
        # Three numbers of four bytes; who is alone has nobody to send them to.
        assert reports[1].bytes_sent == reports[1].bytes_received == {"a": 12, "b": 12}


def test_personal_parameters_are_not_averaged():
    quick = TrainSettings(steps=3, batch_size=32, learning_rate=0.05)
    silos, coalitions, start = federation("mlp"), groups([["s0", "s1", "s2"]]), initial("mlp")
    states = {}
    for method in (FedAvg(quick), FedAvg(quick, personal=("output.",)), Local(quick)):
        before = method.start(silos, coalitions, start, 5)
        states[method.key, method.personal], report = method.round(silos, coalitions, before, 5)
        if method.personal:
            sent = report.bytes_sent
    shared, kept, own = (state.parameters for state in states.values())
    mask = silos.schema.mask(["output."])
    own_layers = Personal(prefixes=("output.",), slot="fedavg")
    torch.testing.assert_close(kept[:, ~mask], shared[:, ~mask])
    for k, name in enumerate(silos.participants):
        whole = silos.personal_model(name, kept[k], own_layers)
        torch.testing.assert_close(whole[mask], own[k, mask])
    assert named(sent)["s0"] == 4 * int((~mask).sum())
