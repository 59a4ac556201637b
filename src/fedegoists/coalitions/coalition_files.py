"""Coalitions and data usage as CSV files."""

import os

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.usage import usage_graph
from fedegoists.errors import PartitionError
from fedegoists.files import csv_bytes, csv_rows
from fedegoists.graphs.participants import validated_name


def coalitions_csv(formation: Formation) -> bytes:
    """Return ``participant,coalition`` with coalitions numbered from 1."""
    number = {name: k for k, group in enumerate(formation.coalitions, 1) for name in group}
    rows = ((name, str(number[name])) for name in formation.participants)
    return csv_bytes(("participant", "coalition"), rows)


def usage_csv(formation: Formation) -> bytes:
    """Return ``source,target,weight``: the edges of the data-usage graph."""
    graph = usage_graph(formation)
    rows = ((a, b, repr(graph.edges[a, b]["weight"])) for a, b in graph.edges)
    return csv_bytes(("source", "target", "weight"), rows)


def read_coalitions(path: str | os.PathLike[str]) -> tuple[Coalition, ...]:
    """Read ``participant,coalition``; the same entry in the second column means together."""
    groups: dict[str, list[str]] = {}
    for line, row in csv_rows(path, ("participant", "coalition"), PartitionError):
        name, coalition = (value.strip() for value in row)
        if not name or not coalition:
            raise PartitionError(f"{path}, line {line}: expected a participant and a coalition")
        groups.setdefault(coalition, []).append(validated_name(name, f"{path}, line {line}"))
    return tuple(map(tuple, groups.values()))
