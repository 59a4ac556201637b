"""Orders for runs keep competitors apart."""

import pytest
from pydantic import ValidationError

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.consortium.engine import ENGINES
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from tests.coordinator.banks import BANKS
from tests.coordinator.consortia import found, report

pytest.importorskip("torch", reason="runs need the extra train")

MINGLING = [name for name, entry in ESTIMATOR_ENTRIES.items() if entry.mingles]


@pytest.mark.parametrize("competing", [False, True])
@pytest.mark.parametrize("estimator", ["auto", *ESTIMATOR_ENTRIES])
def test_benefits_are_learned_only_in_ways_that_keep_competitors_apart(
    sqlite_store, tmp_path, estimator, competing
):
    consortium_id, _ = found(sqlite_store, BANKS[:3])
    if competing:
        report(sqlite_store, consortium_id, BANKS[0], BANKS[1])
    plan = RunPlan(source="banks", estimator=estimator)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
        run = (
            session,
            "manager m",
            consortium,
            RunOrder(kind="benefit", engine="simulation", plan=plan),
        )
        if competing and estimator in MINGLING:
            with pytest.raises(ConflictError, match=f"{estimator}.* choose 'curves', 'transfer'"):
                run_records.enqueue(*run)
        else:
            assert run_records.enqueue(*run).state == "queued"


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 10**9},
        {"methods": ["local"] * 41},
        {"methods": []},
        {"device": "mps"},
        {"device": "cuda:999"},
        {"personal": ["output."] * 101},
        {"settings": {f"m{k}": {} for k in range(41)}},
        {"estimator": "guess"},
        {"patience": -1},
        {"patience": 10**6},
        {"more": 1},
    ],
)
def test_a_plan_out_of_bounds_is_refused(change):
    assert RunPlan(source="banks").methods == ("local", "fedavg+ft", "fedegoists")
    with pytest.raises(ValidationError):
        RunPlan(source="banks", **change)


def test_only_runs_over_silos_have_patience():
    RunPlan(patience=5).check_for(ENGINES["flare"])
    with pytest.raises(ConflictError, match="leave out 'patience'"):
        RunPlan(source="banks", patience=5).check_for(ENGINES["simulation"])
