"""The ledger of a silo's privacy: what all its answers together tell of one sample.

Every answer is entered before it leaves, and refused if it would exceed the budget. A sample is
either for training, for validation or for test, so each of the three kinds has an account of its
own. The ledger only grows: an answer that is entered and then lost, because the silo was switched
off, counts nevertheless.
"""

import fcntl
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon
from fedegoists.federation.replies import Split
from fedegoists.files import private_folder, write_bytes

LEDGER_FILE = "privacy.json"
SPLITS: tuple[Split, ...] = get_args(Split)


MOST_KINDS = 1000
"""Different noise and rates in one ledger; composing each takes time."""


class BudgetError(FedEgoistsError):
    """An answer that the privacy budget does not allow, or a ledger that cannot be read."""


@dataclass(frozen=True)
class PrivacyEntry:
    """Answers to one operation that tell of the samples of one split."""

    split: Split
    operation: str
    answers: NoisyAnswers


@dataclass(frozen=True)
class SplitAccount:
    """What has been spent of the samples of one split.

    Attributes
    ----------
    spent : float
        ε of all answers together; less than the sum of those by operation.
    answers : dict
        By operation: the number of answers, and their own ε.
    """

    spent: float
    answers: dict[str, tuple[int, float]]


class PrivacyLedger:
    """The entries of all answers with noise, in a file that outlives the silo's processes.

    Parameters
    ----------
    state : Path
        The silo's folder for its own files.
    budget : float, optional
        The largest ε of a sample; any if left out.
    delta : float
        The δ at which ε is measured.
    """

    def __init__(self, state: Path, budget: float | None, delta: float) -> None:
        self._file = state / LEDGER_FILE
        self._budget, self._delta = budget, delta
        if budget is not None:
            epsilon([NoisyAnswers(1.0)], delta)  # needs a library that may be missing

    def charge(self, entries: Sequence[PrivacyEntry]) -> None:
        """Enter answers that are about to be given; raise `BudgetError`, without entering any.

        All of them are entered, or none.
        """
        if not entries:
            return
        with self._alone():
            known = self._read()
            for entry in entries:
                key = (entry.split, entry.operation, entry.answers.noise, entry.answers.rate)
                known[key] = known.get(key, 0) + entry.answers.count
            if len(known) > MOST_KINDS:
                raise BudgetError(
                    f"answers of more than {MOST_KINDS} kinds; ask with batches of few sizes"
                )
            for split in sorted({entry.split for entry in entries}):
                self._check(split, known)
            self._write(known)

    def accounts(self) -> dict[Split, SplitAccount]:
        """Return what has been spent, by split."""
        known = self._read()
        found = {}
        for split in SPLITS:
            operations = sorted({operation for of, operation, *_ in known if of == split})
            own = {operation: _answers(known, split, operation) for operation in operations}
            found[split] = SplitAccount(
                epsilon(_answers(known, split), self._delta),
                {
                    operation: (sum(one.count for one in some), epsilon(some, self._delta))
                    for operation, some in own.items()
                },
            )
        return found

    def _check(self, split: Split, known: "Mapping[_Key, int]") -> None:
        if self._budget is None:
            return
        needed = epsilon(_answers(known, split), self._delta)
        if needed > self._budget:
            before = epsilon(_answers(self._read(), split), self._delta)
            raise BudgetError(
                f"the privacy budget of {split} samples does not allow this answer: with it "
                f"epsilon would be {needed:.3g}, {before:.3g} is spent, and {self._budget:g} is "
                f"allowed at delta = {self._delta:g} (privacy.epsilon)"
            )

    def _read(self) -> "dict[_Key, int]":
        try:
            content = json.loads(self._file.read_text())
            known = {}
            for split, operation, noise, rate, count in content["answers"]:
                if split not in SPLITS or not isinstance(count, int) or count < 0:
                    raise ValueError
                if not (0 <= noise < math.inf and 0 < rate <= 1):
                    raise ValueError
                known[split, str(operation), float(noise), float(rate)] = count
            return known
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError):
            raise BudgetError(
                f"{self._file.name} cannot be read: what has been spent is not known"
            ) from None

    def _write(self, known: "Mapping[_Key, int]") -> None:
        rows = [[*key, count] for key, count in sorted(known.items())]
        write_bytes(self._file, json.dumps({"answers": rows}).encode(), private=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other jobs, which are other processes, from entering at the same time."""
        private_folder(self._file.parent)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


_Key = tuple[Split, str, float, float]
"""Split, operation, noise and rate."""


def _answers(
    known: Mapping[_Key, int], split: Split, operation: str | None = None
) -> list[NoisyAnswers]:
    return [
        NoisyAnswers(noise, rate, count)
        for (of, by, noise, rate), count in known.items()
        if of == split and operation in (None, by)
    ]
