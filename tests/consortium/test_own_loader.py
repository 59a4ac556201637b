"""A consortium whose data comes from its own data.py, from the file to the report."""

from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.export import export
from tests.docs.pages import HowTo

SETTINGS = """\
[data]
source = "data.py:load"

[competition]
pairs = []

[benefit]
estimator = "everybody"

[training]
methods = ["local", "fedavg"]
model = "lstm"
model_settings = {width = 4}
seeds = 1
steps = 3
"""


def test_the_pages_data_py_runs_to_a_report_and_an_export(tmp_path):
    (tmp_path / "data.py").write_text(HowTo("how-to-own-data").blocks("python")[0])
    (tmp_path / "consortium.toml").write_text(SETTINGS)
    run = Consortium(read_settings(tmp_path / "consortium.toml")).run()
    assert (run.folder / "report.html").is_file()
    files = export(run.folder, "North", tmp_path / "out")
    example = (tmp_path / "out" / "example.py").read_text()
    assert "torch.zeros(1, 24, 3), torch.zeros(1, 2)" in example
    assert len(files) == 4
