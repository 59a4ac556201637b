"""The files of the report: one page for the manager, and one for each participant."""

from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedegoists.coalitions.usage import usage_graph
from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.report.manager_page import manager_view
from fedegoists.consortium.report.member_page import member_view
from fedegoists.consortium.report.results_section import Results
from fedegoists.files import write_all

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun


def write_report(run: "ConsortiumRun") -> None:
    """Write ``report.html`` and a page for each participant to the run's folder.

    Only their owner can read them: the first names the competitors, and the others are confidential
    to one participant each. The same run gives the same bytes.
    """
    pages = Environment(
        loader=PackageLoader("fedegoists.consortium.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = Results.of(run)
    usage = usage_graph(run.formation)
    files = file_names(run.formation.participants)
    report = pages.get_template("report.html.j2").render(manager_view(run, results, usage, files))
    member = pages.get_template("member.html.j2")
    contents = [(run.folder / "report.html", report)]
    contents += [
        (
            run.folder / "members" / f"{file}.html",
            member.render(member_view(run, results, usage, participant, file)),
        )
        for participant, file in files.items()
    ]
    write_all([(path, text.encode()) for path, text in contents], private=True)
