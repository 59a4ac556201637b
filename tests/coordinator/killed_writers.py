"""Kill writers with signal 9, again and again; afterwards nothing they were promised is missing.

    python tests/coordinator/killed_writers.py sqlite:///PATH KILLS

A writer reports and withdraws competitors and, after each commit, tells so through a pipe. What it
told before it died must be in the store, and the audit log must be whole. At most the one change
that came next, committed but not yet told, may be there besides.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator

from fedegoists.coordinator.domain import accounts, competitor_reports, consortia
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import check_log

MEMBERS = [f"m{k}" for k in range(30)]


def found(store: CoordinatorStore) -> int:
    with store.write() as session:
        consortium = consortia.create(session, "manager m", "Killed")
        for name in MEMBERS:
            _, invitation = consortia.invite(session, "manager m", consortium, name)
            accounts.accept_invitation(session, invitation)
        member = consortia.member_named(session, consortium, MEMBERS[0])
        # Once each, so that writers find their statements prepared.
        competitor_reports.report(session, member, MEMBERS[1])
        competitor_reports.withdraw(session, member, MEMBERS[1])
    return consortium.id


def changes(seed: int) -> Iterator[tuple[str, str, str]]:
    """What a writer does, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        a, b = rng.sample(MEMBERS, 2)
        yield rng.choice(["report", "withdraw"]), a, b


def changed(state: set[tuple[str, str]], kind: str, a: str, b: str) -> set[tuple[str, str]]:
    return state | {(a, b)} if kind == "report" else state - {(a, b)}


def write(store: CoordinatorStore, consortium_id: int, pipe: int, seed: int) -> None:
    """Change reports until killed, telling of each change after it was committed."""
    for kind, a, b in changes(seed):
        with store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            member = consortia.member_named(session, consortium, a)
            getattr(competitor_reports, kind)(session, member, b)
        os.write(pipe, b"!")


def reports(store: CoordinatorStore, consortium_id: int) -> set[tuple[str, str]]:
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        found = competitor_reports.active_reports(session, consortium)
    return {(a, b) for a, others in found.items() for b in others}


def problems(store: CoordinatorStore) -> tuple[str, ...]:
    with store.read() as session:
        return check_log(session).problems


def main() -> None:
    url, kills = sys.argv[1], int(sys.argv[2])
    store = CoordinatorStore(url)
    consortium_id = found(store)
    rng = random.Random(1)
    acknowledged = lost = untold = 0
    state: set[tuple[str, str]] = set()
    wrong: tuple[str, ...] = ()
    for kill in range(kills):
        reading, writing = os.pipe()
        store.close()  # no connection may be carried into another process
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                write(store, consortium_id, writing, kill)
            finally:
                os._exit(1)  # a writer never ends by itself
        os.close(writing)
        promised = sum(len(os.read(reading, 1)) for _ in range(rng.randint(0, 8)))
        time.sleep(rng.uniform(0.0, 0.006))  # less than a change takes: it dies within one
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer failed by itself"
        with os.fdopen(reading, "rb") as told:
            promised += len(told.read())
        acknowledged += promised
        planned = changes(kill)
        for _ in range(promised):
            state = changed(state, *next(planned))
        there = reports(store, consortium_id)
        if there != state:
            state = changed(state, *next(planned))
            untold += 1
        lost += there != state
        if kill % 20 == 19 or kill == kills - 1:
            wrong = problems(store)
        if lost or wrong:
            break
    result = {
        "kills": kill + 1,
        "acknowledged": acknowledged,
        "lost": lost,
        "committed but not told": untold,
        "problems": wrong,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
