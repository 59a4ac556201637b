"""What the compiled searches keep in memory, as tuples of arrays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words

__all__ = ["Search", "Tables"]


class Tables(NamedTuple):
    """For `moves`: the instance, where everybody is, and what they would find elsewhere."""

    value: Floats  # what two give each other; nothing between competitors
    link: npt.NDArray[np.int32]  # what the first of two counts for the second; see `moves.GIVER`
    near: Ints  # by participant, whom it could gain with, padded
    n_near: Ints
    out: Ints  # by participant, whom it benefits and does not compete with, padded
    n_out: Ints
    label: Ints  # the coalition somebody is in, -1 for nobody's
    place: Ints  # where it stands in the coalition's list
    size: Ints
    member: Ints  # by coalition, its members, padded
    riders: Ints  # by coalition, how many free riders it has
    worth: Floats  # by coalition and participant, like the next
    found: npt.NDArray[np.int32]  # how many givers, takers and competitors somebody finds there
    best: Ints  # the labels of the best partition
    totals: Floats  # welfare, free riders, best welfare without free riders, moves tried
    random: npt.NDArray[np.uint64]


class Search(NamedTuple):
    """For `pricing`: the instance, the prices, and a depth-first search that can be continued."""

    value: Floats  # what two give each other
    price: Floats
    rival: Bools
    rivals: Words  # the same as bitsets
    givers: Words
    takers: Words
    chosen: Ints
    candidate: Ints  # by depth, padded; like the next ones
    position: Ints  # by depth: the candidate to branch on next
    first: Ints  # by depth: the first candidate that has to be branched on
    margin: Floats  # by depth and participant: the profit it would add
    prefix: Floats  # by depth and candidate: bound on sets with candidates up to this one
    profit: Floats
    inside: Words  # by depth: members and candidates
    members: Words  # by depth
    # Cuts: a set that holds two or three of a triple pays the triple's price.
    triple: Ints
    triple_price: Floats
    triples_of: Ints  # by participant, padded
    n_triples_of: Ints
    penalty: Floats  # by depth and participant: what joining would cost for triples
    # Scratch space.
    group_of: Ints
    group_mask: Words
    group_top: Floats
    share: Floats
    order: Ints
    # Results.
    found: Bools
    state: Ints  # depth or -1 when done, number found, steps
