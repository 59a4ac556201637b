"""Coalitions contracted to nodes, as bitsets: the data structure of every search for mergers.

A set of nodes is a Python integer; bit k means the coalition whose smallest member is participant
k. Unions, intersections and tests for emptiness are then single operations on a few machine words,
which makes formation a matter of milliseconds.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participant_graph import Ends


def bits(bitset: int) -> Iterator[int]:
    """Iterate over the positions of the bits that are set, smallest first.

    Examples
    --------
    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while bitset:
        low = bitset & -bitset
        yield low.bit_length() - 1
        bitset ^= low


def lowest(bitset: int) -> int:
    """Return the position of the lowest bit of a non-empty bitset."""
    return (bitset & -bitset).bit_length() - 1


def rows_as_bitsets(matrix: npt.NDArray[np.bool_]) -> list[int]:
    """Return each row of a boolean matrix as a bitset, column k as bit k."""
    packed = np.packbits(matrix, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def entries_as_bitsets(rows: Ends, columns: Ends, n: int) -> list[int]:
    """Return each row of a boolean matrix as a bitset, from the entries that are true."""
    bitsets = [0] * n
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        bitsets[row] |= 1 << column
    return bitsets


class BudgetSpentError(Exception):
    """The search used up its steps; its target is neither found nor excluded."""


class OutOfTimeError(Exception):
    """The deadline of a computation has passed; its result is not needed any more."""


class Budget:
    """A budget of search steps; the same on every machine, unlike a clock.

    After the deadline, by `time.perf_counter`, the whole computation is abandoned.
    """

    __slots__ = ("deadline", "left")

    def __init__(self, steps: int, deadline: float = math.inf) -> None:
        self.left = steps
        self.deadline = deadline

    def spend(self) -> None:
        """Use one step; raise `BudgetSpentError` when there is none left."""
        self.left -= 1
        if self.left < 0:
            raise BudgetSpentError
        if not self.left & 63:
            self.check_time()

    def check_time(self) -> None:
        """Raise `OutOfTimeError` if the deadline has passed."""
        if self.deadline < math.inf and time.perf_counter() > self.deadline:
            raise OutOfTimeError


class Contraction:
    """The graphs `Zb` and `Zc` of the paper's Definition 2, which change as coalitions merge.

    Attributes
    ----------
    nodes : int
        All nodes; node k is the coalition whose smallest member is k.
    big : int
        The nodes with two or more members; the others are singles.
    successors, predecessors : list of int
        By node: its successors and predecessors in `Zb`, the nodes it benefits and is benefited by.
    rivals : list of int
        By node: its neighbours in `Zc`, the nodes it competes with.
    members : list of int
        By node: its participants.
    """

    __slots__ = ("big", "members", "nodes", "predecessors", "rivals", "successors")

    def __init__(self, benefit: BenefitGraph, competition: CompetitionGraph) -> None:
        n = benefit.n
        givers, takers = benefit.entries[:2]
        self.successors = entries_as_bitsets(givers, takers, n)
        self.predecessors = entries_as_bitsets(takers, givers, n)
        rivals, others = competition.entries[:2]
        self.rivals = entries_as_bitsets(rivals, others, n)
        self.members = [1 << k for k in range(benefit.n)]
        self.nodes = (1 << benefit.n) - 1
        self.big = 0

    def copy(self) -> "Contraction":
        """Return a copy that can be merged by itself."""
        copy = Contraction.__new__(Contraction)
        copy.successors, copy.predecessors = list(self.successors), list(self.predecessors)
        copy.rivals, copy.members = list(self.rivals), list(self.members)
        copy.nodes, copy.big = self.nodes, self.big
        return copy

    def merge(self, group: int) -> int:
        """Unite the nodes of a group into one and return it (Algorithm 3 of the paper)."""
        keep = lowest(group)
        kept = 1 << keep
        gone = group ^ kept
        self.nodes &= ~gone
        for table in (self.successors, self.predecessors, self.rivals):
            union = 0
            for k in bits(group):
                union |= table[k]
            table[keep] = union & ~group
        for k in bits(gone):
            self.members[keep] |= self.members[k]
        # Edges that pointed to a node of the group now point to the node that is kept.
        for table, back in (
            (self.successors, self.predecessors),
            (self.predecessors, self.successors),
            (self.rivals, self.rivals),
        ):
            for k in bits(back[keep]):
                table[k] = table[k] & ~gone | kept
        self.big = self.big & ~gone | kept
        return keep

    def merge_all(self, groups: Iterable[Sequence[int]]) -> None:
        """Unite several groups of participants, given as positions."""
        for group in groups:
            if len(group) > 1:
                self.merge(sum(1 << k for k in group))

    def partition(self) -> list[list[int]]:
        """Return the coalitions in canonical order: members ascending, then by first member."""
        return [list(bits(self.members[k])) for k in bits(self.nodes)]
