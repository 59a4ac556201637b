"""Whether the tables say what the audit log says was done."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.audit_log import Action, LogCheck, check_chain, entries
from fedegoists.coordinator.store.tables import (
    Account,
    AuditEntry,
    BenefitEstimate,
    CompetitionReport,
    ConsortiumRecord,
    FormationRecord,
    Member,
    RunRecord,
)

__all__ = ["ENDED", "check_log", "report_digest", "reports_digest", "text_digest"]

ENDED = ("finished", "failed", "cancelled")
"""The states in which a run is over."""

NONE = 0
"""In place of the number of a decision, for a run that goes by none."""


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, by which the log refers to it."""
    return hashlib.sha256(text.encode()).hexdigest()


def report_digest(salt: str, consortium: str, reporter: str, competitor: str) -> str:
    """Return what the log says of a report: enough to vouch for it, not enough to read it."""
    return text_digest(json.dumps([salt, consortium, reporter, competitor], ensure_ascii=False))


def reports_digest(salt: str, reports: str) -> str:
    """Return what the log says of all reports behind a decision.

    Only a salt that nobody is ever shown keeps them unread: there are few ways in which a known
    graph can have been reported, and whoever has the salt tries them all.
    """
    return text_digest(json.dumps([salt, reports]))


def check_log(session: Session, expected_head: str | None = None) -> LogCheck:
    """Check the chain, and that what is in the tables is what was done, no more and no less."""
    chain = check_chain(session, expected_head)
    found = _Told(entries(session))
    problems = list(chain.problems)
    problems += _differences("consortium", found.consortia, _consortia(session))
    problems += _differences(
        "member", found.members, {(c, m): state for c, m, state in _members(session)}
    )
    problems += _differences("report", found.reports, _reports(session))
    problems += _differences("formation", found.formations, _formations(session))
    problems += _differences("benefit estimate", found.benefits, _benefits(session))
    problems += _differences("account", found.accounts, _accounts(session))
    problems += _differences("run", found.runs, _runs(session))
    return LogCheck(chain.count, chain.head, tuple(problems[:100]))


class _Told:
    """What the log tells."""

    def __init__(self, log: Iterable[AuditEntry]) -> None:
        self.consortia: dict[Any, Any] = {}
        self.members: dict[Any, Any] = {}
        self.reports: dict[Any, Any] = {}
        self.formations: dict[Any, Any] = {}
        self.benefits: dict[Any, Any] = {}
        self.accounts: dict[Any, Any] = {}
        self.runs: dict[Any, Any] = {}
        for entry in log:
            try:
                self._read(entry.action, json.loads(entry.details))
            except (ValueError, KeyError, TypeError):
                continue  # the chain says that it was changed

    def _read(self, action: str, details: dict[str, Any]) -> None:
        match action:
            case Action.CONSORTIUM_CREATED | Action.REPORTS_REOPENED:
                self.consortia[(details["consortium"],)] = ("collecting", None)
            case Action.DEADLINE_SET:
                self.consortia[(details["consortium"],)] = ("collecting", details["deadline"])
            case Action.REPORTS_CLOSED:
                _, deadline = self.consortia[(details["consortium"],)]
                self.consortia[(details["consortium"],)] = ("closed", deadline)
            case Action.ACCOUNT_INVITED if details["role"] != "member":
                self._count((details["role"], details["label"]), made=1)
            case Action.ACCOUNT_ENDED:
                self._count((details["role"], details["label"]), ended=1)
            case Action.MEMBER_INVITED:
                self.members[details["consortium"], details["member"]] = "invited"
                self._count(_of_member(details), made=1)
            case Action.MEMBER_JOINED:
                self.members[details["consortium"], details["member"]] = "joined"
            case Action.MEMBER_EXPELLED:
                self.members[details["consortium"], details["member"]] = "expelled"
                self._count(_of_member(details), ended=1)
            case Action.COMPETITOR_REPORTED:
                self.reports[details["report"]] = True
            case Action.REPORT_WITHDRAWN:
                self.reports[details["report"]] = False
            case Action.COALITIONS_FORMED:
                key = details["consortium"], details["number"]
                self.formations[key] = tuple(
                    details.get(part)
                    for part in ("commitment", "certificate", "reports", "benefit")
                )
            case Action.BENEFIT_RECORDED:
                key = details["consortium"], details["number"]
                self.benefits[key] = details["sha256"], details["source"]
            case Action.RUN_QUEUED:
                wanted = details["kind"], details["engine"], details.get("plan")
                # Earlier versions did not say which; what learns benefits goes by none.
                formation = (details["formation"] or NONE) if "formation" in details else None
                self.runs[details["consortium"], details["number"]] = (*wanted, formation, "")
            case Action.RUN_ENDED:
                key = details["consortium"], details["number"]
                self.runs[key] = (*self.runs[key][:-1], details["state"])

    def _count(self, key: tuple[str, ...], made: int = 0, ended: int = 0) -> None:
        before = self.accounts.get(key, (0, 0))
        self.accounts[key] = (before[0] + made, before[1] + ended)


def _of_member(details: dict[str, Any]) -> tuple[str, ...]:
    """Return how the account of a member is told apart: also by whom it acts for."""
    name = details["member"]
    return "member", name, details["consortium"], name


def _kept_digest(digest: str, text: str) -> str:
    """Return the hash of a text that is kept with it; by it copies in memory are found again."""
    return digest if digest == text_digest(text) else "not the hash of the text"


def _consortia(session: Session) -> dict[Any, Any]:
    return {
        (row.name,): (row.state, row.deadline) for row in session.scalars(select(ConsortiumRecord))
    }


def _members(session: Session) -> Iterable[tuple[str, str, str]]:
    for member in session.scalars(select(Member)):
        yield member.consortium.name, member.name, member.state


def _reports(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    names = dict(session.execute(select(Member.id, Member.name)).all())
    return {
        report_digest(
            row.salt, consortia[row.consortium_id], names[row.reporter_id], names[row.competitor_id]
        ): row.withdrawn is None
        for row in session.scalars(select(CompetitionReport))
    }


def _formations(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    return {
        (consortia[row.consortium_id], row.number): (
            row.commitment,
            _kept_digest(row.certificate_digest, row.certificate),
            reports_digest(row.salt or row.secret, row.reports),
            row.benefit_id,
        )
        for row in session.scalars(select(FormationRecord))
    }


def _benefits(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    return {
        (consortia[row.consortium_id], row.id): (_kept_digest(row.digest, row.graph), row.source)
        for row in session.scalars(select(BenefitEstimate))
    }


def _accounts(session: Session) -> dict[Any, Any]:
    made: Counter[tuple[str, ...]] = Counter()
    ended: Counter[tuple[str, ...]] = Counter()
    for row in session.scalars(select(Account)):
        member = row.member
        whose = () if member is None else (member.consortium.name, member.name)
        key = (row.role, row.label, *whose)
        made[key] += 1
        ended[key] += row.ended is not None
    return {key: (count, ended[key]) for key, count in made.items()}


def _runs(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    decisions = select(FormationRecord.consortium_id, FormationRecord.id, FormationRecord.number)
    numbers = {(where, row): number for where, row, number in session.execute(decisions)}
    return {
        (consortia[row.consortium_id], row.number): (
            row.kind,
            row.engine,
            text_digest(row.plan),
            NONE
            if row.formation_id is None
            else numbers.get((row.consortium_id, row.formation_id)),
            row.state if row.state in ENDED else "",
        )
        for row in session.scalars(select(RunRecord))
    }


def _differences(what: str, told: dict[Any, Any], kept: dict[Any, Any]) -> list[str]:
    def named(key: Any) -> str:
        return f"{key[:16]}…" if isinstance(key, str) else ", ".join(map(str, key))

    problems = [
        f"{what} {named(key)}: in the log, but not in the tables" for key in told.keys() - kept
    ]
    problems += [
        f"{what} {named(key)}: in the tables, but not in the log" for key in kept.keys() - told
    ]
    problems += [
        f"{what} {named(key)}: the tables say something else than the log"
        for key in told.keys() & kept.keys()
        if not _agree(told[key], kept[key])
    ]
    return sorted(problems)


def _agree(told: Any, kept: Any) -> bool:
    """Whether the log says what is kept; earlier versions said less of a decision or a run."""
    if not isinstance(told, tuple) or len(told) < 3:
        return bool(told == kept)
    return all(one is None or one == other for one, other in zip(told, kept, strict=True))
