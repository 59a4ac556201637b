"""A silo's limits, and its protection of replies."""

import datetime
import json
import math

import pytest
import torch

from fedegoists.federation import (
    Describe,
    Evaluate,
    Gradient,
    Keep,
    LocalTerms,
    Personal,
    TrainSettings,
)
from fedegoists.federation.flare import silo_limits as guard
from fedegoists.federation.flare.messages import Answers, Call, RepeatedRequest
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.flare.silo_settings import read_silo_settings
from fedegoists.federation.flare.wire import pack, schema_digest, unpack
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Representation
from fedegoists.federation.secure_sums.sum_requests import MaskedTrain
from tests.flare.silo_kit import (
    GRADIENT,
    HALF,
    MODEL_SENT,
    OWN,
    SCHEMA,
    SCORE,
    START,
    TRAIN,
    asked,
    kit,
    today,
)


def test_only_the_coordinator_may_ask(tmp_path):
    service = SiloService(kit(tmp_path))
    assert asked(service, TRAIN, caller="East") == (None, "only the coordinator may ask")
    assert "refused train from East" in (tmp_path / "silo.log").read_text()


def test_operations_outside_the_limits_are_refused_and_logged(tmp_path):
    service = SiloService(kit(tmp_path, '[limits]\noperations = ["evaluate"]\nmodels = ["mlp"]\n'))
    assert asked(service, SCORE).refused is None
    assert asked(service, SCORE, model="mlp(hidden=100)").refused is None  # with any settings
    for request in (TRAIN, GRADIENT, Describe()):
        refused = f"{request.operation} is not among the operations allowed here"
        assert asked(service, request) == (None, refused)
    told = asked(service, SCORE, model="cifar10-cnn")
    assert "not among those allowed" in told.refused
    assert (tmp_path / "silo.log").read_text().count("WARNING refused") == 4
    for request in ("remember", "recall", MODEL_SENT):
        assert asked(service, request).refused is None
        refused = asked(service, request, model="cifar10-cnn").refused
        assert refused == "this network is not among those allowed here"


def test_rounds_a_day_are_counted_over_restarts(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 3\n"))
    for _ in range(2):
        assert asked(service, TRAIN).refused is None
    service = SiloService(tmp_path)
    assert asked(service, GRADIENT).refused is None
    assert asked(service, SCORE).refused is None
    assert "more than the 3 allowed" in asked(service, TRAIN).refused
    yesterday = datetime.date.fromisoformat(today()) - datetime.timedelta(days=1)
    counted = {"day": yesterday.isoformat(), "rounds": 3, "evaluations": 0}
    (tmp_path / "state" / "rounds.json").write_text(json.dumps(counted))
    assert asked(service, TRAIN).refused is None


def test_every_model_gradient_and_loss_of_a_part_counts_as_a_round(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 10\n"))

    def count():
        return json.loads((tmp_path / "state" / "rounds.json").read_text())["rounds"]

    assert asked(service, GRADIENT.changed(parameters=START.repeat(4, 1))).refused is None
    assert count() == 4
    assert asked(service, HALF.changed(parameters=START.repeat(3, 1))).refused is None
    assert count() == 7
    call = Call(
        operation="train",
        model="mlp",
        schema_is=schema_digest(SCHEMA),
        repetitions=2,
        asked=tuple(RepeatedRequest(repetition=number, request=TRAIN) for number in range(2)),
    )
    assert unpack(Answers, service.answer("server", pack(call))).refused is None
    assert count() == 9
    refused = unpack(Answers, service.answer("server", pack(call))).refused
    assert refused == "9 rounds have been answered today; 2 more are more than the 10 allowed"
    assert count() == 9
    assert asked(service, SCORE).refused is None
    assert count() == 9


def test_models_measured_on_a_whole_split_are_counted_by_themselves(tmp_path):
    more = "[limits]\nrounds_per_day = 2\nevaluations_per_day = 4\n"
    service = SiloService(kit(tmp_path, more))

    def evaluated(split, models=START, **part):
        return asked(service, Evaluate(parameters=models, split=split, **part)).refused

    def counted():
        return json.loads((tmp_path / "state" / "rounds.json").read_text())

    assert evaluated("test", START.repeat(3, 1)) is None
    assert (counted()["rounds"], counted()["evaluations"]) == (0, 3)
    assert "2 more are more than the 4 allowed" in evaluated("validation", START.repeat(2, 1))
    assert counted()["evaluations"] == 3  # what was refused does not count
    service = SiloService(tmp_path)
    assert evaluated("validation") is None
    assert "4 evaluations have been answered today" in evaluated("test")
    assert "refused evaluate from server: 4 evaluations" in (tmp_path / "silo.log").read_text()
    # Nor by a share that is all of it, or nearly, nor with a gradient.
    for share in (1.0, 0.95):
        part = {"share": share, "step": 0, "seed": 1}
        assert "4 evaluations have been answered today" in evaluated("validation", **part)
    assert "4 evaluations" in asked(service, GRADIENT.changed(split="test")).refused
    assert evaluated("train") is None  # of training samples: a round
    assert (counted()["rounds"], counted()["evaluations"]) == (1, 4)
    assert asked(service, TRAIN).refused is None
    assert "2 rounds have been answered today" in evaluated("train")


@pytest.mark.parametrize(
    ("kind", "part", "rounds", "evaluations"),
    [
        (Evaluate, {"split": "test", "share": 1.0}, 0, 1),
        (Evaluate, {"split": "test", "share": 0.95}, 1, 1),
        (Evaluate, {"split": "test", "share": 0.5}, 1, 0),
        (Gradient, {"split": "validation", "share": 0.5}, 1, 1),
        (Gradient, {"split": "train", "share": 0.5}, 1, 0),
    ],
)
def test_what_an_answer_counts_as_follows_from_its_samples(
    tmp_path, kind, part, rounds, evaluations
):
    more = "[limits]\nrounds_per_day = 9\nevaluations_per_day = 9\n"
    request = kind(parameters=START[None], step=0, seed=1, **part)
    assert asked(SiloService(kit(tmp_path, more)), request).refused is None
    counted = json.loads((tmp_path / "state" / "rounds.json").read_text())
    assert (counted["rounds"], counted["evaluations"]) == (rounds, evaluations)


def test_nothing_is_answered_where_the_count_cannot_be_read(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 3\n"))
    count = tmp_path / "state" / "rounds.json"
    for content in ("", "{", "[]", "3", "{}", json.dumps({"day": today(), "rounds": None})):
        count.write_text(content)
        assert "is not known" in asked(service, TRAIN).refused
        assert count.read_text() == content
    log = (tmp_path / "silo.log").read_text()
    assert "refused train from server: rounds.json cannot be read" in log
    assert asked(service, SCORE).refused is None
    count.write_text(json.dumps({"day": today(), "rounds": 2}))  # from before evaluations counted
    assert asked(service, TRAIN).refused is None
    assert "3 rounds have been answered" in asked(service, TRAIN).refused


def test_no_answer_is_about_a_few_samples(tmp_path):
    service = SiloService(kit(tmp_path))
    single = {"parameters": START, "split": "train", "seed": 1, "step": 3}
    for request in (
        Evaluate(**single, share=0.03),
        Evaluate(**{**single, "split": "validation"}, share=0.1),
        Gradient(**single, batch_size=1),
        Gradient(**single, share=0.03),
        TRAIN.changed(settings=TrainSettings(steps=1, batch_size=1)),
        TRAIN.changed(share=0.03),
    ):
        reply, refused = asked(service, request)
        assert reply is None
        assert "here at least" in refused
    more = kit(tmp_path / "more", "[limits]\nfewest_samples = 1\n")
    assert asked(SiloService(more), Gradient(**single, batch_size=1)).refused is None


def test_where_gradients_are_clipped_losses_of_a_part_are_hidden(tmp_path):
    service = SiloService(kit(tmp_path, "[privacy]\ngradient_clip = 1.0\n"))
    for request in (HALF, SCORE.changed(split="train")):
        assert "hidden" in asked(service, request).refused
    assert asked(service, SCORE).refused is None


def test_a_request_cannot_take_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "MOST_DRAWS", 100)
    service = SiloService(kit(tmp_path))
    assert asked(service, TRAIN).refused is None  # 5 steps of 16
    longer = TrainSettings(steps=7, batch_size=16)
    refused = asked(service, TRAIN.changed(settings=longer)).refused
    assert "more than there is memory for" in refused


def test_a_model_that_leaves_has_not_moved_further_than_allowed(tmp_path):
    free = asked(SiloService(kit(tmp_path)), TRAIN).reply.parameters
    bounded = SiloService(kit(tmp_path, "[privacy]\nupdate_clip = 0.01\n"))
    bound = asked(bounded, TRAIN).reply.parameters
    assert (free - START).norm() > 0.02
    assert (bound - START).norm() == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(
        (bound - START) / 0.01, (free - START) / (free - START).norm(), rtol=0.01, atol=1e-3
    )


def test_a_momentum_goes_on_but_never_leaves_a_silo_that_bounds_what_does(tmp_path):
    moving = TRAIN.changed(terms=LocalTerms(momentum=torch.full_like(START, 0.01)))
    free = asked(SiloService(kit(tmp_path / "a")), moving).reply
    plain = asked(SiloService(kit(tmp_path / "a")), TRAIN).reply
    assert free.momentum.shape == START.shape
    assert plain.momentum is None
    assert not torch.equal(free.parameters, plain.parameters)
    for clip in ("update_clip", "gradient_clip"):
        bounded = SiloService(kit(tmp_path / clip, f"[privacy]\n{clip} = 0.01\n"))
        assert asked(bounded, moving).reply.momentum is None


SHIFTED = TRAIN.changed(terms=LocalTerms(representation=Representation(shift=torch.zeros(100))))
ABOUT_MEANS = TRAIN.changed(
    terms=LocalTerms(representation=Representation(mean=torch.zeros(100), strength=1.0))
)


@pytest.mark.parametrize(
    "privacy",
    [
        'level = "standard"\n',
        "train_clip = 1.0\n",
        "gradient_clip = 1.0\n",
        "gradient_clip = 1.0\ngradient_noise = 2.0\n",
        "update_clip = 1.0\n",
    ],
)
@pytest.mark.parametrize("request_", [SHIFTED, ABOUT_MEANS], ids=["shift", "mean"])
def test_a_silo_that_clips_refuses_terms_about_representations(tmp_path, privacy, request_):
    """All answers that these methods need would be clipped or noisy."""
    free = asked(SiloService(kit(tmp_path / "free")), SHIFTED).reply
    assert free.shift.shape == (100,)
    assert free.shift.abs().sum() > 0
    service = SiloService(kit(tmp_path / "own", f"[privacy]\n{privacy}"))
    assert asked(service, TRAIN).refused is None
    assert "use another method, or no privacy" in asked(service, request_).refused


@pytest.mark.parametrize("privacy", ['level = "standard"\n', "train_clip = 1.0\n"])
def test_a_silo_that_trains_with_privacy_refuses_sharpness_aware_steps(tmp_path, privacy):
    """Without counting an answer, although the request itself asks for no privacy."""
    sharp = TRAIN.changed(settings=TRAIN.settings.changed(sam_radius=0.1))
    limits = "[limits]\nrounds_per_day = 1\n"
    free = SiloService(kit(tmp_path / "free", limits))
    assert asked(free, sharp).reply.sample_passes == 2 * 5 * 16
    service = SiloService(kit(tmp_path / "own", f"{limits}[privacy]\n{privacy}"))
    assert "leave out sam_radius, or use no privacy" in asked(service, sharp).refused
    assert asked(service, TRAIN).refused is None


@pytest.mark.parametrize("clip", ["update_clip", "gradient_clip"])
def test_a_shift_never_leaves_a_silo_that_bounds_what_does(tmp_path, clip):
    settings = read_silo_settings(kit(tmp_path, f"[privacy]\n{clip} = 1.0\n") / "silo.toml")
    limits = guard.SiloGuard(settings, tmp_path, {"train": 105})
    reply = Trained(parameters=START, loss=0.0, samples=1, sample_passes=1, shift=torch.ones(100))
    assert limits.leaving(SHIFTED, reply, SCHEMA).shift is None


def test_a_refused_round_costs_no_budget(tmp_path):
    """Whoever asks again and again for what is refused does not use up what a silo may tell."""
    more = '[limits]\nrounds_per_day = 3\n[privacy]\nlevel = "standard"\n'
    service = SiloService(kit(tmp_path, more))
    for k in range(5):
        assert asked(service, SHIFTED.changed(seed=f"0/{k}")).refused is not None
    # Nor where the caller asks for the clipping.
    clipped = SHIFTED.settings.changed(clip=1.0, noise=1.0)
    assert asked(service, SHIFTED.changed(settings=clipped)).refused is not None
    assert {one.spent for one in service._guard.ledger.accounts().values()} == {0.0}
    assert not (tmp_path / "state" / "rounds.json").exists()
    assert asked(service, TRAIN).refused is None
    assert service._guard.ledger.accounts()["train"].spent > 0


def test_noise_is_as_strong_as_said_and_another_for_another_request(tmp_path):
    more = "[privacy]\nupdate_clip = 0.5\nupdate_noise = 0.2\n"
    more += "gradient_clip = 1.0\ngradient_noise = 4.0\n"
    service = SiloService(kit(tmp_path, more))
    one, other = (asked(service, TRAIN).reply.parameters for _ in range(2))
    assert (one - other).std() == pytest.approx(0.2 * 0.5 * 2**0.5, rel=0.15)
    one, other = (asked(service, GRADIENT.changed(step=step)).reply for step in (0, 1))
    assert one.losses == (0.0,)  # hidden with the clipping
    spread = (one.gradient - other.gradient).std()
    assert spread == pytest.approx(4.0 / 8 * 2**0.5, rel=0.15)


def test_the_coordinator_can_ask_for_stricter_clipping_but_not_for_less(tmp_path):
    service = SiloService(kit(tmp_path, "[privacy]\ngradient_clip = 0.1\n"))
    for clip, most in ((None, 0.1), (5.0, 0.1), (0.01, 0.01)):
        reply = asked(service, GRADIENT.changed(clip=clip)).reply
        assert reply.gradient.norm() <= most + 1e-6


def test_an_update_of_a_silo_alone_leaves_only_with_its_consent(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nsingle_updates = false\n"))
    for request in (TRAIN, GRADIENT, TRAIN.changed(personal=OWN)):
        assert "limits.single_updates is false here" in asked(service, request).refused
    # Where nothing leaves, nothing is shown.
    at_home = TRAIN.changed(personal=Personal(prefixes=("",), slot="local"))
    reply = asked(service, at_home).reply
    assert not reply.parameters.any()
    assert asked(service, SCORE).refused is None


def test_nothing_of_representations_leaves_without_consent(tmp_path):
    """A shift is trained on the silo's samples; a loss tells of them what its terms ask."""
    whole = Personal(prefixes=("",), slot="probe")
    classes = Representation(centres=torch.zeros(2, 100), pulls=torch.tensor([1.0, 0.0]))
    probing = TRAIN.changed(terms=LocalTerms(representation=classes))
    more = "[limits]\nsingle_updates = false\n"
    service = SiloService(kit(tmp_path / "without", more))
    for request in (SHIFTED, ABOUT_MEANS, probing):
        for own in (None, OWN, whole):
            told = asked(service, request.changed(personal=own))
            assert told.reply is None
            assert "limits.single_updates is false here" in told.refused
    # With it, a model that stays at home takes its shift along.
    service = SiloService(kit(tmp_path / "with"))
    reply = asked(service, SHIFTED.changed(personal=whole)).reply
    assert not reply.parameters.any()
    assert reply.shift is None


def test_masks_do_not_hide_the_loss_of_terms_about_representations(tmp_path):
    settings = read_silo_settings(kit(tmp_path, "[limits]\nsingle_updates = false\n") / "silo.toml")
    limits = guard.SiloGuard(settings, tmp_path, {"train": 105})
    for train in (TRAIN, ABOUT_MEANS):
        masked = MaskedTrain.model_construct(operation="masked_train", train=train)
        one = RepeatedRequest.model_construct(repetition=1, request=masked)
        call = Call.model_construct(operation="masked_train", model="mlp", asked=(one,))
        if train is TRAIN:
            limits.admit("server", call)
        else:
            with pytest.raises(guard.RefusedError, match="show those of this silo alone"):
                limits.admit("server", call)


def test_only_noise_hides_the_share_of_a_class(tmp_path):
    """Losses at outputs of 0 and 1 tell it, whatever else is refused; docs say so."""
    rows = START.repeat(2, 1)
    views = SCHEMA.unflatten(rows)
    views["output.weight"].zero_()
    views["output.bias"].zero_()
    views["output.bias"][1] = 1.0
    request = Evaluate(parameters=rows, split="train")
    limits = '[limits]\nsingle_updates = false\noperations = ["train", "evaluate"]\n'

    def share(losses):
        """Of log(1 + e) − y, the mean is log(1 + e) less the share of the second class."""
        return math.log(1 + math.e) - losses[1]

    free = SiloService(kit(tmp_path / "free", limits))
    assert asked(free, Describe()).refused is not None
    reply = asked(free, request).reply
    assert reply.losses[0] == pytest.approx(math.log(2), abs=1e-5)
    labels = asked(SiloService(kit(tmp_path / "described")), Describe()).reply.labels
    assert share(reply.losses) == pytest.approx(labels[1] / sum(labels), abs=1e-4)


def test_a_silo_that_shows_no_single_update_still_tells_its_learning_curve(tmp_path):
    """Models of parts stay at home; they are judged on the samples that they did not see."""
    service = SiloService(kit(tmp_path, "[limits]\nsingle_updates = false\n"))
    at_home = Personal(prefixes=("",), slot="curves/model")
    half = TRAIN.changed(share=0.5, part=0, seed=3)
    assert "shows an update of this silo alone" in asked(service, half).refused
    assert asked(service, Keep(slot=at_home.slot)).refused is None
    trained = asked(service, half.changed(personal=at_home)).reply
    assert not trained.parameters.any()
    request = Evaluate(parameters=START, split="train", share=0.5, step=1, seed=3, personal=at_home)
    judged = asked(service, request).reply
    untrained = asked(service, request.changed(personal=None)).reply
    assert judged.losses != untrained.losses
    assert judged.samples == untrained.samples


def test_few_patients_with_many_samples_are_few(tmp_path):
    """A quarter of 60 rows is 15, which could all be of three patients."""
    settings = read_silo_settings(kit(tmp_path, "[limits]\nfewest_samples = 8\n") / "silo.toml")
    rows, patients = {"validation": 60}, {"validation": 12}
    quarter = Evaluate(parameters=START, split="validation", share=0.25, seed=0)
    guard.SiloGuard(settings, tmp_path, rows)._check_size(quarter)
    with pytest.raises(guard.RefusedError, match="3 of 12 validation samples; here at least 6"):
        guard.SiloGuard(settings, tmp_path, rows, patients)._check_size(quarter)
