"""The commands about coalitions: form, verify, audit, explain, what-if, sensitivity, draw."""

import csv
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedegoists.cli.live_progress import QuietOption
from fedegoists.cli.output import (
    JsonOption,
    errors,
    line,
    print_json,
    screen,
    show_certificate_check,
    show_core,
    show_explanations,
    show_formation,
    show_sensitivity,
    show_verification,
    show_what_if,
    working,
)
from fedegoists.cli.time_limit import ends_at_limit
from fedegoists.coalitions import (
    Certificate,
    CertificateCheck,
    ChangedWeight,
    CheckedClaim,
    Formation,
    FormationMethod,
    Newcomer,
    Objective,
    Verification,
    audit_core,
    explain,
    explain_alone,
    form,
    sensitivity,
    verify,
    what_if,
)
from fedegoists.coalitions.coalition_files import coalitions_csv, read_coalitions, usage_csv
from fedegoists.coalitions.core_stability import BLOCKING_BUDGET
from fedegoists.coalitions.drawing import render
from fedegoists.coalitions.formation_options import DEFAULT_SCENARIOS, Risk
from fedegoists.coalitions.forming import check_values_options
from fedegoists.coalitions.principles import CHECK_LIMIT
from fedegoists.coalitions.proof import check as stand_alone_checker
from fedegoists.coalitions.sensitivity import DEFAULT_LIMIT
from fedegoists.errors import (
    CertificateError,
    MissingDependencyError,
    SettingsError,
    first_problem,
    shown,
)
from fedegoists.files import json_value, read_text, write_bytes
from fedegoists.folder_swap import check_replaceable, write_folder
from fedegoists.graphs import BenefitGraph, CompetitionGraph, read_graphs, read_values
from fedegoists.graphs.coalition_values import DEFAULT_CONFIDENCE, Benefits
from fedegoists.graphs.graph_files import read_uncertain
from fedegoists.graphs.uncertain_benefits import DEFAULT_SAFETY, has_errors
from fedegoists.plotting import format_of

if TYPE_CHECKING:
    from fedegoists.commitments import MemberCertificate, Opening

CertificateArgument = Annotated[
    Path, typer.Argument(metavar="CERTIFICATE", help="A certificate.json that `form` wrote.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write certificate.json, coalitions.csv, usage.csv and pictures to this folder.",
    ),
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace earlier results in DIR.")]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="SECONDS", help="Time for method best (default: 1)."),
]
WholeTimeOption = Annotated[
    float,
    typer.Option(
        "--time-limit", metavar="SECONDS", min=0.01, help="Time for the command (default: 10)."
    ),
]
FewestMembersOption = Annotated[
    int,
    typer.Option(
        "--fewest-members",
        min=1,
        metavar="K",
        help="For best and stable: a coalition is one participant alone or has at least K members.",
    ),
]
AgreedMembersOption = Annotated[
    int | None,
    typer.Option(
        "--fewest-members",
        min=1,
        metavar="K",
        help="The fewest members that were agreed on; a certificate must state the same.",
    ),
]
ParticipantsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="One name per line; any other name is then an error."),
]

ValuesOption = Annotated[
    Path | None,
    typer.Option(
        "--values",
        metavar="FILE",
        help="Coalition values in place of the benefit graph: JSON, or CSV with "
        "participant,samples,slope,slope_error,power.",
    ),
]
RatesOption = Annotated[
    Path | None,
    typer.Option(
        "--rates",
        metavar="FILE",
        help="With a CSV file of --values: CSV with source,target,rate,rate_error.",
    ),
]
UnitOption = Annotated[
    str, typer.Option("--unit", metavar="TEXT", help="With a CSV file of --values: the metric.")
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        metavar="P",
        help="With --values: the least probability of gaining of each member (default: "
        f"{DEFAULT_CONFIDENCE:g}). With errors of benefits: the least probability that nobody "
        f"rides free in a coalition (default: {DEFAULT_SAFETY:g}).",
    ),
]

RiskOption = Annotated[
    Risk | None,
    typer.Option(
        "--risk",
        help="With errors of benefits: the highest expected benefit (the default), the highest in "
        "the worst tenth of scenarios, or ignore the errors.",
    ),
]
ScenariosOption = Annotated[
    int,
    typer.Option(
        "--scenarios", metavar="N", min=10, help="With errors of benefits: scenarios to draw."
    ),
]

Graphs = tuple[Benefits, CompetitionGraph]

FORMATION_FILES = (
    "certificate.json",
    "check.py",
    "coalitions.csv",
    "usage.csv",
    "coalitions.png",
    "coalitions.svg",
)
WRITTEN = "Written to {out}. Re-check it: fedegoists verify {certificate}"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("form")(form_command)
    app.command("verify")(verify_command)
    app.command("audit")(audit_command)
    app.command("explain")(explain_command)
    app.command("what-if")(what_if_command)
    app.command("sensitivity")(sensitivity_command)
    app.command("draw")(draw_command)


def form_command(
    benefit: Annotated[
        Path,
        typer.Argument(
            metavar="BENEFIT",
            help="CSV with source,target,weight and maybe error; or JSON. Left out with --values.",
        ),
    ],
    competition: Annotated[
        Path | None, typer.Argument(metavar="COMPETITION", help="CSV with a,b; or JSON.")
    ] = None,
    values: ValuesOption = None,
    rates: RatesOption = None,
    unit: UnitOption = "",
    confidence: ConfidenceOption = None,
    risk: RiskOption = None,
    scenarios: ScenariosOption = DEFAULT_SCENARIOS,
    participants: ParticipantsOption = None,
    method: Annotated[
        FormationMethod,
        typer.Option(help="The formation method; best looks for the highest welfare."),
    ] = "best",
    objective: Annotated[
        Objective,
        typer.Option(
            help="For best: the highest total benefit (welfare), the fairest, or the fewest alone."
        ),
    ] = "welfare",
    fewest_members: FewestMembersOption = 1,
    time_limit: TimeLimitOption = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 0,
    cover: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For cliques and published: CSV with participant,coalition to start from.",
        ),
    ] = None,
    out: OutOption = None,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
    as_json: JsonOption = False,
) -> None:
    """Decide who trains with whom, from two files. Ctrl-C ends the search with the best so far."""
    if out is not None:
        check_replaceable(out, FORMATION_FILES, replace=replace)
    warnings: list[str] = []
    graphs = _read_benefits(benefit, competition, participants, values, rates, unit, warnings)
    with working("Forming coalitions …") as progress:
        formation = form(
            *graphs,
            method,
            seed=seed,
            time_limit=time_limit,
            cover=None if cover is None else read_coalitions(cover),
            objective=objective,
            fewest_members=fewest_members,
            confidence=confidence,
            risk=risk,
            scenarios=scenarios,
            progress=progress,
        )
    formation = dataclasses.replace(formation, notes=(*formation.notes, *warnings))
    if out is not None:
        write_formation(formation, out, replace=replace)
    if as_json:
        print_json(formation.to_dict())
    else:
        show_formation(formation)
        if out is None:
            line("Add --out DIR to keep this with a certificate and a picture.", "dim")
        else:
            line(WRITTEN.format(out=out, certificate=out / "certificate.json"))


def _read_benefits(
    first: Path,
    second: Path | None,
    participants: Path | None,
    values: Path | None,
    rates: Path | None,
    unit: str,
    warnings: list[str] | None = None,
) -> Graphs:
    """Read both graphs; or coalition values, and the competition graph as the only argument.

    Names that occur only in the competition file are told, and added to the warnings.
    """

    def tell(message: str) -> None:
        _warn(message)
        if warnings is not None:
            warnings.append(message)

    if values is None:
        if second is None:
            raise SettingsError(
                "expected two files, BENEFIT and COMPETITION; or --values FILE and COMPETITION"
            )
        if rates is not None or unit:
            raise SettingsError("--rates and --unit go with --values")
        if str(first) == str(second) == "-":
            raise SettingsError("the standard input is one file; give the other graph by its name")
        if has_errors(first):
            return read_uncertain(first, second, participants, tell=tell)
        return read_graphs(first, second, participants, tell=tell)
    if second is not None:
        raise SettingsError(
            f"--values takes the place of BENEFIT; give COMPETITION only, and leave out {first}"
        )
    if participants is not None:
        raise SettingsError("--values names the participants itself; leave out --participants")
    found = read_values(values, rates, unit=unit)
    return found, _read_competition(first, found.participants)


def _read_competition(path: Path, participants: tuple[str, ...]) -> CompetitionGraph:
    if path.suffix.casefold() == ".json":
        return CompetitionGraph.from_json(read_text(path), str(path))
    return CompetitionGraph.from_csv(path, participants)


def verify_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A certificate of any kind, an opening, or a CSV with participant,coalition.",
        ),
    ],
    benefit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The benefit graph: to compare with a certificate, or for a CSV."
        ),
    ] = None,
    competition: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The competition graph, likewise.")
    ] = None,
    values: ValuesOption = None,
    rates: RatesOption = None,
    unit: UnitOption = "",
    confidence: ConfidenceOption = None,
    participants: ParticipantsOption = None,
    budget: Annotated[
        int, typer.Option(min=0, help="Sets of coalitions to look at for mergers; 0 means all.")
    ] = 100_000,
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.01, help="Time for the whole check."),
    ] = CHECK_LIMIT,
    commitment: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="The published commitment, if a part of it is opened."),
    ] = None,
    fewest_members: AgreedMembersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Derive all claims of a certificate again, or check coalitions of any origin.

    Exits with 1 if anything does not hold or is not proven.
    """
    if participants is not None and benefit is None:
        raise SettingsError("--participants goes with --benefit and --competition")
    if (benefit is None and values is None) != (competition is None):
        raise SettingsError(
            "--benefit and --competition belong together, or --values and --competition; give both "
            "or neither"
        )
    if benefit is not None and values is not None:
        raise SettingsError("--values takes the place of --benefit; give one of them")
    deadline = time.perf_counter() + time_limit
    check: CertificateCheck | Verification
    with ends_at_limit(time_limit, as_json=as_json):
        graphs = None
        if competition is not None:
            first, second = (competition, None) if benefit is None else (benefit, competition)
            graphs = _read_benefits(first, second, participants, values, rates, unit)
        if file.suffix.casefold() == ".csv":
            digests: dict[str, str] = {}
            check = _check_coalitions(
                file, graphs, budget or None, fewest_members or 1, confidence, deadline
            )
        elif (disclosed := _disclosed(file)) is not None:
            if graphs is not None:
                raise SettingsError(f"{file} is not checked against graphs; leave them out")
            with working("Checking what is opened …"):
                check = disclosed.check(commitment, fewest_members=fewest_members)
            digests = {"commitment": disclosed.commitment}
        else:
            if commitment is not None:
                raise SettingsError("--commitment goes with a member's certificate or an opening")
            check, digests = _check_certificate(
                file, graphs, budget or None, fewest_members, deadline
            )
    if isinstance(check, CertificateCheck):
        _show_check(check, as_json, digests)
    else:
        _show_verification(check, as_json)
    raise typer.Exit(0 if check.ok else 1)


def _check_certificate(
    file: Path,
    graphs: Graphs | None,
    budget: int | None,
    fewest_members: int | None,
    deadline: float,
) -> tuple[CertificateCheck, dict[str, str]]:
    """Check a certificate, against graphs if given; return the digests of its content, too."""
    certificate = Certificate.load(file)
    with working("Checking every claim again …"):
        check = certificate.check(
            budget=budget,
            time_limit=max(deadline - time.perf_counter(), 0.01),
            fewest_members=fewest_members,
        )
    own, rivals = certificate.benefits, certificate.competition
    if graphs is not None:
        same = _compared(graphs[0], own), _compared(graphs[1], rivals)
        check = CertificateCheck((*check.claims, *same))
    name = "benefit_sha256" if certificate.values is None else "values_sha256"
    return check, {name: own.sha256, "competition_sha256": rivals.sha256}


def _check_coalitions(
    file: Path,
    graphs: Graphs | None,
    budget: int | None,
    fewest_members: int,
    confidence: float | None,
    deadline: float,
) -> Verification:
    """Check the coalitions of a CSV file against graphs."""
    if graphs is None:
        raise SettingsError(
            "coalitions from a CSV file need --benefit and --competition to be checked against"
        )
    demanded = check_values_options(graphs[0], "best", "welfare", confidence)
    with working("Checking …"):
        return verify(
            *graphs,
            read_coalitions(file),
            budget=budget,
            fewest_members=fewest_members,
            confidence=demanded or DEFAULT_CONFIDENCE,
            deadline=deadline,
        )


def _show_verification(verification: Verification, as_json: bool) -> None:
    """Show what was found about coalitions of a CSV file."""
    if as_json:
        print_json(
            {
                "ok": verification.ok,
                "free_riders": [str(w) for w in verification.free_riders],
                "conflicts": [str(w) for w in verification.conflicts],
                "too_small": [str(w) for w in verification.too_small],
                **(
                    {}
                    if verification.confidence is None
                    else {"unlikely": [str(w) for w in verification.unlikely]}
                ),
                "mergers": [str(w) for w in verification.mergers],
                "stable": verification.stable,
            }
        )
    else:
        show_verification(verification)


def _disclosed(file: Path) -> "MemberCertificate | Opening | None":
    """Read a member's certificate or an auditor's opening; None if the file is neither."""
    from fedegoists.commitments import read_disclosure  # loads pydantic

    return read_disclosure(file)


def _compared(mine: Benefits | CompetitionGraph, own: Benefits | CompetitionGraph) -> CheckedClaim:
    """Compare a graph or values of the user with those of a certificate."""
    found = f"{own.sha256[:16]} in the certificate"
    name = "coalition values"
    if isinstance(mine, BenefitGraph | CompetitionGraph):
        name = f"{mine.KIND} graph"
    return CheckedClaim(name, mine.sha256[:16], found, mine.sha256 == own.sha256)


def _show_check(check: CertificateCheck, as_json: bool, digests: dict[str, str]) -> None:
    """Show the checked claims and the digests of what was checked."""
    if as_json:
        print_json({"ok": check.ok, **digests, "claims": [vars(claim) for claim in check.claims]})
    else:
        show_certificate_check(check)
        labels = {
            "benefit_sha256": "benefit graph",
            "values_sha256": "coalition values",
            "competition_sha256": "competition graph",
        }
        width = max(len(labels.get(name, name)) for name in digests)
        for name, digest in digests.items():
            label = labels.get(name, name)
            screen.print(f"{label:{width}} {digest}", soft_wrap=True)


def audit_command(
    certificate: CertificateArgument,
    budget: Annotated[
        int, typer.Option(min=0, help="Sets of participants to look at; 0 means all.")
    ] = BLOCKING_BUDGET,
    time_limit: WholeTimeOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Look for a group of participants that would all gain by leaving together.

    Exits with 1 if there is one, or if that is not proven.
    """
    deadline = time.perf_counter() + time_limit
    with (
        ends_at_limit(time_limit, as_json=as_json),
        working("Looking for a blocking group …"),
    ):
        formation = certified_formation(certificate)
        if formation.values is not None:
            raise SettingsError(
                f"{certificate}: the audit works on benefit graphs, and this decision is on "
                "coalition values; `fedegoists explain` tells what other coalitions would bring"
            )
        audit = audit_core(
            formation.benefit,
            formation.competition,
            formation.coalitions,
            budget=budget or None,
            fewest_members=formation.fewest_members,
            deadline=deadline,
        )
    if as_json:
        found = audit.blocking
        members, gains = (None, None) if found is None else (found.members, found.gains)
        print_json({"core_stable": audit.core_stable, "blocking": members, "gains": gains})
    else:
        show_core(audit)
    raise typer.Exit(0 if audit.core_stable else 1)


def explain_command(
    certificate: CertificateArgument,
    a: Annotated[str, typer.Argument(metavar="A", help="A participant.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another one; by default all others.")
    ] = None,
    time_limit: WholeTimeOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Explain why two participants are together or apart. Manager only: it names competitors."""
    deadline = time.perf_counter() + time_limit
    explanations = []
    with ends_at_limit(time_limit, as_json=as_json):
        formation = certified_formation(certificate)
        others = [b] if b is not None else [name for name in formation.participants if name != a]
        formation.coalition_of(a)
        if b is None and formation.values is not None and len(formation.coalition_of(a)) == 1:
            explanations.append(explain_alone(formation, a))
        for number, other in enumerate(others):
            if number and time.perf_counter() > deadline:
                errors.print(
                    f"the time limit of {time_limit:g} s ended the explanations after {number} of "
                    f"{len(others)} participants; name one, or give a longer --time-limit"
                )
                break
            explanations.append(explain(formation, a, other))
    if as_json:
        print_json([dataclasses.asdict(explanation) for explanation in explanations])
    elif explanations:
        show_explanations(explanations)
    else:
        line(f"{a} is the only participant.")


def what_if_command(
    certificate: CertificateArgument,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Two that start to compete. May be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Two that no longer compete. May be repeated."),
    ] = None,
    joins: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help='JSON for a newcomer: {"name": "New", "gives": {"A": 0.3}, '
            '"receives": {"B": 0.2}, "competes": ["C"]}. May be repeated.',
        ),
    ] = None,
    leaves: Annotated[
        list[str] | None,
        typer.Option(metavar="A", help="A participant that leaves. May be repeated."),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="SOURCE,TARGET,WEIGHT",
            help="Another benefit of SOURCE to TARGET; ,ERROR may follow. May be repeated.",
        ),
    ] = None,
    fewest_members: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Another smallest number of members of a coalition."),
    ] = None,
    confidence: ConfidenceOption = None,
    time_limit: TimeLimitOption = None,
    out: OutOption = None,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
    as_json: JsonOption = False,
) -> None:
    """Form coalitions again after a change, moving as few participants as possible."""
    if out is not None:
        check_replaceable(out, FORMATION_FILES, replace=replace)
    formation = certified_formation(certificate)
    with working("Forming coalitions again …"):
        result = what_if(
            formation,
            add=[_pair(text, "--add") for text in add or ()],
            remove=[_pair(text, "--remove") for text in remove or ()],
            joins=[_newcomer(path) for path in joins or ()],
            leaves=leaves or (),
            fewest_members=fewest_members,
            confidence=confidence,
            time_limit=time_limit,
            weights=[_changed_weight(text) for text in weights or ()],
        )
    if out is not None:
        write_formation(result.after, out, replace=replace)
    if as_json:
        print_json(
            {
                "weights": [vars(one) for one in result.weights],
                "moved": result.moved,
                "joined": result.joined,
                "left": result.left,
                "welfare_change": result.welfare_change,
                "utility_changes": dict(result.utility_changes),
                "after": result.after.to_dict(),
            }
        )
    else:
        show_what_if(result)
        if out is not None:
            line(WRITTEN.format(out=out, certificate=out / "certificate.json"))


def sensitivity_command(
    certificate: CertificateArgument,
    time_limit: WholeTimeOption = DEFAULT_LIMIT,
    most: Annotated[int, typer.Option("--most", min=1, help="Changes to show in each table.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show which weights or reports, changed by how much, would change whose coalition.

    Also what a competitor that nobody named would reach. Manager only: it names competitors.
    """
    formation = certified_formation(certificate)
    with working("Looking for the smallest changes …"):
        found = sensitivity(formation, time_limit=time_limit)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        show_sensitivity(found, most)


def draw_command(
    certificate: CertificateArgument,
    picture: Annotated[
        Path, typer.Argument(metavar="PICTURE", help="The file to write: .png, .svg or .pdf.")
    ],
    title: Annotated[str | None, typer.Option(help="Another title.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace PICTURE if it exists.")
    ] = False,
) -> None:
    """Draw the coalitions over benefit and competition."""
    check_replaceable(picture.parent, [picture.name], replace=replace)
    content = render(certified_formation(certificate), format_of(picture), title=title)
    write_bytes(picture, content, private=True)  # it shows who competes
    line(f"Written to {picture}")


def write_formation(
    formation: Formation,
    out: Path,
    more: Mapping[str, bytes] | None = None,
    *,
    replace: bool = False,
) -> None:
    """Write the files of a formation, and more files, to a folder: all or none."""
    # Certificate and pictures name competitors, so only the manager may read them.
    contents = [
        formation.certificate.to_json().encode(),
        # For auditors that have Python but not this package: python check.py certificate.json.
        Path(stand_alone_checker.__file__).read_bytes(),
        coalitions_csv(formation),
        usage_csv(formation),
    ]
    try:
        contents += [render(formation, "png"), render(formation, "svg")]
    except MissingDependencyError as error:
        line(f"No picture: {error}", "yellow", whole=True)
    named = dict(zip(FORMATION_FILES, contents, strict=False))
    without = FORMATION_FILES[len(named) :]  # an earlier picture would show another decision
    write_folder(out, {**(more or {}), **named}, replace=replace, gone=without)


def _warn(message: str) -> None:
    """Print a warning about the graph files; names in it are never read as markup."""
    errors.print("[yellow]warning:[/] ", end="")
    text = f"{message} (with --participants such a name is an error)"
    errors.print(text, markup=False, highlight=False, soft_wrap=True)


def certified_formation(path: Path) -> Formation:
    """Return the formation of a certificate; one that was altered is an error."""
    certificate = _whole_certificate(path)
    checked = verify(
        certificate.benefits,
        certificate.competition,
        certificate.coalitions,
        budget=0,
        fewest_members=certificate.fewest_members,
        confidence=certificate.confidence or DEFAULT_CONFIDENCE,
    )
    wrong = [*certificate.changed, *map(str, checked.violations)]
    if wrong:
        raise CertificateError(f"{path}: not to be relied on: {wrong[0]}; see `fedegoists verify`")
    return certificate.formation()


def _whole_certificate(path: Path) -> Certificate:
    """Read a certificate; a member's certificate or an opening is an error that names it."""
    try:
        return Certificate.load(path)
    except CertificateError:
        disclosed = _disclosed(path)
        if disclosed is None:
            raise
        member = disclosed.FORMAT == "fedegoists member certificate"
        what = "a member's certificate" if member else "an auditor's opening"
        raise CertificateError(
            f"{path}: this is {what}, which `fedegoists verify` checks; here the manager's whole "
            "certificate is needed, the certificate.json that `fedegoists form` writes"
        ) from None


def _pair(text: str, option: str) -> tuple[str, str]:
    names = [name.strip() for name in next(csv.reader([text]), [])]
    if len(names) != 2:
        raise SettingsError(
            f"{option} {text!r}: expected two names with a comma between them; "
            "put a name that has a comma itself in double quotes"
        )
    return names[0], names[1]


def _changed_weight(text: str) -> ChangedWeight:
    cells = [cell.strip() for cell in next(csv.reader([text]), [])]
    try:
        source, target, weight, *error = cells
        (known,) = map(float, error or ["nan"])
        return ChangedWeight(source, target, float(weight), known if error else None)
    except ValueError:
        raise SettingsError(
            f"--weight {text!r}: expected two names and a number with commas between them, such as "
            "North,South,0.4, and maybe its standard error; decimals have a point; put a name that "
            "has a comma itself in double quotes"
        ) from None


def _newcomer(path: Path) -> Newcomer:
    from pydantic import BaseModel, ConfigDict, ValidationError

    class NewcomerFile(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        name: str
        gives: dict[str, float] = {}
        receives: dict[str, float] = {}
        competes: list[str] = []

    content = json_value(read_text(path), str(path))
    if not isinstance(content, dict):
        raise SettingsError(
            f"{path}: expected one newcomer in braces, got {shown(content)}; write it like "
            '{"name": "New", "gives": {"A": 0.3}, "receives": {"B": 0.2}, "competes": ["C"]}, '
            "one file for each"
        )
    try:
        return Newcomer(**NewcomerFile.model_validate(content).model_dump())
    except ValidationError as error:
        raise SettingsError(f"{path}: {first_problem(error)}") from None
