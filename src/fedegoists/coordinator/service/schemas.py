"""What goes over the interface, checked at the border."""

import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from fedegoists.coordinator.runs.run_plan import RunPlan
from fedegoists.coordinator.store.tables import ConsortiumRecord, FormationRecord, Member, RunRecord
from fedegoists.coordinator.store.times import as_moment
from fedegoists.errors import GraphError
from fedegoists.graphs.participants import MAX_NAME_LENGTH, MAX_PARTICIPANTS, validated_name

__all__ = [
    "AcceptedInvitation",
    "Benefit",
    "BenefitUpload",
    "ClientCertificate",
    "Consortium",
    "Deadline",
    "Decision",
    "Detail",
    "FormationView",
    "FormationWish",
    "Graphs",
    "Health",
    "Invitation",
    "InvitationSecret",
    "LogEntry",
    "Me",
    "MemberName",
    "MemberRun",
    "MemberView",
    "Name",
    "NewAccount",
    "NewConsortium",
    "Number",
    "ReportWish",
    "Reports",
    "RunView",
    "RunWish",
    "WhatIfAnswer",
    "WhatIfQuestion",
]


def _name(text: str) -> str:
    try:
        return validated_name(text, "name")
    except GraphError as error:
        raise ValueError(str(error)) from None


def _time(time: datetime.datetime) -> datetime.datetime:
    as_moment(time)  # a ValueError if it cannot be kept
    return time


Time = Annotated[datetime.datetime, AfterValidator(_time)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_name)]
Pair = tuple[Name, Name]
Number = Annotated[int, Field(ge=1, lt=2**31)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Detail(BaseModel):
    """What went wrong, and what to do."""

    detail: str


class InvitationSecret(_Asked):
    """An invitation to accept."""

    invitation: str = Field(min_length=1, max_length=200)


class AcceptedInvitation(BaseModel):
    """A token. It is shown once: keep it."""

    role: Literal["manager", "member", "monitor"]
    label: str
    token: str


class Invitation(BaseModel):
    """An invitation. It is shown once: hand it to the one it is for."""

    label: str
    invitation: str


class NewAccount(_Asked):
    """Another manager, or a monitor, which may read the metrics and nothing else."""

    role: Literal["manager", "monitor"]
    label: Name


class Deadline(_Asked):
    """Until when members may report; null for no end."""

    deadline: Time | None

    def moment(self) -> str | None:
        """Return it as it is stored; without a time zone it is UTC."""
        return None if self.deadline is None else as_moment(self.deadline)


class NewConsortium(Deadline):
    """A consortium to found."""

    name: Name
    deadline: Time | None = None


class MemberName(_Asked):
    """Whom to invite."""

    name: Name


class MemberView(BaseModel):
    """A member, as the manager sees it."""

    name: str
    state: Literal["invited", "joined", "expelled"]

    @classmethod
    def of(cls, member: Member) -> "MemberView":
        """Return it from the store."""
        return cls.model_validate({"name": member.name, "state": member.state})


class Consortium(BaseModel):
    """A consortium, as the manager sees it."""

    id: int
    name: str
    reports: Literal["open", "closed"]
    deadline: str | None
    created: str
    members: list[MemberView]

    @classmethod
    def of(cls, found: ConsortiumRecord, members: list[Member], closed: bool) -> "Consortium":
        """Return it from the store."""
        return cls(
            id=found.id,
            name=found.name,
            reports="closed" if closed else "open",
            deadline=found.deadline,
            created=found.created,
            members=[MemberView.of(member) for member in members],
        )


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BenefitUpload(_Asked):
    """Who benefits whom: source, target and weight of each edge."""

    edges: list[tuple[Name, Name, Weight]] = Field(max_length=250_000)


class Benefit(BaseModel):
    """A benefit graph that was recorded."""

    number: int
    source: str
    participants: list[str]
    edges: int


class Graphs(BaseModel):
    """Both graphs as they are now. Pairs tell who competes, not who said so."""

    participants: list[str]
    benefit: list[tuple[str, str, float]]
    competition: list[tuple[str, str]]


class FormationWish(_Asked):
    """How to form coalitions."""

    method: Literal["best", "stable", "published", "cliques"] = "best"
    objective: Literal["welfare", "fair", "participation"] = "welfare"
    time_limit: float = Field(default=1.0, ge=0.05, le=60)
    seed: int = Field(default=0, ge=0, le=2**31)


class FormationView(BaseModel):
    """A decision, as the manager sees it.

    It is not current if it is not the latest one, or members, benefits or competitors changed.
    """

    number: int
    current: bool
    made: str
    commitment: str
    method: str
    objective: str
    coalitions: list[list[str]]
    welfare: float
    upper_bound: float
    stable: bool | None
    utilities: dict[str, float]
    notes: list[str]

    @classmethod
    def of(
        cls, session: Session, consortium: ConsortiumRecord, record: FormationRecord
    ) -> "FormationView":
        """Return it from the store."""
        from fedegoists.coordinator.domain.coalition_decisions import formation_of
        from fedegoists.coordinator.domain.decision_validity import is_current

        formation = formation_of(record)
        return cls(
            number=record.number,
            current=is_current(session, consortium, record.number, formation),
            made=record.created,
            commitment=record.commitment,
            method=formation.method,
            objective=formation.objective,
            coalitions=[list(group) for group in formation.coalitions],
            welfare=formation.welfare,
            upper_bound=formation.upper_bound,
            stable=formation.stable,
            utilities=dict(formation.utilities),
            notes=list(formation.notes),
        )


class WhatIfQuestion(_Asked):
    """A change to try."""

    add: list[Pair] = Field(default=[], max_length=1000)
    remove: list[Pair] = Field(default=[], max_length=1000)
    leaves: list[Name] = Field(default=[], max_length=1000)


class WhatIfAnswer(BaseModel):
    """What the change would bring to a decision, which may not be current any more."""

    current: bool
    coalitions: list[list[str]]
    welfare: float
    welfare_change: float
    moved: list[str]
    changes: dict[str, float]


class RunWish(_Asked):
    """A run to start."""

    kind: Literal["benefit", "training"] = "training"
    engine: str = Field(default="simulation", max_length=40)
    plan: RunPlan


class MemberRun(BaseModel):
    """A run, as a member sees it."""

    number: int
    state: str
    created: str
    ended: str | None


class RunView(MemberRun):
    """A run, as the manager sees it."""

    kind: str
    engine: str
    stage: str
    done: int
    total: int
    remark: str
    error: str
    seconds: float

    @classmethod
    def of(cls, run: RunRecord) -> "RunView":
        """Return it from the store."""
        return cls.model_validate(run, from_attributes=True)


class LogEntry(BaseModel):
    """An entry of the audit log."""

    model_config = ConfigDict(from_attributes=True)
    id: int
    at: str
    actor: str
    action: str
    details: str
    previous: str
    digest: str


class LogVerdict(BaseModel):
    """What a check of the audit log found; its head is to be kept elsewhere."""

    ok: bool
    entries: int
    head: str
    problems: list[str]


class Me(BaseModel):
    """What a member knows of itself and its consortium."""

    member: str
    consortium: str
    members: list[str]
    reports: Literal["open", "closed"]
    deadline: str | None


class ReportWish(_Asked):
    """Whom a member names: all of its competitors."""

    competitors: list[Name] = Field(max_length=MAX_PARTICIPANTS)


class Reports(BaseModel):
    """Whom a member has named."""

    competitors: list[str]


class Decision(BaseModel):
    """A decision, as a member sees it.

    It is not current while reports are open again, or if somebody in the coalition was expelled;
    it says nothing of what others reported since.
    """

    model_config = ConfigDict(from_attributes=True)
    number: int
    current: bool
    made: str
    commitment: str
    coalition: list[str]
    contributors: dict[str, float]
    beneficiaries: dict[str, float]
    gain: float


class ClientCertificate(_Asked):
    """The SHA-256 of a client certificate in DER form, in hexadecimal."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Health(BaseModel):
    """Whether all is well."""

    status: str
