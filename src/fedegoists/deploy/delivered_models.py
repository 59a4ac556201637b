"""Export of a silo's whole models, with the personal parameters that never left it."""

from pathlib import Path

import torch

from fedegoists.consortium.evaluations import JudgedModel, judged_model, sample_scores_of
from fedegoists.consortium.export import export_file, read_model
from fedegoists.consortium.model_cards import CardFacts, card_text
from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.federation.flare.privacy_ledger import PrivacyLedger
from fedegoists.federation.flare.silo_secret import sealed_models
from fedegoists.federation.flare.silo_settings import SILO_FILE, load_silo, read_silo_settings
from fedegoists.federation.pool import pooled_silos
from fedegoists.learning.data import SiloedData, Split, SplitSizes
from fedegoists.learning.sample_scores import Numbers
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_model


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
        If it is not a silo's kit, or no such run delivered a model, or the model is damaged.
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
    check_model(sealed_models(kit), source)
    return export_file(
        source,
        source.stem,
        out or kit / "export" / source.stem,
        lambda card: card_text(card, _facts(kit, source)),
        onnx=onnx,
    )


def _facts(kit: Path, source: Path) -> CardFacts:
    """Return what the silo knows of a model, measured on its own test samples."""
    settings = read_silo_settings(kit / SILO_FILE)
    sizes: SplitSizes | None = None
    judged: JudgedModel | str
    try:
        data = load_silo(settings)
        sizes = data.sizes()[settings.participant]
        judged = _judged(source, data)
    except FedEgoistsError as error:
        judged = f"Not known: {error}."
    privacy = settings.privacy
    if privacy.epsilon is None:
        told = "No budget is set for what answers tell of single samples; training added no noise."
        if privacy.train_noise:
            told = "Training was differentially private, without a budget."
    else:
        told = f"Budget: ε = {privacy.epsilon:g} at δ = {privacy.delta:g} for every sample."
    try:
        spent = PrivacyLedger(kit / "state", privacy.epsilon, privacy.delta).accounts()
        told += " Spent over all runs of this silo so far: " + ", ".join(
            f"ε = {own.spent:.3g} of a {split} sample" for split, own in spent.items()
        )
        told += ". Personal parameters never left the silo and are not protected by noise."
    except FedEgoistsError as error:
        told += f" What has been spent is not known ({error})."
    return CardFacts(
        source.stem,
        "as the page of this organisation in the run's report says; a silo does not know it.",
        sizes,
        judged,
        None,
        f"Level `{privacy.level}`. {told}",
    )


def _judged(source: Path, data: SiloedData) -> JudgedModel:
    """Judge a model on the test samples of the only silo of some data."""
    model, card = read_model(source)
    (silo,) = pooled_silos({None: data}, torch.device("cpu")).values()

    def scores(split: Split) -> tuple[Numbers, Numbers]:
        with torch.no_grad():
            inputs, targets = silo.batch(silo.splits[split])
            outputs = model(*inputs)
            if card.task == "regression":  # so that errors are in the target's own units
                outputs, targets = silo.spread * outputs, silo.spread * targets
            return sample_scores_of(card.task, outputs, targets)

    test, validation = scores("test"), scores("validation")
    return judged_model(
        card.participant,
        card.delivered,
        card.task,
        test,
        validation,
        thresholds=(0.5,),
        groups=silo.groups_in("test"),
    )
