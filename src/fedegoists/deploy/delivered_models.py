"""A silo's whole models: what runs delivered, completed with the layers that never left."""

from pathlib import Path

from fedegoists.consortium.export import export_file
from fedegoists.errors import FileError
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.learning.model_files import MODELS_FOLDER

__all__ = ["export_silo_model"]


def export_silo_model(
    kit: Path, run: str | None = None, out: Path | None = None, *, onnx: bool = False
) -> list[Path]:
    """Write a silo's model for use elsewhere, as `fedegoists.consortium.export.export` does.

    Parameters
    ----------
    kit : Path
        The silo's kit.
    run : str, optional
        Which run gave it; the last one by default.
    out : Path, optional
        Where to write; by default the folder ``export`` of the kit, with one for the run.

    Raises
    ------
    FileError
        If it is not a silo's kit, or no such run has delivered a model.
    """
    if not (kit / SILO_FILE).is_file():
        raise FileError(f"{kit}: not the kit of a silo, which has a {SILO_FILE}")
    models = kit / MODELS_FOLDER
    known = sorted(
        models.glob("*.safetensors"), key=lambda file: (file.stat().st_mtime_ns, file.name)
    )
    if not known:
        raise FileError(
            f"{models}: no run has delivered a model yet; it does so when it is finished"
        )
    chosen = [file for file in known if run in (None, file.stem)]
    if not chosen:
        names = ", ".join(file.stem for file in known)
        raise FileError(f"{models}: no model of the run {run!r}; there are {names}")
    source = chosen[-1]
    folder = kit / "export" / source.stem if out is None else out
    return export_file(source, source.stem, folder, onnx=onnx)
