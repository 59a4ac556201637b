"""The tutorial notebook runs from its first cell to its last, in a folder of its own."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial-consortium.ipynb"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # committed without results
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [
        output.get("text") or str(output.get("data", {}))
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    ]
    text = "\n".join(shown)
    assert "proven optimal: True" in text
    assert "<svg" in text
    assert "Island.safetensors" in text
    assert "everybody together" in text
    assert (tmp_path / "my-registries" / "runs" / "friends" / "report.html").exists()
