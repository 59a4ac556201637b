"""Masked sums over a real server with three silos: training as in the clear, nothing in between."""

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine
from fedegoists.federation.flare.messages import Call
from fedegoists.federation.flare.wire import unpack
from fedegoists.federation.secure_sums.fixed_point import encode
from tests.flare.conftest import NAMES
from tests.flare.masked_silos import Agreements, forget_uploads
from tests.flare.test_masked_methods import ROUNDS, assert_same_training, nearest, trained, witness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["fedavg", "egomix"])
def test_training_over_flare_is_masked(deployment, name):
    # Other tests have trained from the same model in another company.
    forget_uploads({one: deployment.silo(one) for one in NAMES})
    messages = []
    access = SiloAccess(f"masked-{name}", deployment.kit)
    record = lambda *one: messages.append(one)  # noqa: E731
    engine = FlareEngine(deployment.settings, access, record=record)
    try:
        masked = trained(name, engine.federation("mlp"))
    finally:
        engine.close()
    agreements = Agreements()
    for message in (message for way, _, message in messages if way == "to"):
        agreements.note(message)
    kits = {one: deployment.silo(one) for one in NAMES}
    plain = witness(kits, agreements.as_agreed, tuple(engine.sites))
    assert_same_training(masked, trained(name, plain))
    received = [message for way, _, message in messages if way == "from"]
    whole = b"|".join(received)
    assert len(plain.models) >= ROUNDS * len(NAMES)
    for model in plain.models:
        assert model.numpy().tobytes() not in whole
        assert encode(model, 1.0).tobytes() not in whole
        assert nearest(model, received) > 1e-3
    calls = [unpack(Call, message).operation for way, _, message in messages if way == "to"]
    assert "train" not in calls
    assert calls.count("masked_train") == calls.count("unmask") == ROUNDS * len(NAMES)


def test_sums_are_not_masked_where_the_settings_say_so(deployment):
    deploy = deployment.settings.deploy.model_copy(update={"secure_sums": "off"})
    settings = deployment.settings.model_copy(update={"deploy": deploy})
    engine = FlareEngine(settings, SiloAccess("unmasked", deployment.kit))
    try:
        federation = engine.federation("mlp")
        assert not federation.masks(federation.participants)
    finally:
        engine.close()
