"""Runs that several tests of the report share."""

import pytest

from tests.consortium.reports import ODD, circle, make


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    names = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"]
    return make(
        tmp_path_factory.mktemp("banks"),
        names,
        [
            ("Alder", "Birch", 0.5),
            ("Birch", "Alder", 0.25),
            ("Cedar", "Dogwood", 1),
            ("Elm", "Cedar", 2),
        ],
        [("Alder", "Cedar"), ("Dogwood", "Elm")],
        methods=("local", "fedavg+ft"),
    )


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return make(tmp_path_factory.mktemp("odd"), ODD, circle(ODD[:3]), [(ODD[0], ODD[3])], seeds=1)
