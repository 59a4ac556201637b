"""Masked sums over silos: the means are right, and the server gets nothing else."""

import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Keep, LocalTerms, Participant, Personal, Train, TrainSettings
from fedegoists.federation.flare.messages import Answers
from fedegoists.federation.flare.wire import unpack
from fedegoists.federation.mixing import MixtureStep, Sum, mix_plain
from fedegoists.federation.secure_sums.fixed_point import encode
from tests.flare.authorities import new_authority, write_identities
from tests.flare.masked_silos import NAMES, SITES, MaskedWire, forget_uploads, write_kits
from tests.flare.silo_kit import SCHEMA, START

SETTINGS = TrainSettings(steps=3, batch_size=16, learning_rate=0.1)
PARTICIPANTS = tuple(map(Participant, NAMES))
WEIGHTS = dict(zip(PARTICIPANTS, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
CLOSE = 1e-6
"""Several roundings to 24 bits after the point."""


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return write_kits(tmp_path_factory.mktemp("kits"))


@pytest.fixture
def wire(kits):
    forget_uploads(kits)
    return MaskedWire(kits)


def requests(names=PARTICIPANTS, number=0, start=None, settings=SETTINGS, **more):
    """Every round from another model: from the same one, in other company, silos add noise."""
    start = START + number / 1024 if start is None else start
    one = Train(parameters=start, settings=settings, seed=f"0/{number}", **more)
    return dict.fromkeys(names, one)


def mean_of(names=PARTICIPANTS, **more):
    return Sum(names, {name: WEIGHTS[Participant(name.name)] for name in names}, names, **more)


def assert_same(mixed, plain):
    assert mixed.names == plain.names
    assert mixed.received == plain.received
    for vector, rows in plain.means.items():
        assert (mixed.means[vector] - rows).abs().max() < CLOSE
    assert mixed.losses.keys() == plain.losses.keys()
    for name, loss in plain.losses.items():
        assert mixed.losses[name] == pytest.approx(loss, rel=1e-5)
    assert mixed.sample_passes == plain.sample_passes


def test_masked_and_plain_rounds_give_the_same_model(wire):
    federation, simulation = wire.federation(), wire.simulation()
    start = START
    for number in range(3):
        asked = requests(number=number, start=start)
        mixed = federation.mix(asked, [mean_of()])
        assert mixed.failures == ()
        assert_same(mixed, mix_plain(simulation, asked, [mean_of()]))
        start = mixed.means["parameters"][0]
    assert (start - START).norm() > 0.1
    # Keys are exchanged once; then a round is two calls.
    assert wire.operations() == ["advertise", "join", *["masked_train", "unmask"] * 3]


def recorded_numbers(wire):
    """All tensors that the server got, as bytes, and all messages."""
    return b"|".join(message for way, _, _, message in wire.record if way == "from")


def assert_unseen(vector, whole):
    """No part of a vector is in what the server got."""
    content = vector.numpy().tobytes() if isinstance(vector, torch.Tensor) else vector.tobytes()
    for first in range(0, len(content) - 16, 16):
        part = content[first : first + 16]
        assert part == bytes(16) or part not in whole


def test_the_server_gets_no_single_update(wire):
    federation, simulation = wire.federation(), wire.simulation()
    asked = requests()
    federation.mix(asked, [mean_of()])
    whole = recorded_numbers(wire)
    for name, reply in simulation.call(asked).items():
        share = WEIGHTS[name] / sum(WEIGHTS.values())
        for vector in (reply.parameters, reply.parameters - START, share * reply.parameters):
            assert_unseen(vector.float(), whole)
            assert_unseen(encode(vector, 1.0), whole)
        assert_unseen(encode(reply.parameters, share), whole)


def test_the_search_for_updates_finds_them_where_they_are(wire):
    federation = wire.federation(masked=False)
    for kit in wire.kits.values():
        path = kit / "silo.toml"
        path.write_text(path.read_text() + "[limits]\nsingle_updates = true\n")
    try:
        wire.restart()
        asked = requests()
        federation.mix(asked, [mean_of()])
        whole = recorded_numbers(wire)
        reply = wire.simulation().call(asked)[PARTICIPANTS[0]]
        with pytest.raises(AssertionError):
            assert_unseen(reply.parameters, whole)
    finally:
        for kit in wire.kits.values():
            path = kit / "silo.toml"
            path.write_text(path.read_text().replace("[limits]\nsingle_updates = true\n", ""))


def without(name):
    left = tuple(one for one in PARTICIPANTS if one != name)
    return Sum(PARTICIPANTS, {one: WEIGHTS[one] for one in left}, PARTICIPANTS)


@pytest.mark.parametrize("when", ["masked_train", "unmask"])
def test_a_round_completes_without_a_member_that_drops_out(wire, when):
    federation, simulation = wire.federation(), wire.simulation()
    federation.mix(requests(), [mean_of()])
    simulation.call(requests())
    west = Participant("West")
    wire.lose = {"West": [when]}
    wire.record.clear()
    asked = requests(number=1)
    mixed = federation.mix(asked, [mean_of()])
    assert [failure.participant for failure in mixed.failures] == [west]
    expected = without(west) if when == "masked_train" else mean_of()
    plain = mix_plain(simulation, asked, [expected])
    assert (mixed.means["parameters"] - plain.means["parameters"]).abs().max() < CLOSE
    assert mixed.received == set(PARTICIPANTS)
    # It is with the others again in the next round, with the keys it has.
    wire.lose = {}
    wire.record.clear()
    asked = requests(number=2)
    assert_same(federation.mix(asked, [mean_of()]), mix_plain(simulation, asked, [mean_of()]))
    assert wire.operations() == [
        *(["offer"] if when == "masked_train" else []),
        "masked_train",
        "unmask",
    ]


def test_a_round_that_loses_too_many_reveals_nothing_and_the_next_makes_new_keys(wire):
    federation, simulation = wire.federation(), wire.simulation()
    wire.lose = {"West": ["masked_train"], "East": ["masked_train"]}
    mixed = federation.mix(requests(), [mean_of()])
    assert mixed.received == frozenset()
    assert torch.equal(mixed.means["parameters"], START.expand(5, -1))
    assert {str(one.participant) for one in mixed.failures} == {"West", "East"}
    assert "unmask" not in wire.operations()
    assert any("no masked sum of" in line and "3 of 5" in line for line in wire.told)
    wire.lose = {}
    wire.record.clear()
    asked = requests(number=1)
    assert_same(federation.mix(asked, [mean_of()]), mix_plain(simulation, asked, [mean_of()]))
    assert wire.operations()[:2] == ["advertise", "join"]


def test_absent_members_are_left_out_of_the_session(wire):
    federation, simulation = wire.federation(), wire.simulation()
    wire.lose = {"West": ["always", "before advertise"]}
    west = Participant("West")
    for number in range(2):
        asked = requests(number=number)
        mixed = federation.mix(asked, [mean_of()])
        plain = mix_plain(simulation, asked, [without(west)])
        assert (mixed.means["parameters"] - plain.means["parameters"]).abs().max() < CLOSE
        assert [failure.participant for failure in mixed.failures] == [west]


def test_silos_that_were_restarted_set_up_a_new_session_in_the_same_round(wire):
    federation, simulation = wire.federation(), wire.simulation()
    federation.mix(requests(), [mean_of()])
    wire.restart()
    asked = requests(number=1)
    mixed = federation.mix(asked, [mean_of()])
    assert mixed.failures == ()
    assert_same(mixed, mix_plain(simulation, asked, [mean_of()]))


def test_one_silo_that_was_restarted_counts_as_dropped_out_and_is_back_after(wire):
    federation, simulation = wire.federation(), wire.simulation()
    federation.mix(requests(), [mean_of()])
    wire.restart("West")
    west = Participant("West")
    mixed = federation.mix(requests(number=1), [mean_of()])
    assert [failure.participant for failure in mixed.failures] == [west]
    assert mixed.received == set(PARTICIPANTS)
    asked = requests(number=2)
    mixed = federation.mix(asked, [mean_of()])
    assert mixed.failures == ()
    assert_same(mixed, mix_plain(simulation, asked, [mean_of()]))


def test_a_coordinator_that_was_restarted_goes_on(wire):
    wire.federation().mix(requests(), [mean_of()])
    asked = requests(number=1)
    mixed = wire.federation().mix(asked, [mean_of()])
    assert_same(mixed, mix_plain(wire.simulation(), asked, [mean_of()]))


def test_several_coalitions_and_repetitions_at_once(wire):
    federation, simulation = wire.federation(2), wire.simulation(2)
    zero, one = ([Participant(name, k) for name in NAMES] for k in range(2))
    # In the repetition 1 two coalitions: three are masked, two train for themselves at home.
    groups = (tuple(zero), tuple(one[:3]))
    alone = Personal(prefixes=("",), slot="fedavg")
    asked = {
        name: request if name not in one[3:] else request.changed(personal=alone)
        for name, request in (requests(zero) | requests(one, number=1)).items()
    }
    sums = [mean_of(group) for group in groups]
    for _ in range(2):
        mixed = federation.mix(asked, sums)
        assert mixed.failures == ()
        plain = mix_plain(simulation, asked, sums)
        assert mixed.names == plain.names
        assert mixed.received == plain.received
        masked = [k for k, name in enumerate(mixed.names) if name not in one[3:]]
        for vector, rows in plain.means.items():
            assert (mixed.means[vector] - rows)[masked].abs().max() < CLOSE
    assert wire.operations() == ["advertise", "join", *["masked_train", "unmask"] * 2]


def test_personal_parameters_never_enter_a_sum(wire):
    federation, simulation = wire.federation(), wire.simulation()
    own = Personal(prefixes=("output.",), slot="fedavg")
    places = SCHEMA.mask(["output."])
    for number in range(2):
        asked = requests(number=number, start=START, personal=own)
        mixed = federation.mix(asked, [mean_of()])
        assert_same(mixed, mix_plain(simulation, asked, [mean_of()]))
        assert torch.equal(mixed.means["parameters"][:, places], START[places].expand(5, -1))
    whole = recorded_numbers(wire)
    for name, silo in simulation.silos.items():
        trained = silo.personal_model(name, START, own)[places]
        assert not torch.equal(trained, START[places])
        assert_unseen(trained, whole)
        assert_unseen(encode(trained, 1.0), whole)


def test_momentum_is_mixed_like_the_model(wire):
    federation, simulation = wire.federation(), wire.simulation()
    asked = requests(terms=LocalTerms(momentum=torch.zeros_like(START)))
    mixed, plain = federation.mix(asked, [mean_of()]), mix_plain(simulation, asked, [mean_of()])
    assert mixed.means["momentum"].norm() > 0.01
    assert_same(mixed, plain)


def test_a_bound_shortens_updates_at_home_and_norms_are_told(wire):
    federation, simulation = wire.federation(), wire.simulation()
    asked, short = requests(), mean_of(bound=0.01)
    mixed, plain = federation.mix(asked, [short]), mix_plain(simulation, asked, [short])
    assert_same(mixed, plain)
    assert (mixed.means["parameters"][0] - START).norm() <= 0.01 + CLOSE
    assert mixed.norms == pytest.approx(plain.norms, rel=1e-5)
    assert federation.mix(requests(number=1), [mean_of()]).norms == {}


def test_a_model_out_of_range_is_a_failure_and_not_a_wrong_sum(wire):
    federation = wire.federation()
    mixed = federation.mix(requests(start=START + 200), [mean_of()])
    assert {failure.reason for failure in mixed.failures} == {"not finite"}
    assert len(mixed.failures) == len(PARTICIPANTS)
    assert mixed.received == frozenset()


def test_a_sum_in_which_one_weighs_too_much_is_refused_by_the_silos(wire):
    weights = dict.fromkeys(PARTICIPANTS, 0.01) | {PARTICIPANTS[0]: 1.0}
    mixed = wire.federation().mix(requests(), [Sum(PARTICIPANTS, weights, PARTICIPANTS)])
    assert mixed.received == frozenset()
    assert {failure.reason for failure in mixed.failures} == {"refused"}
    assert "largest_weight" in mixed.failures[0].detail


def test_two_members_are_not_masked_and_their_silos_refuse(wire):
    federation = wire.federation()
    assert federation.masks(PARTICIPANTS)
    assert federation.masks(PARTICIPANTS[:1])
    assert not federation.masks(PARTICIPANTS[:2])
    pair = PARTICIPANTS[:2]
    mixed = federation.mix(requests(pair), [mean_of(pair)])
    assert {failure.reason for failure in mixed.failures} == {"refused"}
    assert "single_updates" in mixed.failures[0].detail


def test_shares_are_not_given_to_a_server_that_asks_twice(wire):
    wire.federation().mix(requests(), [mean_of()])
    orders = [
        (site, message)
        for way, site, operation, message in wire.record
        if way == "to" and operation == "unmask"
    ]
    for site, message in orders:
        answers = unpack(Answers, wire.silos[site].answer("server", message))
        assert "given before" in answers.answered[0].reply.detail


def test_a_kit_without_certificate_takes_no_part(wire, tmp_path):
    kits = write_kits(tmp_path)
    for file in (kits["West"] / "startup").iterdir():
        file.unlink()
    mixed = MaskedWire(kits).federation().mix(requests(), [mean_of()])
    (failure,) = mixed.failures
    assert failure.participant == Participant("West")
    assert "without a certificate" in failure.detail
    assert mixed.received == set(PARTICIPANTS)


def test_a_silo_notes_the_keys_of_its_peers_and_warns_of_changed_ones(tmp_path):
    authority = new_authority()
    kits = write_kits(tmp_path, authority=authority)
    MaskedWire(kits).federation().mix(requests(), [mean_of()])
    log = kits["West"] / "silo.log"
    assert "first sum with East" in log.read_text()
    assert "another key" not in log.read_text()
    # The authority can make a certificate in any name.
    silos = {"East": tmp_path / "forged"}
    write_identities(authority, tmp_path / "other", silos)
    for file in ("client.key", "client.crt"):
        (kits["East"] / "startup" / file).write_bytes(
            (silos["East"] / "startup" / file).read_bytes()
        )
    MaskedWire(kits).federation().mix(requests(number=1), [mean_of()])
    assert "East has another key than before" in log.read_text()


def test_bytes_of_a_masked_round_are_nearly_those_of_its_vectors(wire):
    federation = wire.federation()
    federation.mix(requests(), [mean_of()])
    before = sum(wire.received.values())
    federation.mix(requests(number=1), [mean_of()])
    more = sum(wire.received.values()) - before - len(SITES) * 4 * SCHEMA.size
    assert more < len(SITES) * 3000


HOME = Personal(prefixes=("",), slot="egomix", momentum_slot="egomix/momentum")
STEP = MixtureStep(own=("output.bias",), outer=0.5)


def mixtures(names=PARTICIPANTS, parts=3):
    """Each member's mixture of itself and those after it, by default two."""
    return [
        Sum(
            names,
            {names[(k + step) % len(names)]: float(parts - step) for step in range(parts)},
            (name,),
            shown=False,
            step=STEP,
        )
        for k, name in enumerate(names)
    ]


def expected_mixtures(simulation, starts, speeds, velocities, number):
    """What egomix makes of models that are all known: models, momenta and velocities."""
    asked = {
        name: Train(
            parameters=starts[k],
            settings=SETTINGS,
            seed=f"0/{number}",
            terms=LocalTerms(momentum=speeds[k]),
        )
        for k, name in enumerate(PARTICIPANTS)
    }
    plain = mix_plain(simulation, asked, mixtures())
    models, moved = STEP.taken(
        SCHEMA, starts, plain.trained["parameters"], plain.means["parameters"], velocities
    )
    momenta = STEP.with_own(SCHEMA, plain.trained["momentum"], plain.means["momentum"])
    return plain, models, momenta, moved


def test_mixtures_reach_their_receivers_alone(wire):
    federation, simulation = wire.federation(), wire.simulation()
    federation.call(dict.fromkeys(PARTICIPANTS, Keep(slot="egomix")))
    zeros = torch.zeros(5, SCHEMA.size)
    starts, speeds, velocities = START.expand(5, -1), zeros, zeros
    wire.record.clear()
    singles = []
    for number in range(2):
        terms = LocalTerms(momentum=torch.zeros_like(START))
        asked = requests(number=number, start=START, personal=HOME, terms=terms)
        mixed = federation.mix(asked, mixtures())
        assert mixed.failures == ()
        assert mixed.received == mixed.at_home == set(PARTICIPANTS)
        assert torch.equal(mixed.means["parameters"], START.expand(5, -1))
        plain, starts, speeds, velocities = expected_mixtures(
            simulation, starts, speeds, velocities, number
        )
        singles += [*plain.trained["parameters"], *plain.trained["momentum"], *starts]
        for k, name in enumerate(PARTICIPANTS):
            slots = wire.silos[SITES[name.name]]._own[1].silo_memory(name).slots
            assert (slots["egomix"] - starts[k]).abs().max() < CLOSE
            assert (slots["egomix/momentum"] - speeds[k]).abs().max() < 10 * CLOSE
            assert (slots["egomix/velocity"] - velocities[k]).abs().max() < CLOSE
    # Neither a model nor a mixture is in what the server got.
    whole = recorded_numbers(wire)
    for vector in singles:
        assert_unseen(vector, whole)
        assert_unseen(encode(vector, 1.0), whole)


def test_a_receiver_that_drops_out_keeps_its_own_model_and_its_mixture_stays_hidden(wire):
    federation = wire.federation()
    federation.call(dict.fromkeys(PARTICIPANTS, Keep(slot="egomix")))
    wire.lose = {"West": ["masked_train"]}
    mixed = federation.mix(requests(personal=HOME), mixtures(parts=4))
    west = Participant("West")
    assert [failure.participant for failure in mixed.failures] == [west]
    assert mixed.at_home == set(PARTICIPANTS) - {west}
    assert not any(site == "West" and what == "take" for _, site, what, _ in wire.record)


def test_a_mixture_of_one_other_member_is_not_made_and_said(wire):
    federation = wire.federation()
    federation.call(dict.fromkeys(PARTICIPANTS, Keep(slot="egomix")))
    asked = mixtures()
    lonely = Sum(PARTICIPANTS, dict.fromkeys(PARTICIPANTS[:2], 1.0), PARTICIPANTS[:1], shown=False)
    mixed = federation.mix(requests(personal=HOME), [lonely, *asked[1:]])
    assert mixed.failures == ()
    assert mixed.at_home == set(PARTICIPANTS[1:])
    assert any("North Bank continues with its own model" in line for line in wire.told)


def test_a_mean_is_taken_once_and_only_of_the_round_that_waits(wire):
    federation = wire.federation()
    federation.call(dict.fromkeys(PARTICIPANTS, Keep(slot="egomix")))
    federation.mix(requests(personal=HOME), mixtures())
    taking = [
        (site, message)
        for way, site, operation, message in wire.record
        if way == "to" and operation == "take"
    ]
    assert len(taking) == 5
    for site, message in taking:
        answers = unpack(Answers, wire.silos[site].answer("server", message))
        assert "waits for this mean" in answers.answered[0].reply.detail


def test_a_hidden_mean_of_a_model_that_is_not_at_home_is_not_made(wire):
    with pytest.raises(SettingsError, match="model home"):
        wire.federation().mix(requests(), mixtures())
