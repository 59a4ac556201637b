"""Small parts of tables and made-up results, for the tests."""

from dataclasses import replace

from reproduction.cells import CellResult, Plan
from reproduction.rate_choice import at_chosen_rates

QUICK = Plan(repetitions=1, steps=2, choose=False)
FEW = ("local", "egomix", "egomix-wide", "fedavg", "fedavg+ft", "fedavg-wide+ft",
       "fedavg, four times+ft", "egomix, denser benefits, four times")  # fmt: skip


def small(table, methods=FEW, scenarios=1, benefit=None):
    """The first scenarios of a table, with some of its rows; learning nothing takes less time."""
    rows = tuple(
        replace(variant, benefit=benefit or variant.benefit)
        for variant in table.variants
        if variant.name in methods
    )
    return replace(table, scenarios=table.scenarios[:scenarios], variants=rows or table.variants)


def result(test, validation=None, metric="accuracy", failures=0):
    spent = dict.fromkeys(("sample_passes", "bytes_sent", "bytes_received"), 1.0)
    about = {"pass": ["x"], "pass_seconds": 1.0, "samples_per_second": 5, "commit": "abc",
             "device": "CPU", "torch": "2", "finished": "2000-01-01", "rounds": [100, 20],
             "failures": failures}  # fmt: skip
    values = {"v0": test - 0.1, "v1": test + 0.1}
    known = dict.fromkeys(values, validation or test)
    return CellResult(metric, values, known, {"v0": 1, "v1": 1}, spent, about)


def used(table, plan, store):
    """The rates at which the rows of a table are trained."""
    found = {}
    for _, cell, rated in at_chosen_rates(table, plan, store):
        found.setdefault(cell.variant.name, set()).add(None if rated is None else rated.factor)
    return found


def curves(values):
    """The validation curves of two participants: one value after every round, alike or each."""
    return {
        name: [(number, value) for number, value in enumerate(own, start=1)]
        for name, own in zip(("v0", "v1"), values, strict=True)
    }
