"""Personal layers where sums are masked: training as in the clear, and zeros in what silos add."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.federation import (
    AddPrior,
    Gradient,
    Keep,
    LocalTerms,
    Participant,
    Personal,
    Train,
)
from fedegoists.federation.flare import silo_masking
from fedegoists.federation.mixing import Sum
from fedegoists.methods import METHODS, RunSettings, run
from tests.flare.masked_silos import NAMES, SITES, MaskedWire
from tests.flare.test_masked_methods import MASKED
from tests.flare.test_masked_mixing import mixtures
from tests.flare.test_priors_at_home import (
    MODEL,
    ROUNDS,
    SCHEMA,
    SETTINGS,
    in_the_clear,
    over_messages,
    write_classes,
)

HEAD, BODY = ("output.",), ("hidden.",)
SILOS = tuple(map(Participant, NAMES))
ALL = (SILOS,)
ONE_ALONE = (SILOS[:1], SILOS[1:])
A_PAIR = (SILOS[:2], SILOS[2:])
CASES = [
    *((name, {}, ALL) for name in MASKED),
    ("slowmo", {"buffers": "averaged"}, ALL),
    ("slowmo", {"buffers": "averaged"}, ONE_ALONE),
    ("fedavgm", {"buffers": "averaged"}, ONE_ALONE),
    ("ditto", {}, ONE_ALONE),
    ("ditto", {}, A_PAIR),
    ("egomix", {}, ONE_ALONE),
    ("egomix", {}, A_PAIR),
    ("egomix", {"alone": 0.34, "tune": 0.34}, ALL),
    ("egomix", {"personal": BODY, "own": "nothing"}, ALL),
    ("egomix", {"personal": ("output.bias",), "own": "layer"}, ALL),
]


@pytest.fixture
def kits(tmp_path):
    return write_classes(tmp_path)


@pytest.fixture
def added(monkeypatch):
    """All vectors that silos add to sums, before their masks and weights."""
    found = []

    def recorded(vectors, honest=silo_masking.contribution):
        found.append(honest(vectors))
        return found[-1]

    monkeypatch.setattr(silo_masking, "contribution", recorded)
    return found


def limited(kits, prefixes=HEAD, *, single_updates=True):
    """Have all silos say themselves what never leaves them."""
    limits = {"personal": list(prefixes), "single_updates": single_updates}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in limits.items())
    for folder in kits.values():
        path = folder / "silo.toml"
        path.write_text(f"{path.read_text()}\n[limits]\n{lines}")


def in_places(prefixes, vectors):
    """The numbers of parameters, and of their momenta, in some vectors."""
    return torch.cat([one.view(-1, SCHEMA.size)[:, SCHEMA.mask(prefixes)] for one in vectors])


def trained(name, federation, groups, settings):
    method = METHODS[name](settings=SETTINGS, **{"personal": HEAD, **settings})
    initial = MODEL.expand(len(federation.participants), -1)
    return run(method, federation, groups, initial, RunSettings(rounds=ROUNDS, seed=0))


@pytest.mark.parametrize(("name", "settings", "groups"), CASES)
def test_under_masks_it_is_the_training_in_the_clear(kits, added, name, settings, groups):
    consenting = NAMES if groups == A_PAIR else ()
    limited(kits, settings.get("personal", HEAD), single_updates=bool(consenting))
    wire = MaskedWire(kits)
    masked = trained(name, over_messages(wire, consenting=consenting), groups, settings)
    plain = trained(name, in_the_clear(kits, wire.agreements.as_agreed), groups, settings)
    assert masked.failures == plain.failures == []
    values = [[row.value for row in one.rows] for one in (masked, plain)]
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)
    assert len(added) == ROUNDS * len(groups[-1]) or settings.get("alone")
    assert not in_places(settings.get("personal", HEAD), added).any()
    assert all(one.any() for one in added)


HOME = Personal(prefixes=("",), slot="egomix", momentum_slot="egomix/momentum")
NOT_COVERED = [
    None,
    Personal(prefixes=BODY, slot="egomix"),
    Personal(prefixes=("output.weight",), slot="egomix"),
    HOME,
    HOME.changed(unmixed=BODY),
    HOME.changed(unmixed=("output.bias",)),
    # What parameters have that are not personal as a whole is no matter.
    Personal(prefixes=BODY, slot="egomix", unmixed=HEAD),
]
COVERED = [
    Personal(prefixes=HEAD, slot="egomix"),
    Personal(prefixes=("output.bias", "output.weight"), slot="egomix"),
    Personal(prefixes=("o",), slot="egomix", momentum_slot="egomix/momentum"),
    HOME.changed(unmixed=HEAD),
    HOME.changed(unmixed=("hidden.bias", "output.")),
    HOME.changed(unmixed=HEAD, momentum_slot=None),
]


def summed(federation, personal, number=0, **more):
    """Have all silos train with one request, for sums of the kind that it allows."""
    train = Train(
        parameters=MODEL,
        settings=SETTINGS,
        terms=LocalTerms(momentum=torch.ones_like(MODEL)),
        seed=f"0/{number}",
        personal=personal,
    )
    whole = personal is not None and personal.whole
    shown = Sum(SILOS, dict.fromkeys(SILOS, 1.0), SILOS, **more)
    sums = [replace(one, **more) for one in mixtures(SILOS)] if whole else [shown]
    return federation.mix(dict.fromkeys(SILOS, train), sums)


@pytest.mark.parametrize("personal", NOT_COVERED)
def test_a_silo_refuses_whatever_would_take_along_what_it_keeps(kits, added, personal):
    limited(kits)
    wire = MaskedWire(kits)
    mixed = summed(over_messages(wire), personal)
    assert not added
    assert not mixed.received
    assert len(mixed.failures) == len(NAMES)
    for one in mixed.failures:
        assert one.reason == "refused"
        assert "output. never leaves here (limits.personal in silo.toml)" in one.detail
    (other,) = (path for site, path in kits.items() if site == SITES[NAMES[1]])
    assert "never leaves here" in (other / "silo.log").read_text()


@pytest.mark.parametrize("bound", [None, 0.01])
@pytest.mark.parametrize("personal", COVERED)
def test_what_a_silo_adds_has_zeros_where_it_keeps_its_own(kits, added, personal, bound):
    limited(kits)
    wire = MaskedWire(kits)
    federation = over_messages(wire)
    for number in range(2):
        assert summed(federation, personal, number, bound=bound).failures == ()
    assert len(added) == 2 * len(NAMES)
    assert not in_places(HEAD, added).any()
    assert all(one.any() for one in added)
    for name in SILOS:
        own = wire.silos[SITES[name.name]]._own[1].silo_memory(name).slots["egomix"]
        head = own[SCHEMA.mask(HEAD)] if personal.whole else own[-int(SCHEMA.mask(HEAD).sum()) :]
        assert (head != MODEL[SCHEMA.mask(HEAD)]).any()  # it was trained, and is here


def test_without_limits_of_its_own_a_silo_keeps_what_the_request_says(kits, added):
    summed(over_messages(MaskedWire(kits)), HOME)
    assert in_places(HEAD, added).any()


def test_limits_hold_for_answers_of_a_silo_alone(kits):
    limited(kits)
    federation = over_messages(MaskedWire(kits), consenting=NAMES)
    kept = Personal(prefixes=HEAD, slot="egomix")
    for ask in (
        lambda own: Train(parameters=MODEL, settings=SETTINGS, personal=own),
        lambda own: Gradient(parameters=MODEL, personal=own),
        lambda own: AddPrior(parameters=MODEL, personal=own),
    ):
        for own, fine in ((None, False), (kept, True), (HOME, True), (COVERED[1], True)):
            federation.call(dict.fromkeys(SILOS, Keep(slot="egomix")))
            for reply in federation.call(dict.fromkeys(SILOS, ask(own))).values():
                assert ("never leaves here" in getattr(reply, "detail", "")) != fine


def test_a_misspelt_limit_is_said(kits):
    limited(kits, ("ouput.",))
    mixed = summed(over_messages(MaskedWire(kits)), None)
    assert "limits.personal in silo.toml: no parameter starts with 'ouput.'" in (
        mixed.failures[0].detail
    )
