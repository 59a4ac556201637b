"""The coordinator's answers, as typed dictionaries."""

from typing import Literal, TypedDict


class MemberAnswer(TypedDict):
    """A member, as the manager sees it."""

    name: str
    state: Literal["invited", "joined", "expelled"]
    finished_reporting: bool


class ConsortiumAnswer(TypedDict):
    """A consortium with its members, as the manager sees it."""

    id: int
    name: str
    reports: Literal["open", "closed"]
    deadline: str | None
    created: str
    members: list[MemberAnswer]


class FormationAnswer(TypedDict):
    """A decision, as the manager sees it."""

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


class ExplanationAnswer(TypedDict):
    """Why a member is with another one, or apart from it."""

    member: str
    other: str
    sentence: str


class WhatIfAnswer(TypedDict):
    """The effect of a hypothetical change."""

    current: bool
    coalitions: list[list[str]]
    welfare: float
    welfare_change: float
    moved: list[str]
    changes: dict[str, float]


class MemberRunAnswer(TypedDict):
    """A run, as a member sees it."""

    number: int
    state: str
    created: str
    ended: str | None


class RunAnswer(MemberRunAnswer):
    """A run and its progress, as the manager sees it."""

    kind: str
    engine: str
    stage: str
    done: int
    total: int
    remark: str
    error: str
    seconds: float
    words: str


class MeAnswer(TypedDict):
    """A member and its consortium, as the member sees them."""

    member: str
    consortium: str
    members: list[str]
    reports: Literal["open", "closed"]
    deadline: str | None


class ReportsAnswer(TypedDict):
    """The competitors that a member has reported."""

    competitors: list[str]
    sealed: str | None
    finished: bool


class DecisionAnswer(TypedDict):
    """A decision, as one member sees it."""

    number: int
    current: bool
    made: str
    commitment: str
    coalition: list[str]
    contributors: dict[str, float]
    beneficiaries: dict[str, float]
    gain: float
    fewest_members: int
