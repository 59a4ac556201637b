"""Check of the tables against the audit log: both must tell the same history."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.audit_log import Action, LogCheck, check_chain, entries
from fedegoists.coordinator.store.credential_check import unlogged_credentials
from fedegoists.coordinator.store.database_tables import (
    AccountRow,
    AuditEntry,
    BenefitRow,
    ConsortiumRow,
    FormationRow,
    MemberRow,
    ReportRow,
    RunRow,
)

ENDED = ("finished", "failed", "cancelled")
"""The states in which a run has ended."""

NO_FORMATION = 0
"""Number of the decision of a run that follows none."""

Key = str | tuple[object, ...]
Facts = dict[Key, tuple[Any, ...]]
"""The state of each consortium, member, report and so on, by its identity."""


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, by which the log refers to it."""
    return hashlib.sha256(text.encode()).hexdigest()


def report_digest(salt: str, consortium: str, reporter: str, competitor: str) -> str:
    """Return the entry of a report in the log: enough to prove it, not enough to read it."""
    return text_digest(json.dumps([salt, consortium, reporter, competitor], ensure_ascii=False))


def reports_digest(salt: str, reports: str) -> str:
    """Return the entry in the log of all reports behind a decision.

    Only a salt that is never shown keeps them unread: a known graph can have been reported in few
    ways, and with the salt one could try them all.
    """
    return text_digest(json.dumps([salt, reports]))


def check_log(session: Session, expected_head: str | None = None) -> LogCheck:
    """Check the chain, and that the tables hold what the log tells, no more and no less."""
    chain = check_chain(session, expected_head)
    told, kept = _told(entries(session)), _kept(session)
    problems = [problem for kind in kept for problem in _differences(kind, told[kind], kept[kind])]
    problems += unlogged_credentials(session, entries(session))
    return LogCheck(chain.count, chain.head, tuple([*chain.problems, *problems][:100]))


def _told(log: Iterable[AuditEntry]) -> dict[str, Facts]:
    """Return the facts that the log tells, by kind."""
    facts: dict[str, Facts] = defaultdict(dict)
    for entry in log:
        try:
            _replay(facts, entry.action, json.loads(entry.details))
        except (ValueError, KeyError, TypeError):
            continue  # a changed entry; the check of the chain reports it
    return facts


def _replay(facts: dict[str, Facts], action: str, details: dict[str, Any]) -> None:
    match action:
        case Action.CONSORTIUM_CREATED | Action.REPORTS_REOPENED:
            facts["consortium"][(details["consortium"],)] = ("collecting", None)
            for key in [one for one in facts["reporting"] if one[0] == details["consortium"]]:
                del facts["reporting"][key]
        case Action.REPORTING_FINISHED:
            facts["reporting"][details["consortium"], details["member"]] = ("finished",)
        case Action.DEADLINE_SET:
            facts["consortium"][(details["consortium"],)] = ("collecting", details["deadline"])
        case Action.REPORTS_CLOSED:
            _, deadline = facts["consortium"][(details["consortium"],)]
            facts["consortium"][(details["consortium"],)] = ("closed", deadline)
        case Action.ACCOUNT_INVITED if details["role"] != "member":
            _count(facts["account"], (details["role"], details["label"]), made=1)
        case Action.ACCOUNT_ENDED:
            _count(facts["account"], (details["role"], details["label"]), ended=1)
        case Action.MEMBER_INVITED:
            facts["member"][details["consortium"], details["member"]] = ("invited",)
            _count(facts["account"], _of_member(details), made=1)
        case Action.MEMBER_JOINED:
            facts["member"][details["consortium"], details["member"]] = ("joined",)
        case Action.MEMBER_EXPELLED:
            facts["member"][details["consortium"], details["member"]] = ("expelled",)
            _count(facts["account"], _of_member(details), ended=1)
        case Action.COMPETITOR_REPORTED:
            reporter = details["consortium"], details["member"]
            facts["report"][str(details["report"])] = (*reporter, True, False)
        case Action.REPORT_WITHDRAWN:
            *reporter_, _, sealed = facts["report"][str(details["report"])]
            facts["report"][str(details["report"])] = (*reporter_, False, sealed)
        case Action.INVITED_AGAIN if "member" in details:
            reporter = details["consortium"], details["member"]
            for report, fact in facts["report"].items():
                if fact[:2] == reporter:
                    facts["report"][report] = (*fact[:3], True)
        case Action.COALITIONS_FORMED:
            parts = ("commitment", "certificate", "reports", "benefit")
            facts["formation"][details["consortium"], details["number"]] = (
                *(details.get(part) for part in parts),
                not details.get("draft", False),  # earlier versions had no drafts
            )
        case Action.DECISION_PUBLISHED:
            key = details["consortium"], details["number"]
            facts["formation"][key] = (*facts["formation"][key][:-1], True)
        case Action.BENEFIT_RECORDED:
            key = details["consortium"], details["number"]
            facts["benefit estimate"][key] = (details["sha256"], details["source"])
        case Action.RUN_QUEUED:
            wanted = details["kind"], details["engine"], details.get("plan")
            # Earlier versions did not say which; runs that learn benefits follow none.
            formation = (details["formation"] or NO_FORMATION) if "formation" in details else None
            facts["run"][details["consortium"], details["number"]] = (*wanted, formation, "")
        case Action.RUN_ENDED:
            key = details["consortium"], details["number"]
            facts["run"][key] = (*facts["run"][key][:-1], details["state"])


def _count(accounts: Facts, key: Key, *, made: int = 0, ended: int = 0) -> None:
    before = accounts.get(key, (0, 0))
    accounts[key] = (before[0] + made, before[1] + ended)


def _of_member(details: dict[str, Any]) -> Key:
    """Return the key of a member's account, which also names the member it acts for."""
    name = details["member"]
    return "member", name, details["consortium"], name


def _kept(session: Session) -> dict[str, Facts]:
    """Return the facts that the tables hold, by kind."""
    consortia = dict(session.execute(select(ConsortiumRow.id, ConsortiumRow.name)).all())
    names = dict(session.execute(select(MemberRow.id, MemberRow.name)).all())
    decisions = select(FormationRow.consortium_id, FormationRow.id, FormationRow.number)
    numbers = {(where, row): number for where, row, number in session.execute(decisions)}
    accounts: Facts = {}
    for account in session.scalars(select(AccountRow)):
        member = account.member
        whose = () if member is None else (member.consortium.name, member.name)
        ended = int(account.ended is not None)
        _count(accounts, (account.role, account.label, *whose), made=1, ended=ended)
    return {
        "consortium": {
            (row.name,): (row.state, row.deadline) for row in session.scalars(select(ConsortiumRow))
        },
        "member": {
            (row.consortium.name, row.name): (row.state,)
            for row in session.scalars(select(MemberRow))
        },
        "reporting": {
            (row.consortium.name, row.name): ("finished",)
            for row in session.scalars(select(MemberRow).where(MemberRow.reported.is_not(None)))
        },
        "report": {
            report_digest(
                row.salt,
                consortia[row.consortium_id],
                names[row.reporter_id],
                names[row.competitor_id],
            ): (
                consortia[row.consortium_id],
                names[row.reporter_id],
                row.withdrawn is None,
                row.sealed is not None,
            )
            for row in session.scalars(select(ReportRow))
        },
        "formation": {
            (consortia[row.consortium_id], row.number): (
                row.commitment,
                _kept_digest(row.certificate_digest, row.certificate),
                reports_digest(row.salt or row.secret, row.reports),
                row.benefit_id,
                row.published is not None,
            )
            for row in session.scalars(select(FormationRow))
        },
        "benefit estimate": {
            (consortia[row.consortium_id], row.id): (
                _kept_digest(row.digest, row.graph),
                row.source,
            )
            for row in session.scalars(select(BenefitRow))
        },
        "account": accounts,
        "run": {
            (consortia[row.consortium_id], row.number): (
                row.kind,
                row.engine,
                text_digest(row.plan),
                NO_FORMATION
                if row.formation_id is None
                else numbers.get((row.consortium_id, row.formation_id)),
                row.state if row.state in ENDED else "",
            )
            for row in session.scalars(select(RunRow))
        },
    }


def _kept_digest(digest: str, text: str) -> str:
    """Return the hash that is stored with a text, by which the text is cached, if it fits it."""
    return digest if digest == text_digest(text) else "not the hash of the text"


def _differences(kind: str, told: Facts, kept: Facts) -> list[str]:
    problems = []
    for key in told.keys() | kept.keys():
        if key not in kept:
            what = "in the log, but not in the tables"
        elif key not in told:
            what = "in the tables, but not in the log"
        elif not _agree(kind, told[key], kept[key]):
            what = "the tables say something else than the log"
        else:
            continue
        named = f"{key[:16]}…" if isinstance(key, str) else ", ".join(map(str, key))
        problems.append(f"{kind} {named}: {what}")
    return sorted(problems)


def _agree(kind: str, told: tuple[Any, ...], kept: tuple[Any, ...]) -> bool:
    """Whether the log tells what is kept; earlier versions told less of a decision or a run."""
    if kind not in ("formation", "run"):
        return told == kept
    return all(one is None or one == other for one, other in zip(told, kept, strict=True))
