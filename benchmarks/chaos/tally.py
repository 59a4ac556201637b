"""The score of a run of chaos: kills and faults by kind, checks, violations."""

import threading
import time
from collections import Counter

__all__ = ["Tally"]


class Tally:
    """Counts what was done and what was checked, from many threads.

    Parameters
    ----------
    whole : Tally, optional
        The tally that this one is a part of, and that counts everything as well.
    """

    def __init__(self, whole: "Tally | None" = None) -> None:
        self._whole = whole
        self._lock = threading.Lock()
        self.kills: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.violations: list[str] = []
        self.notes: Counter[str] = Counter()
        self.began = time.monotonic()

    def killed(self, kind: str) -> None:
        """Count a kill."""
        with self._lock:
            self.kills[kind] += 1
        if self._whole is not None:
            self._whole.killed(kind)

    def fault(self, kind: str) -> None:
        """Count a fault that is no kill."""
        with self._lock:
            self.faults[kind] += 1
        if self._whole is not None:
            self._whole.fault(kind)

    def note(self, what: str) -> None:
        """Count something that is worth knowing and no violation."""
        with self._lock:
            self.notes[what] += 1
        if self._whole is not None:
            self._whole.note(what)

    def check(self, what: str, holds: bool, detail: object = "") -> bool:
        """Count a check; a violation is kept with its detail."""
        if self._whole is not None:
            return self._whole.check(what, holds, detail)
        with self._lock:
            self.checks[what] += 1
            if not holds:
                text = f"{what}: {detail}"[:600]
                self.violations.append(text)
                print(f"VIOLATION {text}", flush=True)
        return holds

    def done(self) -> Counter[str]:
        """Return how often each kind of kill and of fault was done."""
        with self._lock:
            return self.kills + self.faults

    @property
    def all_kills(self) -> int:
        """Kills of all kinds."""
        with self._lock:
            return sum(self.kills.values())

    def rows(self) -> list[tuple[str, str, int, int]]:
        """Return the table: kind, what, how often, violations."""
        broken = Counter(text.split(":")[0] for text in self.violations)
        return [
            *(("kill -9", kind, count, 0) for kind, count in sorted(self.kills.items())),
            *(("fault", kind, count, 0) for kind, count in sorted(self.faults.items())),
            *(("check", kind, count, broken[kind]) for kind, count in sorted(self.checks.items())),
            *(("seen", kind, count, 0) for kind, count in sorted(self.notes.items())),
        ]
