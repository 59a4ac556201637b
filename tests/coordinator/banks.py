"""The example banks' data where the coordinator looks for it."""

from pathlib import Path

__all__ = ["BANKS", "PLAN", "with_banks"]

BANKS = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"]
PLAN = {"source": "banks", "methods": ["local", "fedegoists"], "seeds": 1, "steps": 40}


def with_banks(data: Path) -> None:
    """Put the example banks' files where the coordinator looks for them."""
    from fedegoists.consortium.example_files import init

    init(data / "example", "banks")
    (data / "silos").mkdir(parents=True)
    (data / "example" / "banks").rename(data / "silos" / "banks")
