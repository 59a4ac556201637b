"""The examples of the pages "How to add …" work as they are written."""

from jinja2 import ChoiceLoader, DictLoader, PackageLoader

from fedegoists import cli
from fedegoists.benefit import estimator_registry as estimators
from fedegoists.consortium.report import report_files
from fedegoists.learning import model_registry
from fedegoists.learning.datasets import dataset_registry
from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.consortium.conftest import banks  # noqa: F401 - a fixture
from tests.docs.pages import HowTo


def test_a_data_set(monkeypatch, tmp_path, run):  # noqa: F811
    page = HowTo("how-to-add-a-data-set")
    page.module(monkeypatch, tmp_path)
    (entry,) = page.entry("[", vars(dataset_registry), "]")
    monkeypatch.setitem(dataset_registry.DATASETS, entry.name, entry)
    assert page.run_tests() == 3
    assert all(field.description for field in entry.options_type().model_fields.values())
    assert entry.load(entry.options_type()(), data_dir=None, seed=0).task == entry.task
    assert "half-moons" in run("data", "list")[1]
    code, out, _ = run("data", "show", "moons", "--set", "samples=60")
    assert code == 0
    assert "North" in out


def test_a_model(monkeypatch, tmp_path):
    page = HowTo("how-to-add-a-model")
    page.module(monkeypatch, tmp_path)
    entries = page.entry("[", vars(model_registry), "]")
    monkeypatch.setitem(model_registry.MODELS, entries[0].name, entries[0])
    assert page.run_tests() == 2


def test_an_estimator(monkeypatch, tmp_path):
    page = HowTo("how-to-add-an-estimator")
    page.module(monkeypatch, tmp_path)
    for name, entry in page.entry("{", vars(estimators), "}").items():
        monkeypatch.setitem(estimators.ESTIMATOR_ENTRIES, name, entry)
    assert page.run_tests() == 1


def test_a_section_of_the_report(monkeypatch, banks, tmp_path):  # noqa: F811
    page = HowTo("how-to-add-a-report-section")
    module = page.module(monkeypatch, tmp_path)
    manager_view = report_files.manager_view

    def view(result, *others):
        more = page.entry("{", {**vars(module), "run": result}, "}")
        return manager_view(result, *others) | more

    package = PackageLoader("fedegoists.consortium.report")
    template = package.get_source(None, "report.html.j2")[0]
    before = '<section aria-labelledby="benefit">'
    assert template.count(before) == 1
    assert before in page.text
    (section,) = page.blocks("html")
    changed = DictLoader({"report.html.j2": template.replace(before, section + before)})
    monkeypatch.setattr(report_files, "manager_view", view)
    monkeypatch.setattr(report_files, "PackageLoader", lambda _: ChoiceLoader([changed, package]))
    assert page.run_tests(banks=banks, tmp_path=tmp_path) == 1


def test_a_command(monkeypatch, tmp_path, run):  # noqa: F811
    page = HowTo("how-to-add-a-command")
    module = page.module(monkeypatch, tmp_path)
    monkeypatch.setattr(cli.app, "registered_commands", [*cli.app.registered_commands])
    assert module.__name__ == "fedegoists.cli.graph_commands"
    page.entry("", {"graph_commands": module, "app": cli.app}, "")
    assert page.run_tests(run=run) == 2
