"""Export of a silo's whole models, with the personal parameters that never left it."""

from pathlib import Path

from fedegoists.consortium.export import export_file
from fedegoists.errors import FileError
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.learning.model_files import MODELS_FOLDER


def export_silo_model(
    kit: Path, run: str | None = None, out: Path | None = None, *, onnx: bool = False
) -> list[Path]:
    """Export a silo's model, as `fedegoists.consortium.export.export` does.

    Parameters
    ----------
    kit : Path
        The silo's kit.
    run : str, optional
        The run that delivered it; the last one by default.
    out : Path, optional
        Where to write; by default ``export/RUN`` in the kit.

    Raises
    ------
    FileError
        If it is not a silo's kit, or no such run delivered a model.
    """
    if not (kit / SILO_FILE).is_file():
        raise FileError(f"{kit}: not the kit of a silo, which has a {SILO_FILE}")
    models = kit / MODELS_FOLDER
    known = sorted(
        models.glob("*.safetensors"), key=lambda file: (file.stat().st_mtime_ns, file.name)
    )
    if not known:
        raise FileError(f"{models}: no run has delivered a model yet; each does at its end")
    chosen = [file for file in known if run in (None, file.stem)]
    if not chosen:
        names = ", ".join(file.stem for file in known)
        raise FileError(f"{models}: no model of the run {run!r}; there are {names}")
    source = chosen[-1]
    return export_file(source, source.stem, out or kit / "export" / source.stem, onnx=onnx)
