"""Bodies of requests (`…Body`) and answers (`…View`) of the API, validated at the border."""

import datetime
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    computed_field,
)

from fedegoists.coalitions.drawing.scene import Scene
from fedegoists.coordinator.domain.accounts import AccountRole
from fedegoists.coordinator.domain.coalition_decisions import formation_of, is_current
from fedegoists.coordinator.domain.consortia import is_closed, members_of
from fedegoists.coordinator.service.run_words import stage_words
from fedegoists.coordinator.store import Transaction
from fedegoists.coordinator.store.database_tables import ConsortiumRow, FormationRow, MemberRow
from fedegoists.coordinator.store.moments import as_moment
from fedegoists.graphs.participants import MAX_NAME_LENGTH, MAX_PARTICIPANTS, validated_name


def _moment(given: object) -> str:
    """Return a time as it is stored; without a time zone it is UTC."""
    try:
        return as_moment(TIME.validate_python(given))
    except ValidationError:
        raise ValueError("not a date and time, such as 2026-12-24T18:00") from None


TIME = TypeAdapter(datetime.datetime)
TIME_SCHEMA = {"type": "string", "format": "date-time"}
Moment = Annotated[str, BeforeValidator(_moment), WithJsonSchema(TIME_SCHEMA)]
Name = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME_LENGTH),
    AfterValidator(lambda text: validated_name(text, "name")),
]
Pair = tuple[Name, Name]
Number = Annotated[int, Field(ge=1, lt=2**31)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _ApiBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _ApiView(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ErrorView(_ApiView):
    """An error, and what to do about it."""

    detail: str


class InvitationBody(_ApiBody):
    """An invitation to accept."""

    invitation: str = Field(min_length=1, max_length=200)


class TokenView(_ApiView):
    """A token. It is shown once: keep it."""

    role: AccountRole
    label: str
    token: str


class InvitationView(_ApiView):
    """An invitation. It is shown once: hand it to the one it is for."""

    label: str
    invitation: str
    note: str = ""


class AccountBody(_ApiBody):
    """Another manager, or a monitor, which may read the metrics and nothing else."""

    role: Literal["manager", "monitor"]
    label: Name


class DeadlineBody(_ApiBody):
    """End of the period in which members may report; null for none."""

    deadline: Moment | None


class ConsortiumBody(DeadlineBody):
    """A consortium to found."""

    name: Name
    deadline: Moment | None = None


class MemberBody(_ApiBody):
    """An organisation to invite."""

    name: Name


class MembersBody(_ApiBody):
    """Organisations to invite, all of them or none."""

    names: list[Name] = Field(min_length=1, max_length=MAX_PARTICIPANTS)


class MemberView(_ApiView):
    """A member, as the manager sees it."""

    name: str
    state: Literal["invited", "joined", "expelled"]
    finished_reporting: bool = False

    @classmethod
    def of(cls, row: MemberRow) -> "MemberView":
        """Return the view of a stored member: whether it has reported, never what."""
        finished = row.reported is not None
        return cls.model_validate(
            {"name": row.name, "state": row.state, "finished_reporting": finished}
        )


class ConsortiumView(_ApiView):
    """A consortium, as the manager sees it."""

    id: int
    name: str
    reports: Literal["open", "closed"]
    deadline: str | None
    created: str
    members: list[MemberView]

    @classmethod
    def of(cls, session: Transaction, found: ConsortiumRow) -> "ConsortiumView":
        """Return the view of a stored consortium."""
        return cls(
            id=found.id,
            name=found.name,
            reports="closed" if is_closed(session, found) else "open",
            deadline=found.deadline,
            created=found.created,
            members=[MemberView.of(one) for one in members_of(session, found)],
        )


class BenefitBody(_ApiBody):
    """A benefit graph: source, target and weight of each edge."""

    edges: list[tuple[Name, Name, Weight]] = Field(max_length=250_000)


class BenefitView(_ApiView):
    """A benefit graph that was recorded."""

    number: int
    source: str
    participants: list[str]
    edges: int


class GraphsView(_ApiView):
    """The current benefit and competition graphs. Pairs do not tell which side reported."""

    participants: list[str]
    benefit: list[tuple[str, str, float]]
    competition: list[tuple[str, str]]


class FormationView(_ApiView):
    """A decision, as the manager sees it; members see their part once it is published.

    It is not current if it is not the latest one, or members, benefits or competitors changed.
    """

    number: int
    current: bool
    made: str
    published: str | None
    commitment: str
    method: str
    objective: str
    fewest_members: int
    coalitions: list[list[str]]
    welfare: float
    upper_bound: float
    stable: bool | None
    utilities: dict[str, float]
    notes: list[str]

    @classmethod
    def of(
        cls, session: Transaction, consortium: ConsortiumRow, record: FormationRow
    ) -> "FormationView":
        """Return the view of a stored decision."""
        formation = formation_of(record)
        return cls(
            number=record.number,
            current=is_current(session, consortium, record.number, formation),
            made=record.created,
            published=record.published,
            commitment=record.commitment,
            method=formation.method,
            objective=formation.objective,
            fewest_members=formation.fewest_members,
            coalitions=[list(group) for group in formation.coalitions],
            welfare=formation.welfare,
            upper_bound=formation.upper_bound,
            stable=formation.stable,
            utilities=dict(formation.utilities),
            notes=list(formation.notes),
        )


class PublicationBody(_ApiBody):
    """The decision to publish."""

    number: Number


class WhatIfBody(_ApiBody):
    """A hypothetical change."""

    add: list[Pair] = Field(default=[], max_length=1000)
    remove: list[Pair] = Field(default=[], max_length=1000)
    leaves: list[Name] = Field(default=[], max_length=1000)
    scene: bool = False
    """Whether to return the shapes of a picture, too."""
    portrait: bool = False
    """Whether the picture is for a screen that is higher than wide."""


class WhatIfView(_ApiView):
    """The effect of a hypothetical change on a decision, and whether that is current."""

    current: bool
    coalitions: list[list[str]]
    welfare: float
    welfare_change: float
    moved: list[str]
    changes: dict[str, float]
    scene: Scene | None = None


class ExplanationView(_ApiView):
    """Why a member is with another one, or apart from it. It names competitors."""

    member: str
    other: str
    sentence: str


class MemberRunView(_ApiView):
    """A run, as a member sees it."""

    number: int
    state: str
    created: str
    ended: str | None


class RunView(MemberRunView):
    """A run, as the manager sees it."""

    kind: str
    engine: str
    stage: str
    """The stage, and after a colon its part or the method, as the run itself names them."""
    done: int
    total: int
    remark: str
    error: str
    seconds: float

    @computed_field
    def words(self) -> str:
        """Return what it is doing, in plain words."""
        return stage_words(self.stage) if self.state == "running" else ""


class LogEntryView(_ApiView):
    """An entry of the audit log."""

    id: int
    at: str
    actor: str
    action: str
    details: str
    previous: str
    digest: str


class LogCheckView(_ApiView):
    """Result of a check of the audit log; its head is to be kept elsewhere."""

    ok: bool
    entries: int = Field(validation_alias="count")
    head: str
    problems: list[str]


class MeView(_ApiView):
    """A member and its consortium, as the member sees them."""

    member: str
    consortium: str
    members: list[str]
    reports: Literal["open", "closed"]
    deadline: str | None


class ReportsBody(_ApiBody):
    """All competitors that a member reports, and whether it has finished reporting."""

    competitors: list[Name] = Field(max_length=MAX_PARTICIPANTS)
    finished: bool = False


class ReportsView(_ApiView):
    """The competitors that a member has reported.

    If it was invited again, `sealed` says when: reports made before then count, but are not shown.
    """

    competitors: list[str]
    sealed: str | None = None
    finished: bool = False


class CertificateBody(_ApiBody):
    """The SHA-256 of a client certificate in DER form, in hexadecimal."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class HealthView(_ApiView):
    """State of the service."""

    status: str
