"""Linear inequalities that the pairs of every valid partition satisfy.

Let x_ij be 1 if i and j are in the same coalition of a partition, and 0 otherwise; between
competitors it is 0. The inequalities have a *centre* c and a list T of others. Why they hold is
derived in `docs/explanation-optimal.md`; in short, only the members W of T in the coalition of c
matter, and each subtracted pair inside W counts:

    star     Σ_T x_ct − Σ_{pairs of T} x_tu ≤ 1                 as |W| − |W|(|W| − 1)/2 ≤ 1
    wheel    Σ_T x_ct − Σ_{neighbours on the cycle T} x_tu ≤ (|T| − 1)/2, with |T| odd
    givers   the star, with the number of givers of c in its coalition for the 1 on the right
    takers   the same with takers: by Principle 1, c has a giver and a taker if it has company

A star over competitors says that c is with one of them at most; one over two others is the triangle
inequality. One more kind has a whole number u_i for each participant. Its total in a coalition has
a square of at least its size, and the squares of all totals sum to Σ u_i² + 2 Σ u_i u_j x_ij:

    square   −2 Σ_{pairs} u_i u_j x_ij ≤ Σ u_i² − |Σ u_i|

A price y ≥ 0 of an inequality Σ a_ij x_ij ≤ b moves y · b into the bound and leaves
v_ij − y · a_ij of the value of each pair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

Kind = Literal["star", "wheel", "givers", "takers"]

KINDS: tuple[Kind, ...] = get_args(Kind)


LARGEST = 10**12
"""Numbers of a square are at most this, so that a step of the check has a bounded length."""

LONGEST = 200
"""Longer lists of others only serve to keep a checker busy."""


class NoInequalityError(Exception):
    """A text that is none of the inequalities; the message says why."""


@dataclass(frozen=True)
class PairInequality:
    """One inequality, over participants by number.

    Examples
    --------
    Of three others, a participant is with one only, unless some of these are together, too:

    >>> star = PairInequality("star", 0, (1, 2, 3))
    >>> star.to_text()
    'star 0 1 2 3'
    >>> dict(star.terms(), right=star.right_side)
    {(0, 1): 1, (0, 2): 1, (0, 3): 1, (1, 2): -1, (1, 3): -1, (2, 3): -1, 'right': 1}
    """

    kind: Kind
    centre: int
    others: tuple[int, ...]

    @classmethod
    def from_text(cls, text: str, number: Sequence[int]) -> "PairInequality":
        """Read an inequality.

        Parameters
        ----------
        number : sequence of int
            The participant that each position in the text stands for.

        Raises
        ------
        NoInequalityError
            If it is of no known kind, or not over different participants of the component.
        """
        kind, *numbers = text.split(" ")
        if not numbers or not all(k.isascii() and k.isdigit() and len(k) < 10 for k in numbers):
            raise NoInequalityError("an inequality is not a kind and numbers of participants")
        if len(numbers) > LONGEST + 1:
            raise NoInequalityError("an inequality is too long")
        places = [int(k) for k in numbers]
        if len(set(places)) < len(places) or max(places) >= len(number) or len(places) < 2:
            raise NoInequalityError("an inequality is not over different participants")
        centre, *others = (number[k] for k in places)
        for known in KINDS:
            if kind == known:
                if known == "wheel" and (len(others) % 2 == 0 or len(others) < 3):
                    raise NoInequalityError("the cycle of a wheel is not odd, or too short")
                return cls(known, centre, tuple(others))
        raise NoInequalityError(f"there is no inequality {kind[:20]!r}")

    def to_text(self) -> str:
        """Return the kind, the centre, and the others, as `from_text` reads them."""
        return " ".join((self.kind, *map(str, (self.centre, *self.others))))

    @property
    def right_side(self) -> int:
        """What the sum is at most."""
        if self.kind == "wheel":
            return len(self.others) // 2
        return 1 if self.kind == "star" else 0

    @property
    def size(self) -> int:
        """About the number of terms."""
        return len(self.others) * (2 if self.kind == "wheel" else len(self.others))

    def terms(
        self, givers: Iterable[int] = (), takers: Iterable[int] = ()
    ) -> Iterable[tuple[tuple[int, int], int]]:
        """Yield pairs with their factors; those of a pair that occurs twice add up.

        Parameters
        ----------
        givers, takers : iterable of int
            The givers and takers of the centre among its independents.
        """
        for other in self.others:
            yield (self.centre, other), 1
        pairs: Iterable[tuple[int, int]]
        if self.kind == "wheel":
            pairs = zip(self.others, (*self.others[1:], self.others[0]), strict=True)
        else:
            pairs = combinations(self.others, 2)
        for one, other in pairs:
            yield (one, other), -1
        if self.kind in ("givers", "takers"):
            for other in givers if self.kind == "givers" else takers:
                yield (self.centre, other), -1


@dataclass(frozen=True)
class SquareInequality:
    """The inequality of the squares of whole numbers, by participant.

    Examples
    --------
    Three participants with 1, 1 and -1: where the third is with one of the others, their total is
    zero, and where all are together, it is 1.

    >>> square = SquareInequality((1, 1, -1))
    >>> square.to_text()
    'square 1 1 -1'
    >>> dict(square.terms(), right=square.right_side)
    {(0, 1): -2, (0, 2): 2, (1, 2): 2, 'right': 2}
    """

    numbers: tuple[int, ...]

    @classmethod
    def from_text(cls, text: str, number: Sequence[int]) -> "SquareInequality":
        """Read an inequality; the arguments and errors are those of `PairInequality.from_text`."""
        _, *stated = text.split(" ")
        digits = (one.removeprefix("-") for one in stated)
        if not all(one.isascii() and one.isdigit() and len(one) < 20 for one in digits):
            raise NoInequalityError("a square is not of whole numbers")
        if len(stated) != len(number):
            raise NoInequalityError("a square has not one number for each participant")
        numbers = [0] * len(number)
        for k, one in zip(number, stated, strict=True):
            numbers[k] = int(one)
        if max(map(abs, numbers), default=0) > LARGEST:
            raise NoInequalityError("a number of a square is too large")
        return cls(tuple(numbers))

    def to_text(self) -> str:
        """Return the numbers in the order of the participants, as `from_text` reads them."""
        return " ".join(("square", *map(str, self.numbers)))

    @property
    def right_side(self) -> int:
        """What the sum is at most."""
        return sum(u * u for u in self.numbers) - abs(sum(self.numbers))

    @property
    def size(self) -> int:
        """About the number of terms."""
        return len(self.numbers) ** 2 // 2

    def terms(self) -> Iterable[tuple[tuple[int, int], int]]:
        """Yield pairs with their factors."""
        present = [(i, u) for i, u in enumerate(self.numbers) if u]
        for (i, u), (j, v) in combinations(present, 2):
            yield (i, j), -2 * u * v


def read_inequality(text: str, number: Sequence[int]) -> PairInequality | SquareInequality:
    """Read an inequality of any kind.

    Parameters
    ----------
    number : sequence of int
        The participant that each position in the text stands for.

    Raises
    ------
    NoInequalityError
        If it is none, or not over participants of the component.
    """
    kind: type[PairInequality] | type[SquareInequality]
    kind = SquareInequality if text.startswith("square ") else PairInequality
    return kind.from_text(text, number)
