"""Starting a run from the models of an earlier one, without carrying anything to a competitor.

A model holds something of the data of everybody it was trained with: its *origins*. A run keeps
them, so that a later run can tell which of its models a coalition may start from.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.participant_models import ChosenModel
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import read_text
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_files import CARD_KEY, ModelCard
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_run_model

ORIGINS_FILE = "origins.json"

Groups = Sequence[Sequence[str]]


@dataclass(frozen=True)
class StartedMember:
    """How a participant starts: its parameters, their origins, and that in words.

    Attributes
    ----------
    parameters : Tensor, optional
        None where it starts afresh.
    """

    parameters: Tensor | None
    origins: frozenset[str]
    words: str


@dataclass(frozen=True)
class WarmStart:
    """The models of an earlier run.

    Attributes
    ----------
    run : str
        The run's name.
    models, cards, origins : mappings
        By participant: the parameters, their card, and whose data they hold something of.
    competitors : set of frozenset of str
        Pairs that competed at that time.
    """

    run: str
    models: Mapping[str, Mapping[str, Tensor]]
    cards: Mapping[str, ModelCard]
    origins: Mapping[str, frozenset[str]]
    competitors: frozenset[frozenset[str]]

    @classmethod
    def read(cls, run: Path) -> "WarmStart":
        """Read all models of a run's folder.

        Raises
        ------
        FileError
            If it is no run, is not finished, or a model is damaged.
        """
        try:
            decision = json.loads(read_text(run / "certificate.json"))
            groups: Groups = decision["coalitions"]
            pairs = decision["competition"]["pairs"]
        except (FileError, ValueError, KeyError, TypeError):
            raise FileError(
                f"{run}: not the folder of a finished run, which has a certificate.json"
            ) from None
        names = [name for group in groups for name in group]
        models, cards = {}, {}
        for name, file in file_names(names).items():
            path = run / MODELS_FOLDER / f"{file}.safetensors"
            if path.is_file():
                check_run_model(run, path.name)
                models[name], cards[name] = _read(path)
        if not models:
            raise FileError(f"{run}: it has no models; finish it first, or start without it")
        origins = _read_origins(run) or {
            name: frozenset([name] if cards[name].method == "local" else group)
            for group in groups
            for name in group
            if name in cards
        }
        competitors = frozenset(frozenset(pair) for pair in pairs)
        return cls(run.name, models, cards, origins, competitors)

    def check(self, data: DataDescription, model: str, options: Mapping[str, object]) -> None:
        """Refuse models of another network or of other columns, before anything is done.

        Raises
        ------
        SettingsError
            With the participant, and what its model is and should be.
        """
        known = [name for name in data.participants if name in self.cards]
        if not known:
            raise SettingsError(
                f"--from {self.run}: it has models of {', '.join(self.cards)} only, and none of "
                "them takes part in this run"
            )
        for name in known:
            card = self.cards[name]
            if card.kept:
                raise SettingsError(
                    f"--from {self.run}: only the silo has all of the model of {name}; start "
                    "without --from"
                )
            was, needed = _shape(card.model, card.options), _shape(model, options)
            if was != needed:
                raise SettingsError(
                    f"--from {self.run}: the model of {name} is {was}; this run trains {needed}. "
                    "Start without --from, or make the columns, the classes and training.model the "
                    "same"
                )
            for one, other in zip(card.inputs, data.preparation, strict=False):
                if one.columns != other.columns:
                    raise SettingsError(
                        f"--from {self.run}: the model of {name} takes the columns "
                        f"{', '.join(one.columns)}; this run has {', '.join(other.columns)}. Start "
                        "without --from, or give the same columns in the same order"
                    )

    def begin(
        self, coalitions: Groups, competitors: frozenset[frozenset[str]], schema: ParameterSchema
    ) -> dict[str, StartedMember]:
        """Return how every participant starts.

        A member of the earlier run starts from its own model, unless that holds something of a
        competitor of a member of its coalition. A newcomer starts from the mean of the models that
        the other members of its coalition start from.
        """
        apart = self.competitors | competitors
        begun: dict[str, StartedMember] = {}
        for group in coalitions:
            for name in group:
                if name in self.models:
                    begun[name] = self._own(name, group, apart, schema)
            warm = [
                (begun[name].parameters, begun[name].origins)
                for name in group
                if name in begun and begun[name].parameters is not None
            ]
            for name in group:
                if name in begun:
                    continue
                if not warm:
                    begun[name] = StartedMember(None, frozenset(), "afresh: it is new")
                    continue
                mean = torch.stack([one for one, _ in warm if one is not None]).mean(0)
                origins = frozenset[str]().union(*(own for _, own in warm))
                begun[name] = StartedMember(
                    mean, origins, "from the mean of its coalition's models: it is new"
                )
        return begun

    def _own(
        self,
        name: str,
        group: Sequence[str],
        apart: frozenset[frozenset[str]],
        schema: ParameterSchema,
    ) -> StartedMember:
        origins = self.origins.get(name, frozenset([name]))
        if any(frozenset((one, other)) in apart for one in origins for other in group):
            # The names would tell members who competes with whom; this is for the manager's log.
            return StartedMember(
                None,
                frozenset(),
                "afresh: its model holds something of a competitor of its coalition",
            )
        tensors = self.models[name]
        for key, shape in zip(schema.names, schema.shapes, strict=True):
            found = tuple(tensors[key].shape) if key in tensors else None
            if found != shape:
                raise SettingsError(
                    f"--from {self.run}: the parameter {key} of {name} has the shape {found}; this "
                    f"run's has {shape}. Start without --from"
                )
        gone = sorted(origins - set(group) - {name})
        held = f"; it holds something of the data of {', '.join(gone)}, too" if gone else ""
        return StartedMember(schema.flatten(dict(tensors)), origins, f"from its own model{held}")


def origins_of(
    models: Sequence[ChosenModel], coalitions: Groups, begun: Mapping[str, StartedMember]
) -> dict[str, list[str]]:
    """Return whose data each participant's chosen model holds something of."""
    found = {}
    for group in coalitions:
        before = frozenset[str]().union(*(begun[one].origins for one in group if one in begun))
        for name in group:
            # Training alone starts afresh, always.
            alone = any(m.card.participant == name and m.card.method == "local" for m in models)
            found[name] = [name] if alone else sorted(before | set(group))
    return found


def origins_json(origins: Mapping[str, Sequence[str]]) -> bytes:
    """Return the content of `ORIGINS_FILE`."""
    return (json.dumps(origins, indent=1) + "\n").encode()


def _read_origins(run: Path) -> dict[str, frozenset[str]] | None:
    path = run / ORIGINS_FILE
    if not path.exists():
        return None
    try:
        known = json.loads(read_text(path))
        return {str(name): frozenset(map(str, own)) for name, own in known.items()}
    except (ValueError, AttributeError, TypeError):
        raise FileError(f"{path}: damaged; start from another run") from None


def _read(path: Path) -> tuple[dict[str, Tensor], ModelCard]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            card = ModelCard.model_validate_json((file.metadata() or {})[CARD_KEY])
            return {key: file.get_tensor(key) for key in file.keys()}, card  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise FileError(f"{path}: not a model that a run of this version left ({error})") from None


def _shape(model: str, options: Mapping[str, object]) -> str:
    return f"{model} with {', '.join(f'{key} = {value}' for key, value in options.items())}"
