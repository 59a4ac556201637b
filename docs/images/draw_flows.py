"""Draw the four flows of ``docs/explanation-architecture.md`` as SVG files beside this script.

Run ``python docs/images/draw_flows.py`` after a change. ``tests/docs/test_architecture.py`` checks
that the files are up to date and that every module and function they name exists.

The drawings have a light background of their own, so that they are readable in a light and in a
dark theme.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

# Modules by a short key: after a renaming, only this table and the function names change.
MODULES = {
    "cli coalitions": "cli.coalition_commands",
    "cli consortium": "cli.consortium_commands",
    "graph files": "graphs.graph_files",
    "forming": "coalitions.forming",
    "contraction": "coalitions.contraction",
    "merging": "coalitions.merging",
    "cliques": "coalitions.cliques",
    "algorithm 1": "coalitions.algorithm1",
    "reduction": "coalitions.exact.reduction",
    "best": "coalitions.exact.best_partition",
    "enumeration": "coalitions.exact.enumeration",
    "generation": "coalitions.exact.column_generation",
    "search": "coalitions.partition_search",
    "rearranging": "coalitions.rearranging",
    "principles": "coalitions.principles",
    "certificate": "coalitions.certificate",
    "cli output": "cli.output",
    "what-if": "coalitions.what_if",
    "manager api": "coordinator.service.manager_api",
    "decisions": "coordinator.domain.coalition_decisions",
    "settings": "consortium.consortium_settings",
    "engine": "consortium.engine",
    "simulation": "consortium.simulated_engine",
    "deployed": "deploy.flare_engine",
    "pipeline": "consortium.pipeline",
    "stages": "consortium.stage_cache",
    "gains": "training.gains",
    "models": "consortium.participant_models",
    "report": "consortium.report",
    "learn": "benefit.learning_benefit",
    "estimate": "benefit.estimate",
    "training": "training.repetitions",
    "run": "methods.method_run",
    "method": "methods.method",
    "silo_training": "methods.silo_training",
    "fedavg": "methods.fedavg",
    "seam": "federation.seam",
    "operations": "federation.trainer",
    "simulated": "federation.simulated_federation",
    "flare": "federation.flare.flare_federation",
    "messages": "federation.flare.messages",
    "wire": "federation.flare.wire",
    "connection": "federation.flare.relay_connection",
    "relay": "federation.flare.relay",
    "executor": "federation.flare.silo_executor",
    "service": "federation.flare.silo_service",
    "limits": "federation.flare.silo_limits",
    "checkpoints": "federation.flare.silo_checkpoints",
}

COLOURS = {
    "cli": "#e8eaf0",
    "graphs": "#fdf1c7",
    "coalitions": "#d9e8fb",
    "coalitions.certificate": "#d5f0dc",
    "learning": "#fbe1e1",
    "federation": "#fde5cf",
    "methods": "#e8dcf7",
    "benefit": "#d3f0ee",
    "training": "#f3dcef",
    "consortium": "#e9efd0",
    "deploy": "#e6dfd6",
    "coordinator": "#dde3ea",
}
"""The fill of a box by room; the longest prefix of the module's name counts."""

WIDTH, MARGIN, GAP, PAD = 900, 16, 30, 10
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Box:
    """One step of a flow.

    Attributes
    ----------
    key : str
        Its name for arrows.
    row, column, span : int
        Its place in the grid.
    title : str
        What happens; lines are separated by a line break.
    code : tuple of (module key, function)
        Where it happens. Without code the box is a file or a person.
    note : str
        Smaller text below.
    """

    key: str
    row: int
    column: int
    title: str
    code: tuple[tuple[str, str], ...] = ()
    note: str = ""
    span: int = 1

    def lines(self, width: float) -> list[tuple[str, str]]:
        """Return the lines of text with their kinds; long names of code take two lines."""
        found = [("title", text) for text in self.title.split("\n")]
        for module, name in self.code:
            text = f"{MODULES[module]} · {name}"
            if len(text) * CHARACTER["code"] <= width - 2 * PAD:
                found.append(("code", text))
            else:
                found += [("code", f"{MODULES[module]} ·"), ("code", f"\u00a0\u00a0{name}")]
        found += [("note", text) for text in self.note.split("\n") if text]
        for kind, text in found:
            if len(text) * CHARACTER[kind] > width - 2 * PAD:
                raise ValueError(f"too long for its box: {text!r}")
        return found

    def height(self, width: float) -> int:
        """Return the height of the box, by its lines."""
        return 2 * PAD + sum(LINE[kind] for kind, _ in self.lines(width)) - 3

    @property
    def fill(self) -> str:
        """The colour of the room in which the first function is."""
        if not self.code:
            return "#ffffff"
        module = MODULES[self.code[0][0]]
        rooms = [room for room in COLOURS if f"{module}.".startswith(f"{room}.")]
        return COLOURS[max(rooms, key=len)]


LINE = {"title": 18, "code": 16, "note": 16}
"""The height of a line, by kind."""

CHARACTER = {"title": 7.1, "code": 6.65, "note": 6.4}
"""The mean width of a character in the widest of the usual fonts."""


@dataclass(frozen=True)
class Flow:
    """A drawing: boxes in a grid, arrows between them, and headings of columns."""

    name: str
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[str, str], ...]
    columns: int
    lanes: tuple[str, ...] = field(default=())


def svg(flow: Flow) -> str:
    """Return a flow as the text of an SVG file."""
    wide = (WIDTH - 2 * MARGIN - (flow.columns - 1) * GAP) / flow.columns
    widths = {box.key: box.span * wide + (box.span - 1) * GAP for box in flow.boxes}
    tops, bottom = _rows(flow, widths)
    places = {
        box.key: (
            MARGIN + box.column * (wide + GAP),
            tops[box.row],
            widths[box.key],
            box.height(widths[box.key]),
        )
        for box in flow.boxes
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" '
        f'width="{WIDTH}" height="{bottom}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(flow.title)}</title>',
        STYLE,
        f'<rect class="page" width="{WIDTH}" height="{bottom}" rx="8"/>',
    ]
    for number, lane in enumerate(flow.lanes):
        left = MARGIN + number * (wide + GAP)
        parts.append(
            f'<rect class="lane" x="{left - 9:g}" y="10" width="{wide + 18:g}" '
            f'height="{bottom - 20:g}" rx="8"/>'
        )
        parts.append(
            f'<text class="lane" x="{left + wide / 2:g}" y="32" text-anchor="middle">'
            f"{escape(lane)}</text>"
        )
    parts += [_arrow(places[source], places[target]) for source, target in flow.arrows]
    for box in flow.boxes:
        parts += _box(box, places[box.key])
    return "\n".join([*parts, "</svg>", ""])


STYLE = f"""<style>
.page {{ fill: #fbfbfd; stroke: #c9ccd6; }}
.lane {{ fill: #f1f2f7; stroke: #d5d8e2; }}
text {{ fill: #1b1d26; font: 13px {SANS}; }}
text.lane {{ font-weight: 700; fill: #464b5e; stroke: none; }}
text.title {{ font-weight: 600; }}
text.code {{ font: 11px {MONO}; fill: #26365e; }}
text.note {{ font-size: 12px; fill: #4a4e5c; }}
.box {{ stroke: #7d8396; }}
.file {{ stroke: #7d8396; stroke-dasharray: 5 3; }}
.arrow {{ fill: none; stroke: #555b6e; stroke-width: 1.5; marker-end: url(#head); }}
#head path {{ fill: #555b6e; }}
</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"
orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>"""


def _rows(flow: Flow, widths: Mapping[str, float]) -> tuple[dict[int, int], int]:
    """Return where each row begins, and where the drawing ends."""
    top = 48 if flow.lanes else MARGIN
    tops: dict[int, int] = {}
    for row in sorted({box.row for box in flow.boxes}):
        tops[row] = top
        top += max(box.height(widths[box.key]) for box in flow.boxes if box.row == row) + GAP
    return tops, top - GAP + (22 if flow.lanes else MARGIN)


def _box(box: Box, place: tuple[float, float, float, float]) -> Iterator[str]:
    left, top, width, height = place
    kind = "box" if box.code else "file"
    yield (
        f'<rect class="{kind}" x="{left:g}" y="{top}" width="{width:g}" height="{height}" rx="6" '
        f'fill="{box.fill}"/>'
    )
    line = top + PAD
    for style, text in box.lines(width):
        line += LINE[style]
        yield f'<text class="{style}" x="{left + PAD:g}" y="{line - 5:g}">{escape(text)}</text>'


def _arrow(
    source: tuple[float, float, float, float], target: tuple[float, float, float, float]
) -> str:
    """Draw an arrow: sideways inside a row, otherwise down, with a bend between two columns."""
    x, y, width, height = source
    x2, y2, width2, height2 = target
    begin = y + height
    low, high = max(x, x2), min(x + width, x2 + width2)
    if y == y2:
        start, end = (x + width, x2) if x2 > x else (x, x2 + width2)
        path = f"M{start:g} {y + min(height, height2) / 2:g} H{end:g}"
    elif high > low:  # one is above the other: straight down
        path = f"M{(low + high) / 2:g} {begin:g} V{y2:g}"
    else:
        bend = y2 - GAP / 2
        path = f"M{x + width / 2:g} {begin:g} V{bend:g} H{x2 + width2 / 2:g} V{y2:g}"
    return f'<path class="arrow" d="{path}"/>'


def _downwards(*keys: str) -> Iterator[tuple[str, str]]:
    return pairwise(keys)


FORM = Flow(
    "flow-form",
    "fedegoists form: from two graphs to coalitions with a certificate",
    (
        Box(
            "files",
            0,
            0,
            "benefit.csv, competition.csv",
            note="source,target,weight   ·   a,b",
        ),
        Box(
            "read",
            0,
            1,
            "1  Read both graphs and check them",
            (("cli coalitions", "form_command"), ("graph files", "read_graphs")),
            span=2,
        ),
        Box(
            "form",
            1,
            0,
            "2  Check the settings and choose the formation method",
            (("forming", "form"),),
            "cliques: step 3 without merges   ·   published: step 3   ·   stable: step 4   ·   "
            "best: steps 3 and 4 as starts, then 5",
            span=3,
        ),
        Box(
            "published",
            2,
            0,
            "3  Algorithm 1 of the paper",
            (
                ("cliques", "clique_cover"),
                ("algorithm 1", "baseline_coalitions"),
                ("algorithm 1", "merge_as_published"),
            ),
            "lines 1 to 6: cliques, components\nlines 7 to 11: merges",
        ),
        Box(
            "stable",
            2,
            1,
            "4  Merge until stable",
            (("contraction", "Contraction"), ("merging", "stabilise")),
            "Zb and Zc of Definition 2 as bitsets;\nsteps are counted",
        ),
        Box(
            "best",
            2,
            2,
            "5  Highest welfare",
            (
                ("best", "best_partition"),
                ("reduction", "components"),
                ("enumeration", "Enumeration"),
                ("generation", "ColumnGeneration"),
            ),
            "starts: the results of steps 3 and 4;\nsmall components by enumeration,\n"
            "others by column generation",
        ),
        Box(
            "formation",
            3,
            0,
            "6  Check for mergers once more; derive welfare, upper bound and trace",
            (("merging", "stabilise"), ("forming", "formation_of")),
            "Result: Formation",
            span=3,
        ),
        Box(
            "proof",
            4,
            0,
            "7  Certificate: derive every claim again, with code that the search does not use",
            (("certificate", "Certificate.of"), ("principles", "verify")),
            "Principle 1 (Equation 1), Principle 2, merge-stability (Equation 2)",
            span=3,
        ),
        Box(
            "write",
            5,
            0,
            "8  Show and write",
            (("cli output", "show_formation"),),
        ),
        Box(
            "out",
            5,
            1,
            "certificate.json, coalitions.csv, usage.csv, coalitions.png, coalitions.svg",
            note="readable by their owner only",
            span=2,
        ),
    ),
    (
        ("files", "read"),
        ("read", "form"),
        ("form", "published"),
        ("form", "stable"),
        ("form", "best"),
        ("published", "formation"),
        ("stable", "formation"),
        ("best", "formation"),
        ("formation", "proof"),
        ("proof", "write"),
        ("write", "out"),
    ),
    columns=3,
)

RUN = Flow(
    "flow-run",
    "fedegoists run: from consortium.toml to models and a report",
    (
        Box("file", 0, 0, "consortium.toml", note="and changes with --set"),
        Box(
            "settings",
            0,
            1,
            "1  Read and validate the settings",
            (("cli consortium", "run_command"), ("settings", "read_settings")),
        ),
        Box(
            "engine",
            1,
            0,
            "2  Connect the silos: the engine",
            (
                ("engine", "EngineKind.over_silos"),
                ("simulation", "SimulatedEngine"),
                ("deployed", "FlareEngine"),
            ),
            "simulation: data sets are loaded here\nflare: silos describe their data",
        ),
        Box(
            "run",
            1,
            1,
            "3  Go through the stages; time and log each",
            (("pipeline", "Consortium.run"),),
            "data → benefit → formation → training → report\n(run.json says which stage runs)",
        ),
        Box(
            "benefit",
            2,
            1,
            "4  Stage benefit: estimate who benefits whom",
            (
                ("pipeline", "Consortium.learn_benefit"),
                ("learn", "learn"),
                ("estimate", "BenefitEstimate.graph"),
            ),
            "calls silos: Train, Gradient, Evaluate",
        ),
        Box(
            "cache",
            2,
            0,
            "Stage cache: reuse results with unchanged inputs",
            (("stages", "StageStore"),),
            "runs/.stages, by the hash of all inputs;\nhere are checkpoints, too",
        ),
        Box(
            "form",
            3,
            1,
            "5  Stage formation: decide the coalitions",
            (("pipeline", "Consortium.form"), ("forming", "form")),
            "see the flow of form",
        ),
        Box("decision", 3, 0, "benefit.csv, weights.csv, certificate.json"),
        Box(
            "train",
            4,
            1,
            "6  Stage training: each method in the coalitions",
            (("pipeline", "Consortium.train"), ("training", "train_methods")),
            "all repetitions at once",
        ),
        Box(
            "rounds",
            4,
            0,
            "Rounds, evaluation, choice of the step, checkpoint",
            (("run", "run"), ("method", "Method.round"), ("seam", "Federation.call")),
            "see the flow of one deployed round",
        ),
        Box(
            "report",
            5,
            1,
            "7  Stage report: gains, models, pages",
            (
                ("gains", "gains_over_local"),
                ("models", "deliver_models"),
                ("models", "write_models"),
                ("report", "write_report"),
            ),
        ),
        Box(
            "out",
            5,
            0,
            "report.html, members/, models/",
            note="metrics.csv, summary.csv, gains.csv;\ndeployed silos get their models",
        ),
    ),
    (
        ("file", "settings"),
        ("settings", "run"),
        ("engine", "run"),
        *_downwards("run", "benefit", "form", "train", "report"),
        ("cache", "benefit"),
        ("form", "decision"),
        ("train", "rounds"),
        ("report", "out"),
    ),
    columns=2,
)

ROUND = Flow(
    "flow-round",
    "One deployed round of FedAvg: a request to each silo, and the replies",
    (
        Box(
            "round",
            0,
            0,
            "1  One round of the method",
            (("run", "run"), ("fedavg", "FedAvg.round"), ("silo_training", "train_silos")),
        ),
        Box(
            "call",
            1,
            0,
            "2  A request for each participant",
            (("flare", "FlareFederation.call"),),
            "call({north: Train(parameters=…,\nsettings=…), south: Train(…), …})",
        ),
        Box(
            "pack",
            2,
            0,
            "3  Encode",
            (("messages", "Call"), ("wire", "pack")),
            "tensors: safetensors; the rest: JSON",
        ),
        Box(
            "ask",
            3,
            0,
            "4  Send, and wait for replies",
            (("connection", "RelayConnection.ask"),),
            "at most deploy.deadline seconds",
        ),
        Box(
            "carry",
            3,
            1,
            "5  Pass on, one thread a silo",
            (("relay", "Relay.carry"),),
            "local socket → FLARE → TLS",
        ),
        Box(
            "receive",
            3,
            2,
            "6  Receive and decode",
            (("executor", "SiloClient.ask"), ("service", "SiloService.answer")),
        ),
        Box(
            "admit",
            4,
            2,
            "7  Check against silo.toml",
            (("limits", "SiloGuard.admit"),),
            "operations, models, samples,\nrounds and evaluations a day",
        ),
        Box(
            "train",
            5,
            2,
            "8  Train on the silo's own data",
            (("simulated", "SimulatedFederation.call"), ("operations", "carried_out")),
            "with its personal parameters",
        ),
        Box(
            "leave",
            6,
            2,
            "9  Clip, add noise, keep",
            (("limits", "SiloGuard.leaving"), ("checkpoints", "SiloCheckpoints.save")),
            "personal parameters stay here",
        ),
        Box(
            "reply",
            7,
            2,
            "10  Encode the reply, log it",
            (("messages", "Answers"), ("wire", "pack")),
            "Trained, or a refusal",
        ),
        Box(
            "back",
            7,
            1,
            "11  Pass back",
            (("relay", "Relay.carry"),),
            "a silo that fails or is late:\nits failure instead",
        ),
        Box(
            "accept",
            7,
            0,
            "12  Check each reply",
            (("seam", "accepted"),),
            "shape, finite numbers, size;\nTrained, or Failure with a reason",
        ),
        Box(
            "mix",
            8,
            0,
            "13  Average inside coalitions",
            (("method", "mixing_matrix"), ("method", "State.after")),
            "failed silos keep their model",
        ),
        Box(
            "checkpoint",
            9,
            0,
            "14  Evaluate, choose, checkpoint",
            (("run", "run"),),
            "more calls: Evaluate on validation\nand test data; Keep the personal\n"
            "parameters of the chosen step",
        ),
    ),
    (
        *_downwards("round", "call", "pack", "ask", "carry", "receive"),
        *_downwards("receive", "admit", "train", "leave", "reply", "back", "accept", "mix"),
        ("mix", "checkpoint"),
    ),
    columns=3,
    lanes=("run (coordinator's machine)", "FLARE server (same machine)", "silo (its organisation)"),
)

WHAT_IF = Flow(
    "flow-what-if",
    "One what-if: from a decision and a change to the difference",
    (
        Box(
            "cli",
            0,
            0,
            "1  fedegoists what-if CERTIFICATE --add A,B",
            (("cli coalitions", "what_if_command"), ("certificate", "Certificate.formation")),
            "the decision is read from its certificate",
        ),
        Box(
            "web",
            0,
            1,
            "1  The manager draws a line in the picture",
            (("manager api", "what_if"), ("decisions", "quick_what_if")),
            "POST …/what-if; the decision is kept in memory;\nalways by method stable",
        ),
        Box(
            "change",
            1,
            0,
            "2  Apply the change to both graphs",
            (("what-if", "what_if"),),
            "competition that arises or ends, newcomers, participants that leave",
            span=2,
        ),
        Box(
            "repair",
            2,
            0,
            "3  Separate new competitors and members left without giver or taker",
            (("rearranging", "repaired"),),
            "the rest of each coalition stays together: the start of the search",
            span=2,
        ),
        Box(
            "stable",
            3,
            0,
            "4a  Method stable: merge until stable",
            (("search", "search_stable"), ("merging", "stabilise")),
            "from the old coalitions, and from all alone",
        ),
        Box(
            "best",
            3,
            1,
            "4b  Method best: search for the highest welfare",
            (("search", "search_best"), ("best", "best_partition")),
            "among equally good ones, few moves from the old",
        ),
        Box(
            "compare",
            4,
            0,
            "5  Take the highest welfare, then the fewest moves; compare before and after",
            (("rearranging", "moved_between"), ("what-if", "WhatIf")),
            "participants that move, change of each utility, change of the welfare",
            span=2,
        ),
    ),
    (
        ("cli", "change"),
        ("web", "change"),
        ("change", "repair"),
        ("repair", "stable"),
        ("repair", "best"),
        ("stable", "compare"),
        ("best", "compare"),
    ),
    columns=2,
)

FLOWS = (FORM, RUN, ROUND, WHAT_IF)


def references() -> list[tuple[str, str]]:
    """Return every module and function that a drawing names."""
    return [
        (f"fedegoists.{MODULES[module]}", name)
        for flow in FLOWS
        for box in flow.boxes
        for module, name in box.code
    ]


if __name__ == "__main__":
    for drawn in FLOWS:
        Path(__file__).with_name(f"{drawn.name}.svg").write_text(svg(drawn), encoding="utf-8")
