"""The base of methods in which each silo has an output layer of its own above a shared body."""

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.seam import Federation
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods.method import Coalitions, MethodSettings, RoundReport, State, in_company
from fedegoists.methods.silo_training import coalition_sums, mix_silos, train_silos


@dataclass(frozen=True)
class PersonalHead(MethodSettings):
    """Heads are the personal parameters, by default the layer ``output.``; they never leave a silo.

    A participant that is alone trains its whole model, as Local does.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.personal:
            object.__setattr__(self, "personal", (OUTPUT_LAYER,))

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Check that the model has a head and a body."""
        self.check_model(federation)
        return super().start(federation, coalitions, initial, seed)

    def check_model(self, federation: Federation) -> None:
        """Refuse a model without a head or a body."""
        self.body(federation.schema)

    def body(self, schema: ParameterSchema) -> tuple[str, ...]:
        """Return the names of the shared parameters.

        Raises
        ------
        SettingsError
            If the model cannot be divided into a head and a body.
        """
        head = [name for name in schema.names if name.startswith(self.personal)]
        body = tuple(name for name in schema.names if name not in head)
        if not head or not body:
            what = "no parameters but these" if head else f"only {', '.join(schema.names)}"
            raise SettingsError(
                f"{self.key}: silos keep {', '.join(self.personal)} and share the rest, and this "
                f"model has {what}; choose a model with an output layer above others, or a method "
                "that shares whole models, such as fedavg"
            )
        return body

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train participants that are alone as a whole, and the others together."""
        accompanied = in_company(coalitions, federation.participants)
        names = [name for name in federation.participants if name not in accompanied]
        trained = train_silos(self, federation, state, seed, names=names)
        if not accompanied:
            return state.after(parameters=trained.rows), trained.report
        rows, report = self.together(federation, coalitions, state, seed, accompanied, trained.rows)
        report = report.with_traffic(accompanied, self.shared_size(federation))
        return state.after(parameters=rows), trained.report | report

    @abstractmethod
    def together(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        names: list[Participant],
        rows: Tensor,
    ) -> tuple[Tensor, RoundReport]:
        """Train the members of coalitions, each from its row; return all rows, and the report."""

    def averaged(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        names: list[Participant],
        rows: Tensor,
        terms: LocalTerms | None = None,
    ) -> tuple[Tensor, RoundReport]:
        """Have members of coalitions train, and average their bodies; see `together`."""
        mixed = mix_silos(
            self,
            federation,
            state,
            seed,
            coalition_sums(federation, coalitions),
            names=names,
            rows=rows,
            terms=None if terms is None else dict.fromkeys(names, terms),
        )
        return mixed.rows, mixed.report
