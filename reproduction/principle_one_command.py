"""The command that measures what Principle 1 costs."""

import time
from itertools import product
from typing import Annotated

import typer

from fedegoists.cli.output import line
from fedegoists.files import read_text
from fedegoists.folder_swap import write_folder
from reproduction import RESULTS
from reproduction.benefit_graphs import GRAPHS
from reproduction.packed_lines import ENDING, read_packed
from reproduction.principle_one import (
    graph_costs_csv,
    learned_costs,
    random_costs,
    read_graph_costs,
)
from reproduction.principle_one_page import principle_page
from reproduction.principle_one_study import SOURCES, TASKS, costs_csv, costs_of, read_costs
from reproduction.real_data_commands import MOST_DIVISIONS, OutOption, origin, origins, read_back
from reproduction.running import commit

__all__ = ["register"]

WELFARE = "welfare"
"""The part that trains nothing."""
COUNTS, COMPETITIONS = (8, 12, 16, 20), (0.0, 0.2, 0.4)
DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
RANDOM_GRAPHS = 50
"""Random graphs of each size, density and level of competition."""
TABLE_GRAPHS = RESULTS / "graphs" / f"{GRAPHS}{ENDING}"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("principle-one")(principle_one_command)


def principle_one_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="PART", help=f"{', '.join((WELFARE, *TASKS))}.")
    ] = None,
    out: OutOption = RESULTS / "principle-one",
) -> None:
    """Measure what Principle 1, no free riders, costs: in welfare, and in trained models.

    What is in DIR already is not measured again: a stopped study goes on.
    """
    parts = (WELFARE, *TASKS)
    for name in names or ():
        if name not in parts:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(parts)}")
    graph_table, table, page = (
        out / name for name in ("graphs.csv", "members.csv", "principle-one.md")
    )
    earlier = origins(read_text(page)) if page.exists() else []
    began, code = time.monotonic(), commit()  # others may commit while this trains
    for name, source in product(names or parts, SOURCES):
        graphs = read_graph_costs(graph_table) if graph_table.exists() else []
        members = read_costs(table) if table.exists() else []
        if name == WELFARE:
            if graphs:
                continue
            graphs = learned_costs(read_packed(TABLE_GRAPHS))
            graphs += random_costs(COUNTS, DENSITIES, COMPETITIONS, RANDOM_GRAPHS)
        else:
            if (name, source) in {(one.task, one.source) for one in members}:
                continue
            members += costs_of(name, source, tell=line)
            members.sort(key=lambda one: (TASKS.index(one.task), SOURCES.index(one.source)))
        contents = {graph_table.name: graph_costs_csv(graphs), table.name: costs_csv(members)}
        told = origin(" ".join(["principle-one", *(names or ())]), MOST_DIVISIONS, began, code)
        text = principle_page(
            read_back(read_graph_costs, contents[graph_table.name]),
            read_back(read_costs, contents[table.name]),
            "\n\n".join([*earlier, told]),
        )
        contents[page.name] = text.encode()
        write_folder(out, contents, replace=True, private=False)
