"""Both ways to solve small components."""

import pytest

from fedegoists.coalitions.exact import enumeration


@pytest.fixture(params=["listed", "compiled"])
def way(request, monkeypatch):
    """Small components by listing all coalitions, or like large ones by the compiled search."""
    if request.param == "compiled":
        monkeypatch.setattr(enumeration, "SMALL", 0)
