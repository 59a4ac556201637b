"""The state of the compiled searches: named tuples of arrays, which Numba can pass around."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words


def padded_lists(relation: Bools) -> tuple[Ints, Ints]:
    """Return the related columns of each row as rows of equal length, and their numbers."""
    counts = relation.sum(axis=1).astype(np.int64)
    rows = np.zeros((len(relation), max(int(counts.max(initial=0)), 1)), dtype=np.int64)
    for i, count in enumerate(counts):
        rows[i, :count] = np.flatnonzero(relation[i])
    return rows, counts


class AnnealingState(NamedTuple):
    """For `moves`: the instance, the current partition, and tables that value every move."""

    # The instance.
    value: Floats  # value of a pair: what two give each other; nothing between competitors
    link: npt.NDArray[np.int32]  # link[i, k]: what i counts for k; see `moves.GIVER`
    near: Ints  # by participant: the others of positive value, padded
    n_near: Ints
    out: Ints  # by participant: the others it benefits and does not compete with, padded
    n_out: Ints
    # The partition. Coalitions of two or more have a slot; participants alone have label -1.
    label: Ints  # by participant: the slot of its coalition
    place: Ints  # by participant: its place in the coalition's list of members
    size: Ints  # by slot
    member: Ints  # by slot: the members, padded
    riders: Ints  # by slot: the number of free riders
    # By slot and participant, members or not:
    worth: Floats  # the value of the participant and the coalition to each other
    found: npt.NDArray[np.int32]  # its givers, takers and competitors there, in one number
    # Results.
    best: Ints  # the labels of the best partition without free riders
    totals: Floats  # see `moves.WELFARE`
    random: Words  # the state of the random numbers
    # Scratch space of one proposal.
    path: Ints  # the participants of an ear
    pushed: Ints  # the competitors that a newcomer pushes out
    home: Ints  # the slot that each of them goes to, -1 for alone
    log: Ints  # the steps made, as rows of participant, slot, and 1 to enter or -1 to leave
    touched: Ints  # the slots whose members changed


class PricingState(NamedTuple):
    """For `pricing`: the instance, the prices, and a depth-first search that can be continued."""

    # The instance.
    value: Floats  # value of a pair: what two give each other
    half: Floats  # half of that
    price: Floats  # by participant
    rival: Bools
    rivals: Words  # the same as bitsets
    givers: Words
    takers: Words
    # The search, by depth; a branch holds the members chosen so far and candidates to add.
    chosen: Ints  # the member added at this depth
    candidate: Ints  # the candidates, padded
    position: Ints  # the candidate to branch on next
    first: Ints  # the first candidate that has to be branched on
    margin: Floats  # by participant: the profit it would add
    prefix: Floats  # by candidate: bound on sets with candidates up to this one
    profit: Floats  # of the members
    inside: Words  # members and candidates
    members: Words
    # Cuts: a set that holds two or three of a triple pays the triple's price.
    triple: Ints
    triple_price: Floats
    triples_of: Ints  # by participant, padded
    n_triples_of: Ints
    penalty: Floats  # by depth and participant: the price of triples if it joined
    # Values of pairs of candidates and their shares for `pair_splits`, by slot. Slot 0 is for no
    # member; a branch at depth d has slot d + 1 if it changes them, or that of a shorter one.
    pair: Floats
    share: Floats
    slot: Ints  # by depth; -1 without room
    # Scratch space for the bound of a branch. Groups begin at places among the candidates.
    group_of: Ints
    group_mask: Words
    group_start: Ints
    group_end: Ints
    group_top: Floats
    alone: Floats  # by place: the margin
    message: Floats
    most: Floats
    order: Ints
    # Results.
    found: Bools  # the coalitions found, as rows
    state: Ints  # see `pricing.DEPTH`
