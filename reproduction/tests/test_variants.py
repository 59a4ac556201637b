"""The rows of the tables."""

from dataclasses import replace

from reproduction.variants import VARIANTS, wide_name


def test_wide_rows_have_all_company_and_nothing_else_of_their_own():
    for name in ("egomix", "fedavg", "fedavg+ft", "fedavgm+wise"):
        if name not in VARIANTS:  # interpolated rows are in the widest coalitions only
            assert wide_name(name) in VARIANTS
            continue
        row = VARIANTS[wide_name(name)]
        assert (row.where, row.benefit) == ("best", "everybody")
        assert row == replace(VARIANTS[name], name=row.name, where="best", benefit="everybody")
    assert VARIANTS["fedavg-wide+ft"].base == VARIANTS["fedavg-wide"]
