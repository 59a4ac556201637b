"""A deployment whose server, silos, supervisors, jobs, coordinator and network are disturbed."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.chaos.machine import (
    ROOT,
    Clock,
    Network,
    Running,
    SmallDisk,
    marked,
    wait_until,
)
from benchmarks.chaos.runs import TO_FINISH, QueuedRuns, WorkerKiller
from benchmarks.chaos.service import CoordinatorProgram
from benchmarks.chaos.tally import Tally

__all__ = ["kill_in_a_deployment"]

NAMES = ("North Bank", "South", "East")
ORDER = {"engine": "flare", "plan": {"methods": ["local", "fedavg"], "seeds": 1}}
STEPS = 300
FAULTS_COUNT_AS = 3
"""Faults that take seconds are done a third as often as kills of the same place."""

MOST_FAULTS = 20
"""Disturbances of one run; more of them would only lengthen it."""

TO_CONNECT = 600.0
TO_END = 30.0
"""Seconds in which the FLARE process of a killed supervisor must have ended."""

AT_THE_SERVER = (
    "coordinator service",
    "run worker over silos",
    "FLARE server",
    "guard of the server",
    "job process of the server",
    "supervisor of the server",
)
"""After these, a run goes back to its checkpoint and ends with the bytes of an undisturbed one."""

AT_SILOS = (
    "silo",
    "guard of a silo",
    "job process of a silo",
    "supervisor of a silo",
    "run worker over silos",
    "link of a silo cut",
    "link of a silo delayed",
    "link of a silo throttled",
    "disk of a silo full",
    "clock of a silo moved",
)
"""After these, a silo may miss a round, and bytes may differ."""


KILLS = {
    *AT_THE_SERVER,
    "silo",
    "guard of a silo",
    "job process of a silo",
    "supervisor of a silo",
}


class _Deployment:
    """The kits, their supervisors and, as root, a network namespace for each party."""

    def __init__(self, folder: Path, tally: Tally, mark: str, subnet: int) -> None:
        from fedegoists.consortium.consortium_settings import read_settings
        from fedegoists.deploy.local_deployment import LocalDeployment, free_port
        from tests.flare.loopback import write_consortium

        self.tally, self.mark = tally, mark
        self.network = Network(f"fgc{subnet}", subnet, len(NAMES) + 1) if ROOT else None
        host = self.network.host if self.network else "localhost"
        port = free_port()
        if self.network:
            self.network.open(port)
        file = write_consortium(folder, NAMES, port=port)
        text = file.read_text().replace('host = "localhost"', f'host = "{host}"')
        text = text.replace("wait = 60", "wait = 600").replace("deadline = 60", "deadline = 120")
        file.write_text(text)
        local = LocalDeployment(read_settings(file), folder / "deploy")
        self.kit = local.kit
        self.kits = {"": local.kit, **{name: local.silo(name) for name in NAMES}}
        # What silos keep between calls is on small disks of their own.
        self.disks = {name: SmallDisk(local.silo(name) / "state", 16) for name in NAMES}
        self.clocks = {name: Clock(folder / f"{name}.clock") for name in NAMES}
        self.supervisors = {
            name: Running(
                ["deploy", "start", "silo" if name else "coordinator", kit],
                mark,
                folder / f"{name or 'server'}.log",
                self.inside(k),
                self.clocks.get(name),
            )
            for k, (name, kit) in enumerate(self.kits.items())
        }
        try:
            for one in self.supervisors.values():
                one.start()
        except BaseException:
            self.close()
            raise

    def inside(self, member: int) -> tuple[str, ...]:
        return self.network.inside(member) if self.network else ()

    def of_kit(self, name: str, part: str = "") -> list[psutil.Process]:
        """Return the FLARE processes of a kit whose command has some text."""
        kit = str(self.kits[name])
        found = []
        for one in marked(self.mark):
            with contextlib.suppress(psutil.Error):
                command = " ".join(one.cmdline())
                if kit in command and "nvflare" in command and part in command:
                    found.append(one)
        return found

    def disturb(
        self,
        kinds: tuple[str, ...],
        service: CoordinatorProgram,
        killer: WorkerKiller,
        rng: random.Random,
    ) -> None:
        """Do one of some things to a random party: what has been done least and can be done now."""
        done = self.tally.done()

        def how_often(kind: str) -> float:
            return done[kind] * (1 if kind in KILLS else FAULTS_COUNT_AS)

        for kind in sorted(kinds, key=lambda one: (how_often(one), rng.random())):
            if self._disturb(kind, service, killer, rng):
                return

    def _disturb(
        self, kind: str, service: CoordinatorProgram, killer: WorkerKiller, rng: random.Random
    ) -> bool:
        """Do one thing to a random party; return whether it could be done."""
        name = rng.choice(NAMES)
        match kind:
            case "coordinator service":
                service.kill(kind)
                self.tally.check("the coordinator starts again", service.start(), "see its log")
                return True
            case "run worker over silos":
                return killer.kill(self.mark, kind)
            case "FLARE server":
                return self._kill(self.of_kit("", "kit_launcher"), kind)
            case "guard of the server":
                return self._kill(self.of_kit("", "kit_guard"), kind)
            case "job process of the server":
                return self._kill(self.of_kit("", "_process"), kind)
            case "silo":
                return self._kill(self.of_kit(name, "kit_launcher"), kind)
            case "guard of a silo":
                return self._kill(self.of_kit(name, "kit_guard"), kind)
            case "job process of a silo":
                return self._kill(self.of_kit(name, "_process"), kind)
            case "supervisor of the server":
                return self._kill_supervisor("", kind)
            case "supervisor of a silo":
                return self._kill_supervisor(name, kind)
            case _:
                return self._disturb_machine(kind, name, rng)

    def _kill(self, processes: list[psutil.Process], kind: str) -> bool:
        for one in processes[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
                self.tally.killed(kind)
                return True
        return False

    def _kill_supervisor(self, name: str, kind: str) -> bool:
        if not self.supervisors[name].kill():
            return False
        self.tally.killed(kind)
        gone = wait_until(lambda: not self.of_kit(name), TO_END)
        left = [" ".join(one.cmdline())[:150] for one in self.of_kit(name)]
        self.tally.check("a killed supervisor leaves no FLARE process", gone, left)
        for one in self.of_kit(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.supervisors[name].start()
        return True

    def _disturb_machine(self, kind: str, name: str, rng: random.Random) -> bool:
        """Disturb the disk, the clock or the network of a silo for some seconds."""
        member, seconds = NAMES.index(name) + 1, rng.uniform(1, 10)
        if kind == "clock of a silo moved":
            # Not before the true time: a certificate that is not valid yet is rightly refused.
            possible = self.clocks[name].jump(rng.randint(0, 36))
        elif kind == "disk of a silo full":
            possible = self.disks[name].small
            if possible:
                with self.disks[name].full():
                    time.sleep(seconds)
        elif self.network is None:
            return False
        elif kind == "link of a silo cut":
            self.network.cut(member, off=True)
            time.sleep(seconds)
            self.network.cut(member, off=False)
            possible = True
        elif kind == "link of a silo delayed":
            self.network.delay(member, rng.uniform(0.2, 3))
            time.sleep(seconds)
            self.network.delay(member, 0)
            possible = True
        else:
            possible = self.network.throttle(member, on=True)
            time.sleep(seconds if possible else 0)
            self.network.throttle(member, on=False)
        if possible:
            self.tally.fault(kind)
        return possible

    def close(self) -> None:
        """Stop all supervisors; nothing may be left of them."""
        for one in self.supervisors.values():
            if one.pid is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(one.pid).terminate()
        wait_until(lambda: all(one.pid is None for one in self.supervisors.values()), TO_END)
        for one in self.supervisors.values():
            one.close()
        for disk in self.disks.values():
            disk.close()
        if self.network is not None:
            self.network.close()


def _connected(deployment: _Deployment) -> bool:
    """Return whether all silos have registered at the server."""
    log = deployment.kit / "log.txt"
    text = log.read_text(errors="replace") if log.exists() else ""
    sites = [kit.name for name, kit in deployment.kits.items() if name]
    return all(f"New client {site}" in text or f"client {site}" in text for site in sites)


def _left_out(runs: QueuedRuns, number: int) -> bool:
    log = runs.folder(number) / "log.txt"
    return not log.exists() or "left out" in log.read_text()


def _delivered(deployment: _Deployment, runs: QueuedRuns, number: int) -> dict[str, bytes]:
    """Check that silos have finite models that they themselves have sealed; return the models.

    The coordinator need not have them: under masks, some models never leave their silos.
    """
    from fedegoists.errors import FileError
    from fedegoists.federation.flare.silo_secret import sealed_models
    from fedegoists.learning.tensor_files import tensors_and_text

    name, models = f"consortium-{runs.id}-run-{number}.safetensors", {}
    for silo in NAMES:
        kit = deployment.kits[silo]
        if not (kit / "models" / name).exists():
            deployment.tally.note("models not delivered, as their silo was away")
            continue
        detail = ""
        try:
            models[silo], _ = sealed_models(kit).read(name)
            tensors, _ = tensors_and_text(models[silo])
            good = all(bool(one.isfinite().all()) for one in tensors.values())
        except FileError as error:
            good, detail = False, str(error)
        deployment.tally.check("delivered models are sealed and finite", good, (silo, detail))
    return models


def kill_in_a_deployment(
    folder: Path, tally: Tally, seed: int, goal, *, only_silos: bool = False
) -> None:
    """Disturb runs over FLARE, in turn at the server only and at silos.

    With an odd seed the first one is disturbed at the server, and its bytes must be those of an
    undisturbed one.

    Parameters
    ----------
    only_silos : bool
        Disturb no run at the server, and kill only.
    """
    rng = random.Random(seed)
    mark = f"deployment-{seed}"
    data = folder / "coordinator" / "data"
    data.mkdir(parents=True)
    deployment = _Deployment(folder, tally, mark, 10 + seed % 200)
    network = deployment.network
    service = CoordinatorProgram(
        data,
        mark,
        tally,
        "--kit",
        deployment.kit,
        host=network.addresses[0] if network else "127.0.0.1",
        prefix=deployment.inside(0),
    )
    try:
        assert service.start(), service.log.read_text()[-2000:]
        manager = service.accept(service.invitation())
        tally.check("silos connect", wait_until(lambda: _connected(deployment), TO_CONNECT))
        undisturbed = QueuedRuns(service, manager, NAMES, ORDER, name="Undisturbed")
        runs = QueuedRuns(service, manager, NAMES, ORDER)
        killer, plan = WorkerKiller(runs), {"steps": STEPS}
        _finished(undisturbed, plan, tally, lambda: None)
        number = 0
        while not goal():
            number += 1
            at_the_server = (number + seed // 1000) % 2 == 0  # odd seeds begin there
            kinds = AT_THE_SERVER if at_the_server else AT_SILOS
            if only_silos:
                kinds = tuple(one for one in AT_SILOS if one in KILLS)
            # Another number of steps, or the result would be taken from the run before.
            plan = {"steps": STEPS + 10 * (number - 1)}

            left = iter(range(MOST_FAULTS))

            def disturb(kinds: tuple[str, ...] = kinds, left: Iterator[int] = left) -> None:
                # In the middle of getting over the fault before, or of the work after it.
                time.sleep(rng.uniform(0.5, 3) if rng.random() < 0.7 else rng.uniform(5, 20))
                if not goal() and next(left, None) is not None:
                    deployment.disturb(kinds, service, killer, rng)

            if not _finished(runs, plan, tally, disturb):
                continue
            _delivered(deployment, runs, max(runs.plans))
        # Only the first plan was also run without disturbance, beforehand.
        if 1 in runs.finished and seed // 1000 % 2 and not only_silos and not _left_out(runs, 1):
            here, there = (_delivered(deployment, one, 1) for one in (runs, undisturbed))
            for name in here.keys() & there.keys():
                same = here[name] == there[name]
                tally.check("final bytes equal those of an undisturbed run", same, ("flare", name))
        elif runs.plans:
            tally.note("runs over FLARE in which a silo missed a round: bytes not compared")
        service.check_log(manager)
    finally:
        service.program.close()
        deployment.close()
        service.end()


def _finished(runs: QueuedRuns, plan: dict, tally: Tally, disturb) -> bool:
    """Queue a run, disturb it until it has finished, and return whether it has."""
    before = set(runs.plans)
    for _ in range(5):
        runs.enqueue(plan)
        if set(runs.plans) - before:
            break
        time.sleep(5)
    new = set(runs.plans) - before
    if not tally.check("runs over FLARE are accepted", bool(new), "see the coordinator's log"):
        return False
    (number,) = new

    def ended() -> bool:
        disturb()
        return runs.verify().get(number, {}).get("state") in ("finished", "failed")

    wait_until(ended, TO_FINISH, 1.0)
    return tally.check("runs over FLARE finish", number in runs.finished, runs.states())
