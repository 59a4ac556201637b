"""The choice at home: nobody keeps a model that is worse than its own, whatever is sent."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Candidate,
    Deliver,
    Delivered,
    Evaluate,
    Failure,
    Participant,
    Personal,
    SimulatedFederation,
)
from fedegoists.federation.delivery import SHARES, ModelName, choose_at_home, mixture_shares
from fedegoists.federation.requests import DELIVERED, EVERYTHING
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model

FEATURES = 3
TRUTH = torch.tensor([1.0, -2.0, 0.5, 0.0])
"""The weights, and the bias, behind the targets."""
ONE = Participant("a")


def federation(validation=200, repetitions=(None,), noise=0.3, test=300):
    rng = np.random.default_rng(0)
    count = 50 + validation + test
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    y = (x @ TRUTH[:3].numpy() + noise * rng.normal(size=count)).astype(np.float32)
    rows = np.split(np.arange(count), [50, 50 + validation])
    data = SiloedData(
        "line", "regression", Samples((x,), y), (SiloIndices("a", *rows),), None, "a line", ()
    )
    model = build_model("linear", 0, features=FEATURES, outputs=1)
    return SimulatedFederation(dict.fromkeys(repetitions, data), model)


def sent(models, shares=(), personal=None):
    """A delivery of models by method, after as many rounds as they have places."""
    kept = personal or {}
    return Deliver(
        parameters=torch.stack(list(models.values())),
        candidates=tuple(
            Candidate(method=name, round=k, personal=kept.get(name))
            for k, name in enumerate(models)
        ),
        shares=shares,
    )


def off_by(amount):
    return TRUTH + amount * torch.tensor([1.0, 1.0, 1.0, 0.0])


def test_the_best_model_is_kept_and_its_name_is_told():
    silos = federation()
    models = {"local": off_by(0.4), "fedavg": off_by(0.2), "fedavg+ft": off_by(0.05)}
    assert silos.deliver({ONE: sent(models)}) == {ONE: Delivered(kept=True, method="fedavg+ft")}
    whole = Personal(prefixes=EVERYTHING, slot=DELIVERED)
    kept = silos.personal_model(ONE, torch.zeros(4), whole)
    assert torch.equal(kept, models["fedavg+ft"])
    # It can be measured like any other model that stays at home.
    asked = [
        Evaluate(parameters=torch.zeros(4), split="test", personal=whole),
        Evaluate(parameters=models["fedavg+ft"], split="test"),
    ]
    first, second = (silos.call({ONE: request})[ONE] for request in asked)
    assert first == second


def test_a_mixture_is_kept_where_the_truth_is_in_between():
    silos = federation()
    models = {"local": off_by(0.3), "fedavg": off_by(-0.3)}
    choice = choose_at_home(silos, {ONE: sent(models, SHARES)})
    assert choice.name == ModelName("fedavg", 0.5)
    torch.testing.assert_close(choice.parameters, TRUTH)
    assert choose_at_home(silos, {ONE: sent(models)}).name == ModelName("local")


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.sampled_from([1e-3, 0.1, 1.0, 100.0, 1e10]), st.integers(2, 60))
def test_a_poisoned_model_is_never_kept(seed, strength, validation):
    silos, own = federation(validation), off_by(0.02)
    poison = strength * torch.randn(4, generator=torch.Generator().manual_seed(seed))
    models = {
        "local": own,
        "fedavg": -10 * own,
        "egomix": own + poison,
        "fedora": torch.full((4,), torch.nan),
    }
    choice = choose_at_home(silos, {ONE: sent(models, SHARES)})
    assert choice.name.method in ("local", "egomix")
    assert choice.dropped == ("fedora: it has parameters that are no numbers",)
    # Small changes may be within what few samples can tell; ruin never is.
    assert (choice.parameters - TRUTH).norm() < (own - TRUTH).norm() + 0.5


def test_repetitions_are_judged_together_and_one_model_is_kept():
    numbers = (0, 1, 2)
    silos = federation(repetitions=numbers)
    own = {k: off_by(0.3) for k in numbers}
    other = {0: off_by(0.28), 1: off_by(0.1), 2: off_by(0.2)}
    requests = {Participant("a", k): sent({"local": own[k], "fedavg": other[k]}) for k in numbers}
    replies = silos.deliver(requests)
    assert [reply.kept for reply in replies.values()] == [False, True, False]
    # One initialisation of three that is better makes no sure gain.
    lucky = {0: off_by(0.32), 1: off_by(0.1), 2: off_by(0.33)}
    requests = {Participant("a", k): sent({"local": own[k], "fedavg": lucky[k]}) for k in numbers}
    replies = silos.deliver(requests)
    assert {reply.method for reply in replies.values() if reply.kept} == {"local"}


def test_without_an_own_model_the_best_result_decides():
    silos = federation()
    models = {"fedavg": off_by(0.2), "egomix": off_by(0.19)}
    assert choose_at_home(silos, {ONE: sent(models, SHARES)}).name == ModelName("egomix")


def test_of_models_that_differ_by_rounding_the_first_is_kept():
    """A silo without company has the same model from every method, but for the last bits."""
    silos = federation()
    closer = off_by(0.2 * (1 - 4e-7))  # better in the last bits only
    assert not torch.equal(closer, off_by(0.2))
    models = {"fedavg": off_by(0.2), "egomix": closer}
    assert choose_at_home(silos, {ONE: sent(models)}).name == ModelName("fedavg")
    better = {"fedavg": off_by(0.2), "egomix": off_by(0.199)}
    assert choose_at_home(silos, {ONE: sent(better)}).name == ModelName("egomix")


def test_layers_that_stay_at_home_complete_a_candidate():
    silos = federation()
    silos.silo_memory(ONE).slots["egomix/best"] = TRUTH.clone()
    home = Personal(prefixes=EVERYTHING, slot="egomix/best")
    lost = home.changed(slot="fedora/best")
    models = {"local": off_by(0.5), "egomix": torch.zeros(4), "fedora": torch.zeros(4)}
    delivery = sent(models, personal={"egomix": home, "fedora": lost})
    choice = choose_at_home(silos, {ONE: delivery})
    assert choice.name == ModelName("egomix")
    assert torch.equal(choice.parameters, TRUTH)
    assert choice.dropped == ("fedora: the layers that this silo keeps are not here",)


def test_what_cannot_be_chosen_from_is_refused():
    silos = federation()
    wrong = sent({"local": TRUTH}).changed(parameters=torch.zeros(2, 4))
    (failure,) = silos.deliver({ONE: wrong}).values()
    assert isinstance(failure, Failure)
    assert "a row for each" in failure.detail
    with pytest.raises(SettingsError, match="no numbers"):
        choose_at_home(silos, {ONE: sent({"local": torch.full((4,), torch.inf)})})


def test_trees_are_chosen_among_but_never_mixed():
    pytest.importorskip("lightgbm")
    from tests.trees import planted, trained

    data = planted((200, 200, 200))
    silos, alone = trained(data, "local", rounds=3)
    _, together = trained(data, "bagging", rounds=3)
    best = {"local": alone.best, "bagging": together.best}
    assert mixture_shares(silos.schema) == ()
    for k, one in enumerate(silos.participants):
        models = {name: rows[k] for name, rows in best.items()}
        assert choose_at_home(silos, {one: sent(models)}).name.method in models
        ruined = {"local": best["local"][k], "bagging": torch.full_like(best["local"][k], 7.0)}
        choice = choose_at_home(silos, {one: sent(ruined)})
        assert choice.name == ModelName("local")
        with pytest.raises(SettingsError, match="no parameters to mix"):
            choose_at_home(silos, {one: sent(models, SHARES)})
