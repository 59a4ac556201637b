"""Local by hand."""

from fedegoists.federation import TrainSettings
from fedegoists.methods import Local
from tests.methods.hand import START, assert_close, descended, lines, played


def test_two_rounds_by_hand():
    """Each silo descends alone; the momentum starts at zero again in the second round."""
    silos = lines((6, 3))
    method = Local(TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.5))
    models = [START, START]
    for _ in range(2):
        models = [
            descended(lambda w, k=k: silos.gradient(k, w), models[k], [0.1, 0.1], 0.5)
            for k in range(2)
        ]
    for federation in silos.federations():
        states, reports = played(method, federation, [["a", "b"]], 2)
        assert_close(states[2].parameters, models)
        assert reports[1].sample_passes == {"a": 12, "b": 6}
        assert not reports[1].bytes_sent
        assert not reports[1].bytes_received
