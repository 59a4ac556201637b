"""Coalitions as CSV: one row for each participant with the number of its coalition."""

import csv
import io
import os

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.usage import usage_graph
from fedegoists.errors import PartitionError
from fedegoists.files import read_text
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.graphs.participants import validated_name


def coalitions_csv(formation: Formation) -> bytes:
    """Return ``participant,coalition`` with coalitions numbered from 1."""
    number = {name: k for k, group in enumerate(formation.coalitions, 1) for name in group}
    rows = ((name, str(number[name])) for name in formation.participants)
    return csv_bytes(("participant", "coalition"), rows)


def usage_csv(formation: Formation) -> bytes:
    """Return ``source,target,weight``: whose data is used by whom."""
    graph = usage_graph(formation)
    rows = ((a, b, repr(graph.edges[a, b]["weight"])) for a, b in graph.edges)
    return csv_bytes(("source", "target", "weight"), rows)


def read_coalitions(path: str | os.PathLike[str]) -> tuple[Coalition, ...]:
    """Read ``participant,coalition``; who has the same entry in the second column is together."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    groups: dict[str, list[str]] = {}
    header: list[str] | None = None
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if not any(values):
                continue
            if header is None:
                header = [value.casefold() for value in values]
                if sorted(header) != ["coalition", "participant"]:
                    raise PartitionError(
                        f"{path}, line {reader.line_num}: expected the header "
                        f"participant,coalition, got {','.join(values)[:80]!r}"
                    )
                continue
            if len(values) != 2 or not all(values):
                raise PartitionError(
                    f"{path}, line {reader.line_num}: expected a participant and a coalition"
                )
            entry = dict(zip(header, values, strict=True))
            place = f"{path}, line {reader.line_num}"
            name = validated_name(entry["participant"], place)
            groups.setdefault(entry["coalition"], []).append(name)
    except csv.Error as error:
        raise PartitionError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None
    if header is None:
        raise PartitionError(f"{path}: the file is empty; expected participant,coalition")
    return tuple(map(tuple, groups.values()))
