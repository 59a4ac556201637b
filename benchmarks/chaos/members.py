"""Members who report, join and ask while their coordinator is killed and its disk is full."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx

from benchmarks.chaos.machine import SmallDisk, wait_until
from benchmarks.chaos.service import CoordinatorProgram, bearer
from benchmarks.chaos.tally import Tally

__all__ = ["kill_among_members"]

MEMBERS = tuple(f"Member {k}" for k in range(6))
DISK = 24


@dataclass
class Expected:
    """What a member's reports must be: the last acknowledged, or one whose answer was lost."""

    token: str
    acknowledged: frozenset[str] = frozenset()
    maybe: list[frozenset[str]] = field(default_factory=list)

    def holds(self, found: frozenset[str]) -> bool:
        return found == self.acknowledged or found in self.maybe


class _Storm:
    """Threads that change reports and invite members until they are stopped."""

    def __init__(self, service: CoordinatorProgram, api: str, manager: str, tally: Tally) -> None:
        self.service, self.api, self.manager, self.tally = service, api, manager, tally
        self.stop = threading.Event()
        self.members: dict[str, Expected] = {}
        self.invited: set[str] = set()
        self.joined: dict[str, str] = {}

    def report(self, names: tuple[str, ...], rng: random.Random) -> None:
        """Change the reports of some members, and keep what was acknowledged."""
        with httpx.Client(base_url=self.service.client.base_url, timeout=20) as client:
            while not self.stop.is_set():
                name = rng.choice(names)
                others = [one for one in MEMBERS if one != name]
                wanted = frozenset(rng.sample(others, rng.randint(0, 4)))
                own = self.members[name]
                own.maybe.append(wanted)
                try:
                    answer = client.put(
                        "/api/me/reports",
                        json={"competitors": sorted(wanted)},
                        headers=bearer(own.token),
                    )
                except httpx.TransportError:
                    if not self.service.alive:
                        return
                    continue
                if answer.status_code == 200:
                    own.acknowledged = wanted
                    own.maybe.clear()
                    self.tally.note("changes acknowledged")
                else:
                    # A refusal means that nothing of it was kept.
                    own.maybe.remove(wanted)
                    self.tally.note(f"changes refused with {answer.status_code}")
                    self.tally.check(
                        "refusals say that the service is in trouble",
                        answer.status_code in (503, 507),
                        (answer.status_code, answer.text),
                    )

    def invite(self, rng: random.Random) -> None:
        """Invite further members, some of which join."""
        with httpx.Client(base_url=self.service.client.base_url, timeout=20) as client:
            while not self.stop.wait(rng.uniform(0.05, 0.3)):
                name = f"Guest {rng.randrange(10**9)}"
                try:
                    made = client.post(
                        f"{self.api}/members", json={"name": name}, headers=bearer(self.manager)
                    )
                    if made.status_code != 201:
                        continue
                    self.invited.add(name)
                    self.tally.note("invitations acknowledged")
                    accepted = client.post(
                        "/api/invitations/accept", json={"invitation": made.json()["invitation"]}
                    )
                    if accepted.status_code == 200:
                        self.joined[name] = accepted.json()["token"]
                except httpx.TransportError:
                    if not self.service.alive:
                        return


def _verify(storm: _Storm, rng: random.Random) -> None:
    """Check that all that was acknowledged is still so."""
    service, tally = storm.service, storm.tally
    for name, own in storm.members.items():
        answer = service.get("/api/me/reports", own.token)
        if not tally.check("acknowledged tokens are valid", answer.status_code == 200, answer.text):
            continue
        found = frozenset(answer.json()["competitors"])
        wanted = sorted(own.acknowledged)
        tally.check(
            "acknowledged reports are kept", own.holds(found), (name, sorted(found), wanted)
        )
        own.acknowledged = found
        own.maybe.clear()
    shown = service.get(storm.api, storm.manager).json()
    known = {member["name"] for member in shown["members"]}
    tally.check("acknowledged invitations are kept", storm.invited <= known, storm.invited - known)
    for name in rng.sample(sorted(storm.joined), min(3, len(storm.joined))):
        me = service.get("/api/me", storm.joined[name])
        tally.check("acknowledged tokens are valid", me.status_code == 200, me.text)
    service.check_log(storm.manager)


def kill_among_members(folder: Path, tally: Tally, seed: int, goal) -> None:
    """Kill a coordinator at random moments until the goal is reached.

    Parameters
    ----------
    goal : callable
        Returns whether there have been enough kills.
    """
    rng = random.Random(seed)
    disk = SmallDisk(folder / "data", DISK)
    service = CoordinatorProgram(folder / "data", f"members-{seed}", tally)
    try:
        assert service.start(), service.log.read_text()[-2000:]
        manager = service.accept(service.invitation())
        made = service.client.post("/api/consortia", json={"name": "C"}, headers=bearer(manager))
        api = f"/api/consortia/{made.json()['id']}"
        storm = _Storm(service, api, manager, tally)
        for name in MEMBERS:
            invited = service.client.post(
                f"{api}/members", json={"name": name}, headers=bearer(manager)
            )
            storm.members[name] = Expected(service.accept(invited.json()["invitation"]))
        while not goal():
            storm.stop.clear()
            threads = [
                threading.Thread(
                    target=storm.report, args=(MEMBERS[k::2], random.Random(rng.random()))
                )
                for k in range(2)
            ]
            threads.append(
                threading.Thread(target=storm.invite, args=(random.Random(rng.random()),))
            )
            threads.append(
                threading.Thread(
                    target=disk.fill_now_and_then,
                    args=(storm.stop, random.Random(rng.random()), tally),
                )
            )
            before = tally.notes["changes acknowledged"]
            for thread in threads:
                thread.start()
            if rng.random() < 0.7:  # on a busy machine, the first answer takes its time
                wait_until(
                    lambda before=before: tally.notes["changes acknowledged"] > before, 5, 0.01
                )
            time.sleep(rng.uniform(0.05, 0.6))
            clock = service.program.clock
            if clock is not None and rng.random() < 0.6 and clock.jump(rng.randint(-48, 48)):
                tally.fault("clock of a coordinator moved")
            time.sleep(rng.uniform(0.05, 0.6))
            service.kill()
            storm.stop.set()
            for thread in threads:
                thread.join()
            # The disk is not full any more: it must start again by itself.
            if not tally.check(
                "the coordinator starts again", service.start(), service.log.read_text()[-600:]
            ):
                break
            _verify(storm, rng)
    finally:
        service.end()
        disk.close()
