"""The component that FLARE runs at a silo for a job: it only passes messages on.

A job names this class and brings no code; a silo's kit allows no other.
"""

from pathlib import Path

from nvflare.collab import collab

from fedegoists.federation.flare.memory_release import MemoryRelease
from fedegoists.federation.flare.silo_gate import SiloGate
from fedegoists.federation.flare.silo_service import SiloService


class SiloClient:
    """Answers the messages of one job from the organisation's own data."""

    def __init__(self) -> None:
        self._gate: SiloGate | None = None

    @collab.init  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Load the data; the kit is FLARE's workspace at this site."""
        kit = Path(collab.workspace.get_root_dir())
        self._gate = SiloGate(kit, SiloService(kit).answer)
        self._memory = MemoryRelease()

    @collab.publish  # type: ignore[untyped-decorator]
    def ask(self, message: bytes) -> bytes:
        """Answer one message; the gate checks the coordinator's signature first."""
        answer = self.answer(collab.caller, message)
        self._memory.message_done()
        return answer

    def answer(self, caller: str, message: bytes) -> bytes:
        """Let the organisation's own service answer what the coordinator has signed."""
        assert self._gate is not None
        return self._gate.answer(caller, message)
