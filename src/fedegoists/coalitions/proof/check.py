"""Check a certificate of coalitions with nothing but Python: python check.py certificate.json.

This file stands alone: it imports the standard library only, shares no code with the software that
wrote the certificate, and is short enough to be read before it is trusted. All sums are exact.

It confirms that the file is unchanged; that the coalitions are a partition without free riders and
without two competitors in a coalition; that the welfare is the one stated; that no valid partition
has a higher welfare than the upper bound; and that no coalitions should merge.

The upper bound is proven for each component by itself, a set of participants that give nothing to
the others. Prices p prove a bound b as follows. Let v(S) be the sum of the benefits in a coalition
S, and slack(S) the prices of its members, plus the prices of all triples of which two or three are
in S, minus v(S). Summed over a partition, the slacks are at most the sum of all prices minus the
welfare. So with no negative slack, a partition of a welfare above b has slacks that sum to less
than the gap, (sum of all prices) − b: list all coalitions with a slack below the gap, and see that
they do not combine. Prices of inequalities over pairs that every valid partition satisfies (stars,
wheels, squares; see `remaining_values`) first lower what pairs are worth: with prices y of
Σ a x ≤ s, the welfare is at most Σ y s plus what is left. A component of up to 14 participants
needs no prices: all partitions are tried.

A hostile file cannot keep this program busy: the steps of each claim and component are counted, the
numbers of all that it keeps are limited, and after --time-limit seconds it ends.

Exit status: 0 if every claim holds, 1 if one does not, 2 if the file cannot be read, 3 if a claim
is of a kind that this program does not check, 4 if a limit ended the check of a claim, and none of
the others is wrong.
"""

import argparse
import hashlib
import io
import json
import math
import os
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain, combinations
from pathlib import Path
from typing import Any

TRIED = 14
CLOSED = Fraction(1, 10**14)  # of a component's bound: what its coalitions may lack of it
LAST_PLACES = 4  # units in the last place by which a sum that is stated may be rounded
MOST_STEPS = 50_000_000  # for each component
MOST_PARTICIPANTS = 10_000
LONGEST = 200  # participants around the centre of an inequality
LONGEST_NAME = 200  # letters
LONGEST_LINE = 1000  # letters of a line of the answer
MOST_DIGITS = 400_000_000  # binary digits of all benefits together
MOST_BYTES = 100_000_000  # of the file
MOST_COALITIONS = 200_000  # with a slack below the gap; longer sets count as more
MOST_TRIPLES = 20_000  # that have a price
MOST_WAITING = 400_000  # branches of a listing; of more than 512 participants they count as more
MOST_KEPT = 8_000_000  # numbers that a listing remembers
MOST_PAIRS = 1_000_000  # of which inequalities change what they are worth


class RefutedError(Exception):
    """A claim that does not hold."""


class LimitError(RefutedError):
    """A claim whose check is longer or larger than is allowed; it may hold."""


class StepCount:
    """A count of steps, so that a hostile file cannot keep the program busy for ever."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self.left = most

    def spend(self, steps: int) -> None:
        """Count some steps."""
        self.left -= steps
        if self.left < 0:
            raise LimitError("not confirmed within the steps allowed")

    def keep(self, coalitions: int, part: int) -> None:
        """Refuse a list of coalitions that would fill the memory."""
        if coalitions * (1 + part.bit_length() // 512) > MOST_COALITIONS:
            raise LimitError("the prices leave more coalitions than are allowed")


class BothGraphs:
    """Benefits as integers in units of 1 / unit, and competitors, by participant."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.names = document["benefit"]["participants"]
        if self.names != document["competition"]["participants"]:
            raise RefutedError("the graphs are over different participants")
        number = {name: k for k, name in enumerate(self.names)}
        n = len(self.names)
        if len(number) < n:
            raise RefutedError("a participant occurs twice")
        if n > MOST_PARTICIPANTS:
            raise LimitError(f"there are more than {MOST_PARTICIPANTS} participants")
        if any(len(name) > LONGEST_NAME for name in self.names):
            raise LimitError(f"a name has more than {LONGEST_NAME} letters")
        self.number = number
        self.least = document.get("fewest_members", 1)
        if type(self.least) is not int or self.least < 1:
            raise RefutedError("the fewest members of a coalition are not a number of 1 or more")
        self.rivals = [0] * n
        for a, b in document["competition"]["pairs"]:
            if a == b:
                raise RefutedError("a participant competes with itself")
            self.rivals[number[a]] |= 1 << number[b]
            self.rivals[number[b]] |= 1 << number[a]
        self.unit = 2**64
        highest = 0.0
        for _, _, w in document["benefit"]["edges"]:
            if not (math.isfinite(w) and w >= 0):
                raise RefutedError("a benefit is negative or infinite")
            self.unit = max(self.unit, 2**64 * float(w).as_integer_ratio()[1])
            highest = max(highest, w)
        longest = self.unit.bit_length() + math.frexp(highest)[1]
        if longest * len(document["benefit"]["edges"]) > MOST_DIGITS:
            raise LimitError("the benefits have more digits together than are allowed")
        self.benefit: dict[tuple[int, int], int] = {}
        for a, b, w in document["benefit"]["edges"]:
            edge = number[a], number[b]
            if a == b or edge in self.benefit:
                raise RefutedError("a benefit is stated twice, or of a participant to itself")
            top, bottom = float(w).as_integer_ratio()
            self.benefit[edge] = top * (self.unit // bottom)
        for edge in [edge for edge, w in self.benefit.items() if not w]:
            del self.benefit[edge]
        self.givers = [0] * n
        self.takers = [0] * n
        self.value: list[dict[int, int]] = [{} for _ in range(n)]  # what two give each other
        for (a, b), w in self.benefit.items():
            if not self.rivals[a] >> b & 1:
                self.takers[a] |= 1 << b
                self.givers[b] |= 1 << a
                self.value[a][b] = self.value[a].get(b, 0) + w
                self.value[b][a] = self.value[b].get(a, 0) + w

    def valid(self, group: int) -> bool:
        """Whether a set without competitors is a coalition without free riders, large enough."""
        return group.bit_count() >= self.least and all(
            self.givers[i] & group and self.takers[i] & group for i in bits(group)
        )


def bits(group: int) -> Iterator[int]:
    """Return the participants of a set, which is an integer with a bit for each."""
    while group:
        yield (group & -group).bit_length() - 1
        group &= group - 1


# The file ----------------------------------------------------------------------------------------


def read_document(text: str) -> dict[str, Any]:
    """Read a file in which each number is finite, no key occurs twice, and all is of its type."""
    document: dict[str, Any] = json.loads(
        text,
        parse_float=finite,
        parse_int=whole,
        parse_constant=finite,
        object_pairs_hook=without_repeats,
    )
    form = document.get("format")
    if form != "fedegoists certificate" or document.get("version") != 1:
        raise ValueError(
            f"expected a certificate of version 1, got {str(form)[:50]!r}; try fedegoists verify"
        )
    if "values" in document:
        return document
    if not fits(document, DOCUMENT):
        raise ValueError("an entry is missing or is not of its type")
    entries = document.get("proof", [])
    if not fits([{**NOTHING_MORE, **one} for one in entries], [PROOF]):
        raise ValueError("an entry of the proof is missing or is not of its type")
    if "confidence" in document or "doubt" in document:
        raise ValueError("only decisions by expected gains or with errors have a confidence")
    names = [claim["claim"] for claim in document["claims"]]
    if len(set(names)) < len(names):
        raise ValueError("a claim is stated twice")
    return document


def finite(digits: str) -> float:
    """Return a number; NaN, which no comparison ever refutes, and infinities are none."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is infinite, too large or none at all")
    return value


def whole(digits: str) -> int:
    """Return a whole number that is not too large for a float."""
    finite(digits)
    return int(digits)


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a key that occurs twice, readers may see either value."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return dict(pairs)


def fits(value: Any, shape: Any) -> bool:
    """Return whether a value has a shape.

    That is a type, a list of things of one shape, a list with a shape for each place (a tuple), or
    an object with certain entries.
    """
    if isinstance(shape, list):
        return type(value) is list and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return type(value) is list and len(value) == len(shape) and all(map(fits, value, shape))
    if isinstance(shape, dict):
        return type(value) is dict and all(fits(value.get(key), shape[key]) for key in shape)
    return type(value) is shape or (shape is float and type(value) is int)


DOCUMENT = {
    "method": str,
    "coalitions": [[str]],
    "claims": [{"claim": str, "status": str}],
    "benefit": {"participants": [str], "edges": [(str, str, float)], "sha256": str},
    "competition": {"participants": [str], "pairs": [(str, str)], "sha256": str},
    "sha256": str,
}
NOTHING_MORE: dict[str, Any] = {"triples": [], "rows": [], "row_prices": []}
PROOF = {
    "members": [str],
    "prices": [float],
    "at_most": float,
    "triples": [(str, str, str, float)],
    "rows": [str],
    "row_prices": [float],
}


def check_unchanged(text: str, document: dict[str, Any]) -> str:
    """Compare all three digests: of the file, and of both graphs in canonical form."""
    head, digest, tail = text.rpartition(document["sha256"])
    blank = head + "0" * 64 + tail
    last = len(digest) == 64 and "".join(tail.split()) == '"}'
    if not last or hashlib.sha256(blank.encode()).hexdigest() != digest:
        raise RefutedError("the file was changed: its SHA-256 is not the one it states")
    number = {name: k for k, name in enumerate(document["benefit"]["participants"])}
    edges = sorted((number[a], number[b], float(w)) for a, b, w in document["benefit"]["edges"])
    pairs = sorted(sorted((number[a], number[b])) for a, b in document["competition"]["pairs"])
    links = {
        "benefit": ("edges", [[a, b, struct.pack(">d", w + 0.0).hex()] for a, b, w in edges if w]),
        "competition": ("pairs", pairs),
    }
    for kind, (name, rows) in links.items():
        graph = {name: rows, "kind": kind, "participants": document[kind]["participants"]}
        canonical = json.dumps(graph, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(canonical.encode()).hexdigest() != document[kind]["sha256"]:
            raise RefutedError(f"the SHA-256 of the {kind} graph is not the one stated")
    return "yes"


# The coalitions ----------------------------------------------------------------------------------


def read_partition(graphs: BothGraphs, document: dict[str, Any]) -> list[int]:
    """Return the coalitions as sets."""
    groups = []
    seen = 0
    for names in document["coalitions"]:
        group = 0
        for name in names:
            if name not in graphs.number or seen >> graphs.number[name] & 1:
                raise RefutedError(f"{name[:200]!r} is not a participant, or is there twice")
            seen |= 1 << graphs.number[name]
            group |= 1 << graphs.number[name]
        groups.append(group)
    if seen.bit_count() < len(graphs.names) or 0 in groups:
        raise RefutedError("a participant is in no coalition, or a coalition is empty")
    return groups


def check_free_riders(graphs: BothGraphs, groups: list[int]) -> str:
    """Principle 1: every member of a coalition of two or more gives and receives there."""
    giving = [0] * len(graphs.names)
    taking = [0] * len(graphs.names)
    for a, b in graphs.benefit:
        giving[a] |= 1 << b
        taking[b] |= 1 << a
    for group in groups:
        for i in bits(group) if group.bit_count() > 1 else ():
            if not (giving[i] & group and taking[i] & group):
                raise RefutedError(f"{graphs.names[i]} gives or receives nothing in its coalition")
    return "yes"


def check_conflicts(graphs: BothGraphs, groups: list[int]) -> str:
    """Principle 2: no coalition holds two competitors."""
    for group in groups:
        for i in bits(group):
            if graphs.rivals[i] & group:
                other = graphs.names[next(bits(graphs.rivals[i] & group))]
                raise RefutedError(f"{graphs.names[i]} and {other} compete and share a coalition")
    return "yes"


def check_sizes(graphs: BothGraphs, groups: list[int]) -> str:
    """Coalitions of two or more have the members demanded."""
    if any(1 < group.bit_count() < graphs.least for group in groups):
        raise RefutedError(f"a coalition of two or more has fewer than {graphs.least} members")
    return f"yes, at least {graphs.least}" if graphs.least > 1 else "yes, any number"


def welfare(graphs: BothGraphs, groups: list[int]) -> int:
    """Return the sum of the benefits inside coalitions."""
    home = {i: group for group in groups for i in bits(group)}
    return sum(w for (a, b), w in graphs.benefit.items() if home[a] == home[b])


def check_welfare(graphs: BothGraphs, groups: list[int], stated: float) -> str:
    """Compare the stated welfare with that of the coalitions."""
    exact = Fraction(welfare(graphs, groups), graphs.unit)
    if abs(exact - Fraction(stated)) > rounding(stated):
        raise RefutedError(f"it is {float(exact)!r}")
    return f"{stated:.12g}"


def rounding(stated: float) -> Fraction:
    """Return by how much a sum may differ from the number that states it."""
    return LAST_PLACES * Fraction(math.ulp(stated))


def check_stable(graphs: BothGraphs, groups: list[int], optimal: bool, steps: StepCount) -> str:
    """Confirm that no coalitions can merge with gain; in an optimal partition none can."""
    if optimal:
        return "yes, as the welfare is the highest possible"
    home = {i: k for k, group in enumerate(groups) for i in bits(group)}
    gives, takes, rivals = ([0] * len(groups) for _ in range(3))
    for a, b in graphs.benefit:
        if home[a] != home[b]:
            gives[home[a]] |= 1 << home[b]
            takes[home[b]] |= 1 << home[a]
    for i, others in enumerate(graphs.rivals):
        for j in bits(others):
            rivals[home[i]] |= 1 << home[j]
    # No two that compete are in one merger, so none of its givers, takers or gains is between such.
    gives = [given & ~others for given, others in zip(gives, rivals, strict=True)]
    takes = [taken & ~others for taken, others in zip(takes, rivals, strict=True)]

    # Whoever is alone needs a giver and a taker in any merger, of any size demanded. They do not
    # compete, or are the same coalition, which in a valid partition is not its own rival.
    def has_both(k: int, case: int) -> bool:
        givers = takes[k] & case
        for taker in bits(gives[k] & case) if givers else ():
            steps.spend(1)
            if givers & ~rivals[taker]:
                return True
        return False

    cases = [(1 << len(groups)) - 1]
    while cases:
        case = cases.pop()
        before = -1
        while case != before:  # drop those alone that lack a giver or a taker
            before = case
            for k in bits(case):
                steps.spend(1)
                if groups[k].bit_count() == 1 and not has_both(k, case):
                    case &= ~(1 << k)
        linked = sum(1 << k for k in bits(case) if (gives[k] | takes[k]) & case)
        if graphs.least <= 2:  # then those that can merge are linked, or some of them are
            case, left = 0, linked
            while left:
                if case:
                    cases.append(case)
                case, new = 0, left & -left
                while new:
                    steps.spend(new.bit_count())
                    case, left = case | new, left & ~new
                    near = 0
                    for k in bits(new):
                        near |= gives[k] | takes[k]
                    new = near & left
            linked = case
        if not linked or sum(groups[k].bit_count() for k in bits(case)) < graphs.least:
            continue
        worst = max(bits(case), key=lambda k: (rivals[k] & case).bit_count())
        if not rivals[worst] & case:
            raise RefutedError(f"{case.bit_count()} coalitions would gain by merging")
        cases += [case & ~(1 << worst), case & ~rivals[worst]]
    return "yes"


# The upper bound ---------------------------------------------------------------------------------


def components(graphs: BothGraphs) -> Iterator[tuple[int, dict[int, int]]]:
    """Return sets of participants that give nothing to one another, and colours of everybody.

    Participants that are alone in every valid partition are left out.
    """
    left = (1 << len(graphs.names)) - 1
    colour = coloured(graphs, left)
    if graphs.least > 2:
        classes: dict[int, int] = {}
        for i, c in colour.items():
            classes[c] = classes.get(c, 0) | 1 << i
        for i in colour:
            if sum(bool(c & ~graphs.rivals[i]) for c in classes.values()) < graphs.least:
                left &= ~(1 << i)
    doubtful = list(bits(left))
    while doubtful:  # leaving one out may deprive others of their giver or taker
        i = doubtful.pop()
        if left >> i & 1 and not (graphs.givers[i] & left and graphs.takers[i] & left):
            left &= ~(1 << i)
            doubtful += bits((graphs.givers[i] | graphs.takers[i]) & left)
    while left:
        found = new = left & -left
        while new:
            reached = 0
            for i in bits(new):
                near = graphs.givers[i] | graphs.takers[i]
                reached |= near if graphs.least <= 2 else ~graphs.rivals[i]
            new = reached & left & ~found
            found |= new
        left &= ~found
        yield found, colour


def coloured(graphs: BothGraphs, part: int) -> dict[int, int]:
    """Return a colour for each participant; all of a colour compete with one another."""
    numbers: dict[int, int] = {}
    sizes: list[int] = []
    for i in sorted(bits(part), key=lambda i: (-(graphs.rivals[i] & part).bit_count(), i)):
        met: dict[int, int] = {}
        for j in bits(graphs.rivals[i] & part):
            if j in numbers:
                met[numbers[j]] = met.get(numbers[j], 0) + 1
        numbers[i] = min((c for c, k in met.items() if k == sizes[c]), default=len(sizes))
        if numbers[i] == len(sizes):
            sizes.append(0)
        sizes[numbers[i]] += 1
    return numbers


def plain_bound(graphs: BothGraphs, part: int, colour: dict[int, int]) -> int:
    """Count for everybody the best partner of each colour, of which it has at most one.

    Benefits are counted where they are received, where they are given, or half at both.
    """
    totals = [0, 0, 0]
    for i in bits(part):
        best: tuple[dict[int, int], ...] = ({}, {}, {})
        for j, both in graphs.value[i].items():
            if part >> j & 1:
                counted = graphs.benefit.get((j, i), 0), graphs.benefit.get((i, j), 0), both
                for table, w in zip(best, counted, strict=True):
                    table[colour[j]] = max(table.get(colour[j], 0), w)
        totals = [old + sum(table.values()) for old, table in zip(totals, best, strict=True)]
    return min(totals[0], totals[1], totals[2] // 2)


def tried_bound(graphs: BothGraphs, part: int, steps: StepCount) -> int:
    """Return the highest welfare of all partitions of a few participants."""
    known = {0: 0}

    def grown(group: int, value: int, candidates: int) -> Iterator[tuple[int, int]]:
        """Return all sets that hold a group and some of the candidates, with their values."""
        steps.spend(1)
        yield group, value
        while candidates:
            j = candidates.bit_length() - 1
            candidates ^= 1 << j
            more = value + sum(graphs.value[j].get(i, 0) for i in bits(group))
            yield from grown(group | 1 << j, more, candidates & ~graphs.rivals[j])

    coalitions = {
        i: [
            pair
            for pair in grown(1 << i, 0, part & ((1 << i) - 1) & ~graphs.rivals[i])
            if graphs.valid(pair[0])
        ]
        for i in bits(part)
    }

    def best(left: int) -> int:
        if left not in known:
            last = left.bit_length() - 1
            steps.spend(1 + len(coalitions[last]))
            known[left] = max(
                best(left ^ 1 << last),
                *(v + best(left ^ group) for group, v in coalitions[last] if not group & ~left),
                0,
            )
        return known[left]

    return best(part)


LANE, ZERO = 64, 1 << 62  # bits of a number in a row of numbers, and what makes it positive
LARGEST = 1000  # participants of a component whose coalitions are listed


class Rows:
    """Numbers of all participants in one integer, so that one addition adds them all.

    The numbers are rounded to 58 bits, values up and prices down: profits are never too low.
    """

    def __init__(
        self,
        graphs: BothGraphs,
        part: int,
        value: dict[int, dict[int, int]],
        price: dict[int, int],
        triples: list[tuple[int, int]],
        steps: StepCount,
    ) -> None:
        self.names = list(bits(part))
        place = {i: k for k, i in enumerate(self.names)}
        total = sum(price.values()) + sum(p for _, p in triples)
        total += sum(abs(v) for own in value.values() for v in own.values())
        self.shift = max(total.bit_length() - 58, 0)
        self.price = [price[i] >> self.shift for i in self.names]
        self.worth: list[dict[int, int]] = [
            {place[j]: -(-v >> self.shift) for j, v in value[i].items()} for i in self.names
        ]
        # Any two of a triple pay a third of its price, and the second member pays the rest, which
        # the third gets back.
        self.triples: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for triple, exact in triples:
            three = {place[i] for i in bits(triple)}
            p = exact >> self.shift
            for k in three:
                others = sum(1 << o for o in three - {k})
                self.triples[k].append((others, p - p // 3))
                for o in three - {k}:
                    self.worth[k][o] = self.worth[k].get(o, 0) - p // 3

        def placed(group: int) -> int:
            return sum(1 << place[i] for i in bits(group & part))

        self.rivals = [placed(graphs.rivals[i]) for i in self.names]
        self.links = [(placed(graphs.givers[i]), placed(graphs.takers[i])) for i in self.names]
        colour = coloured(graphs, part)
        masks: dict[int, int] = {}
        for i, k in place.items():
            masks[colour[i]] = masks.get(colour[i], 0) | 1 << k
        self.classes = list(masks.values())
        self.best: list[dict[int, tuple[int, list[int]]]] = [{} for _ in self.classes]
        self.row: dict[int, int] = {}
        self.kept = 0
        self.steps = steps
        self.form = struct.Struct(f"<{len(self.names)}Q")
        self.zeros = sum(ZERO << LANE * k for k in range(len(self.names)))

    def joined(self, j: int) -> int:
        """Return what each participant is worth more once j is a member."""
        if j not in self.row:
            self.row[j] = sum(v << LANE * k for k, v in self.worth[j].items())
        return self.row[j]

    def paid_back(self, group: int, j: int) -> tuple[int, int]:
        """Return what j pays as the second member of triples, and a row of what the thirds get."""
        due = row = 0
        for others, p in self.triples[j]:
            if (others & group).bit_count() == 1:
                due += p
                row += p << LANE * ((others & ~group).bit_length() - 1)
        return due, row

    def most(self, c: int, some: int) -> tuple[int, list[int]]:
        """Return each participant's highest share of its worth with some of a class; and these.

        Two that are worth something to each other share it in halves.
        """
        known = self.best[c].get(some)
        if known is None:
            self.steps.spend(4 * len(self.names))
            highest = [0] * len(self.names)
            for k in bits(some):
                for i, v in self.worth[k].items():
                    share = (v + (i < k)) >> 1
                    if share > highest[i]:
                        highest[i] = share
            known = int.from_bytes(self.form.pack(*highest), "little"), list(bits(some))
            self.kept += len(self.names) + 32
            if self.kept > MOST_KEPT:  # forget all, and begin again
                self.best = [{} for _ in self.classes]
                self.kept = 0
            self.best[c][some] = known
        return known

    def numbers(self, row: int) -> tuple[int, ...]:
        """Return the numbers of a row, each too high by ZERO."""
        return self.form.unpack((row + self.zeros).to_bytes(self.form.size, "little"))

    def supported(self, group: int, candidates: int) -> int:
        """Drop candidates that would lack a giver or a taker; all, if a member lacks one."""
        before = -1
        while before != candidates:
            before = candidates
            inside = group | candidates
            for k in bits(inside):
                givers, takers = self.links[k]
                if not (givers & inside and takers & inside):
                    if group >> k & 1:
                        return 0
                    candidates &= ~(1 << k)
        return candidates


def slack_of(
    group: int,
    value: dict[int, dict[int, int]],
    price: dict[int, int],
    triples: list[tuple[int, int]],
) -> int:
    """Return the slack of a coalition, exactly."""
    paid = sum(price[i] for i in bits(group))
    paid += sum(p for triple, p in triples if (triple & group).bit_count() > 1)
    return paid - sum(value[i].get(j, 0) for i, j in combinations(bits(group), 2))


def listed(
    graphs: BothGraphs,
    part: int,
    value: dict[int, dict[int, int]],
    price: dict[int, int],
    triples: list[tuple[int, int]],
    gap: int,
    steps: StepCount,
) -> list[tuple[int, int]]:
    """Return all valid coalitions with a slack below the gap, as (slack, coalition).

    Sets grow member by member. At most one of each class of competitors joins, and adds at most
    what it adds alone, and its highest share of what it is worth with one of each class. A branch
    in which all classes together add too little has no such coalition.
    """
    if part.bit_count() > LARGEST:
        raise LimitError(f"prices are checked for at most {LARGEST} participants")
    rows = Rows(graphs, part, value, price, triples, steps)
    least = -(-gap >> rows.shift)  # rounded profits of what is listed are above minus this
    width = 1 + len(rows.names) // 32
    found = []
    alone = -sum(p << LANE * k for k, p in enumerate(rows.price))
    # The members, their profit, who may join, what each adds alone before the last member joined,
    # that member, and the classes left. What it changes is worked out when a branch is taken up.
    everybody = (1 << len(rows.names)) - 1
    branches = [(0, 0, everybody, alone, -1, list(range(len(rows.classes))))]
    while branches:
        group, profit, candidates, margins, last, classes = branches.pop()
        if last >= 0:
            margins += rows.joined(last) + rows.paid_back(group ^ 1 << last, last)[1]
        reached = margins
        present = []
        for c in classes:
            some = candidates & rows.classes[c]
            if some:
                share, members = rows.best[c].get(some) or rows.most(c, some)
                reached += share
                present.append((c, some, members))
        steps.spend(20 + (4 + width) * len(present))
        high = rows.numbers(reached)
        tops = []
        for c, some, members in present:
            top = max([high[k] for k in members]) - ZERO
            tops.append((top if top > 0 else 0, c, some, members))
        if profit + sum([top[0] for top in tops]) <= -least:
            continue
        kept = rows.supported(group, candidates)
        steps.spend(candidates.bit_count())
        if kept != candidates:
            if kept:
                branches.append((group, profit, kept, margins, -1, classes))
            continue
        own = rows.numbers(margins)
        tops.sort()
        before = 0
        bound = profit
        left = [top[1] for top in tops]
        for top, _, some, members in tops:
            bound += top
            for j in members if bound > -least else ():
                joined = group | 1 << j
                gained = profit + own[j] - ZERO - rows.paid_back(group, j)[0]
                steps.spend(4 + width + len(rows.triples[j]))
                if group and gained > -least:
                    found.append(joined)
                    steps.keep(len(found), part)
                fitting = before & ~rows.rivals[j]
                if fitting:
                    branches.append((joined, gained, fitting, margins, j, left))
            before |= some
        if len(branches) * (1 + len(rows.names) // 512) > MOST_WAITING:
            raise LimitError("listing coalitions needs more memory than is allowed")
    coalitions = []
    for placed in found:
        group = sum(1 << rows.names[k] for k in bits(placed))
        steps.spend(2 * placed.bit_count() ** 2 + len(triples) // 8)
        if graphs.valid(group):
            slack = slack_of(group, value, price, triples)
            if slack < gap:
                coalitions.append((slack, group))
    return coalitions


Options = dict[int, list[tuple[int, int]]]  # by participant: slacks and coalitions


def combines(
    graphs: BothGraphs,
    part: int,
    options: dict[int, list[tuple[int, int]]],
    gap: int,
    bound: int,
    steps: StepCount,
) -> bool:
    """Return whether coalitions with slacks that sum to less than the gap exceed the bound.

    They cover everybody once. Prices of triples and inequalities that they do not use up are in no
    slack, so their welfare decides.
    """
    worth: dict[int, int] = {}
    size = {group: group.bit_count() for own in options.values() for _, group in own}

    def fewest(left: int, room: int, known: Options) -> tuple[list[tuple[int, int]], Options]:
        """Return the options of somebody left who has fewest, and those of all left.

        None are left if the slacks of everybody's cheapest option, shared by its members, sum to
        too much.
        """
        steps.spend(sum(map(len, known.values())))
        fitting: Options = {}
        for i in bits(left):
            own = [one for one in known[i] if one[0] < room and not one[1] & ~left]
            fitting[i] = own
            if not own:
                return [], {}
        least = sum(min([slack // size[group] for slack, group in own]) for own in fitting.values())
        if least >= room:
            return [], {}
        number = min(map(len, fitting.values()))
        return next(list(own) for own in fitting.values() if len(own) == number), fitting

    # Who is left, the gap less the slacks so far, the welfare of the coalitions so far, and the
    # options for the next.
    branches = [(part, gap, 0, *fewest(part, gap, options))]
    while branches:
        left, room, total, choices, known = branches[-1]
        if not choices:
            branches.pop()
            continue
        slack, group = choices.pop()
        if group not in worth:
            steps.spend(group.bit_count() ** 2 // 8)
            pairs = combinations(bits(group), 2)
            worth[group] = sum(graphs.value[i].get(j, 0) for i, j in pairs)
        left, room, total = left & ~group, room - slack, total + worth[group]
        if left:
            branches.append((left, room, total, *fewest(left, room, known)))
        elif total > bound:
            return True
    return False


Terms = tuple[int, Iterator[tuple[int, int, int]]]  # the side, and (i, j, factor) for each pair


def centred_terms(
    graphs: BothGraphs, part: int, order: list[int], row: str, steps: StepCount
) -> Terms:
    """Return the side and the terms of a star, a wheel, or an inequality of givers or takers."""
    kind, *places = row.split()
    known = all(k.isdecimal() and int(k) < len(order) for k in places)
    if not known or not places or len({int(k) for k in places}) < len(places):
        raise RefutedError("an inequality is not over different participants")
    c, *others = (order[int(k)] for k in places)
    if len(others) > LONGEST:
        raise RefutedError("an inequality is too long")
    helps = {"givers": graphs.givers[c], "takers": graphs.takers[c]}.get(kind, 0) & part
    steps.spend(1 + len(others) ** 2 + helps.bit_count())
    pairs: Iterator[tuple[int, int]]
    if kind == "wheel" and len(others) >= 3 and len(others) % 2:
        pairs, side = zip(others, others[1:] + others[:1], strict=True), len(others) // 2
    elif kind in ("star", "givers", "takers") and others:
        pairs, side = combinations(others, 2), 1 if kind == "star" else 0
    else:
        raise RefutedError("an inequality is of no kind that is known to hold")
    spokes = chain(((c, j, 1) for j in others), ((c, j, -1) for j in bits(helps)))
    return side, chain(spokes, ((i, j, -1) for i, j in pairs))


def square_terms(order: list[int], row: str, steps: StepCount) -> Terms:
    """Return the side and the terms of a square."""
    stated = row.split()[1:]
    if len(stated) != len(order) or not all(re.fullmatch("-?[0-9]{1,13}", u) for u in stated):
        raise RefutedError("a square has not one whole number for each participant")
    number = [int(u) for u in stated]
    steps.spend(1 + len(order) ** 2 // 4)
    both = combinations([(i, u) for i, u in zip(order, number, strict=True) if u], 2)
    side = sum(u * u for u in number) - abs(sum(number))
    return side, ((i, j, -2 * u * v) for (i, u), (j, v) in both)


def remaining_values(
    graphs: BothGraphs, part: int, proof: dict[str, Any], steps: StepCount
) -> tuple[dict[int, dict[int, int]], int]:
    """Return what the prices of inequalities leave of each pair, and the sum of price times side.

    Each inequality but the last has a centre c and others T. It says of every valid partition, with
    x = 1 for pairs in the same coalition and 0 for others:

    star     The pairs (c, t) minus the pairs inside T are at most 1. If k of T are with c, the
             sum is at most k - k (k - 1) / 2, which is at most 1 for every k.
    givers   They are at most the number of givers of c that are with c. That is at least 1 if
    takers   anybody is with c, as nobody takes, or gives, without return (Principle 1).
    wheel    With T a cycle of odd length, the pairs (c, t) minus the neighbours on the cycle are
             at most half the length, rounded down. If all are with c, the sum is at most 0;
             otherwise those with c form runs on the cycle, each of which adds 1 at most.
    square   With a whole number u for everybody, the square of the sum of u over a coalition is at
             least its size. Over all coalitions, the squares sum to the squares of all u and 2 u v
             for each pair together; so -2 u v x is at most (sum of squares) - |sum of all u|.
    """
    value = {i: {j: v for j, v in graphs.value[i].items() if part >> j & 1} for i in bits(part)}
    order = [graphs.number[name] for name in proof["members"]]
    rows, prices = proof.get("rows", []), proof.get("row_prices", [])
    if len(rows) != len(prices):
        raise RefutedError("an inequality has no price")
    total = pairs = 0
    for row, stated in zip(rows, prices, strict=True):
        p = math.floor(Fraction(stated) * graphs.unit)
        if row.startswith("square "):
            side, terms = square_terms(order, row, steps)
        else:
            side, terms = centred_terms(graphs, part, order, row, steps)
        total += p * side
        for i, j, a in terms:
            if not graphs.rivals[i] >> j & 1:  # two competitors are never together
                pairs += j not in value[i]
                if pairs > MOST_PAIRS:
                    raise LimitError("the inequalities are over more pairs than are allowed")
                value[i][j] = value[j][i] = value[i].get(j, 0) - p * a
    return value, total


def priced_bound(graphs: BothGraphs, part: int, proof: dict[str, Any], steps: StepCount) -> int:
    """Return the bound that prices prove; an exception says that they do not."""
    numbers = [graphs.number[name] for name in proof["members"]]
    stated = [*proof["prices"], proof["at_most"], *proof.get("row_prices", [])]
    stated += [entry[3] for entry in proof.get("triples", [])]
    fine = all(type(p) in (int, float) and 0 <= p < math.inf for p in stated)
    if len(numbers) != len(proof["prices"]) or not fine:
        raise RefutedError("a price is missing, negative or not a number")
    price = {
        i: math.ceil(Fraction(p) * graphs.unit)
        for i, p in zip(numbers, proof["prices"], strict=True)
    }
    due: dict[int, int] = {}
    for a, b, c, p in proof.get("triples", []):
        triple = 1 << graphs.number[a] | 1 << graphs.number[b] | 1 << graphs.number[c]
        if triple.bit_count() != 3 or triple & ~part:
            raise RefutedError("a triple is not three participants of the component")
        due[triple] = due.get(triple, 0) + math.ceil(Fraction(p) * graphs.unit)
        if len(due) > MOST_TRIPLES:
            raise LimitError(f"more than {MOST_TRIPLES} triples have a price")
    triples = list(due.items())
    bound = math.floor(Fraction(proof["at_most"]) * graphs.unit)
    value, sides = remaining_values(graphs, part, proof, steps)
    gap = sum(price.values()) + sum(p for _, p in triples) + sides - bound
    found = listed(graphs, part, value, price, triples, max(gap, 0), steps)
    if any(slack < 0 for slack, _ in found):
        raise RefutedError("a coalition is worth more than its prices")
    options = {i: [(p, 1 << i)] for i, p in price.items()}
    for slack, group in found:
        for i in bits(group):
            options[i].append((slack, group))
    if gap > 0 and combines(graphs, part, options, gap, bound, steps):
        raise RefutedError("a valid partition has a higher welfare than a component's bound")
    return bound


def check_bound(
    graphs: BothGraphs, groups: list[int], document: dict[str, Any], stated: float
) -> tuple[str, bool]:
    """Confirm the bound; return it, and whether the coalitions reach it."""
    proofs = {}
    for proof in document.get("proof", []):
        part = sum({1 << graphs.number[name] for name in proof["members"]})
        if part in proofs or part.bit_count() != len(proof["members"]):
            raise RefutedError("a component has two proofs, or a participant two prices")
        proofs[part] = proof
    parts = list(components(graphs))
    bounds = [plain_bound(graphs, part, colour) for part, colour in parts]
    reached = [welfare_inside(graphs, groups, part) for part, _ in parts]
    own = welfare(graphs, groups)
    highest = (Fraction(stated) + rounding(stated)) * graphs.unit
    if own > highest:
        raise RefutedError("the coalitions themselves have a higher welfare")
    # Beside a large benefit of others, rounding could hide what a component lacks.
    best = Fraction(stated) - rounding(stated) <= Fraction(own / graphs.unit)
    counted = [counted_part(*pair) for pair in zip(bounds, reached, strict=True)]
    for k, (part, _) in enumerate(parts):
        proof = proofs.pop(part, None)
        if counted[k] <= reached[k] or (sum(counted) <= highest and not best):
            continue
        if proof is not None:
            bounds[k] = min(bounds[k], priced_bound(graphs, part, proof, StepCount()))
        elif part.bit_count() <= TRIED:
            bounds[k] = tried_bound(graphs, part, StepCount())
        counted[k] = counted_part(bounds[k], reached[k])
    if proofs:
        raise RefutedError("a proof is about participants that are no component")
    if sum(counted) > highest:
        raise RefutedError(f"only {float(Fraction(sum(counted), graphs.unit))!r} is proven")
    for (part, _), most, has in zip(parts, counted, reached, strict=True):
        if best and most > has:
            who = f"{graphs.names[next(bits(part))]} and {part.bit_count() - 1} others"
            more = f"{most / graphs.unit!r} is proven, and they reach {has / graphs.unit!r}"
            raise RefutedError(f"of {who} at most {more}")
    return f"{stated:.12g}", sum(bounds) <= own


def counted_part(bound: int, reached: int) -> int:
    """Return what a component adds to the upper bound: what it reaches, if that is all but equal.

    Anything more that it may lack counts in full, however much the other components are worth.
    """
    return reached if bound - reached <= bound * CLOSED else bound


def welfare_inside(graphs: BothGraphs, groups: list[int], part: int) -> int:
    """Return the sum of the benefits inside coalitions, of some participants only."""
    home = {i: k for k, group in enumerate(groups) for i in bits(group & part)}
    pairs = ((home[i], home.get(j), v) for i in home for j, v in graphs.value[i].items())
    return sum(v for one, other, v in pairs if one == other) // 2


# The program -------------------------------------------------------------------------------------


CHECKED = (
    "no free riders",
    "no conflicts",
    "enough members",
    "merge-stable",
    "welfare",
    "upper bound",
)


def check(text: str, lines: list[str] | None = None) -> tuple[bool, bool, list[str]]:
    """Check a certificate: whether all claims hold, whether none was left out, and the lines.

    The lines are added to a list as they are found, if one is given.
    """
    document = read_document(text)
    lines = [] if lines is None else lines
    if "values" in document:
        told = "decided by expected gains or with errors: not checked by this program"
        lines.append(f"       {told}; use fedegoists verify")
        return True, False, lines
    fine = checked = True

    def confirm(name: str, test: Callable[..., Any], *arguments: object) -> Any:
        nonlocal fine
        try:
            result = test(*arguments)
        except RefutedError as problem:
            fine = False
            kind = "OPEN " if isinstance(problem, LimitError) else "WRONG"
            lines.append(f"{kind}  {name}: {problem}")
            return None
        lines.append(f"ok     {name}: {result[0] if isinstance(result, tuple) else result}")
        return result

    confirm("unchanged", check_unchanged, text, document)
    graphs = BothGraphs(document)
    groups = read_partition(graphs, document)
    claims = {claim["claim"]: claim for claim in document["claims"]}
    if not fits(claims, {"welfare": {"value": float}, "upper bound": {"value": float}}):
        raise ValueError("the welfare or the upper bound is not stated as a number")
    confirm("no free riders", check_free_riders, graphs, groups)
    confirm("no conflicts", check_conflicts, graphs, groups)
    confirm("enough members", check_sizes, graphs, groups)
    alone = [1 << i for i in range(len(graphs.names))]
    valid = groups if fine else alone  # everybody alone is always valid
    confirm("welfare", check_welfare, graphs, groups, claims["welfare"]["value"])
    stated = claims["upper bound"]["value"]
    bound = confirm("upper bound", check_bound, graphs, valid, document, stated)
    optimal = bound is not None and bound[1] and valid is groups
    # Method 'truthful' promises no merge-stability, and may state that coalitions could merge.
    unclaimed = claims["merge-stable"]["status"] != "proven" and document["method"] == "truthful"
    if unclaimed:
        lines.append("       merge-stable: not claimed; method 'truthful' does not promise it")
    else:
        confirm("merge-stable", check_stable, graphs, groups, optimal, StepCount())
    for name, claim in claims.items():
        if claim["status"] != "proven" and not (
            name == "objective" or (name == "merge-stable" and unclaimed)
        ):
            fine = False
            lines.append(f"WRONG  {name}: the certificate itself does not claim it")
        if name not in CHECKED:
            checked = checked and name == "objective" and claim["status"] != "proven"
            lines.append(f"       {name}: not checked by this program")
    return fine, checked, lines


UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def visible(line: str) -> str:
    """Escape what a file could use to look like another line of the answer."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line[:LONGEST_LINE])


def exit_status(lines: list[str], checked: bool) -> int:
    """Return the exit status for the lines found."""
    if any(line.startswith("WRONG") for line in lines):
        return 1
    return 4 if any(line.startswith("OPEN") for line in lines) else 0 if checked else 3


def give_up(lines: list[str], seconds: float) -> None:
    """Show what was found so far, and end the program in the middle of whatever it does."""
    told = [*lines, f"OPEN   the rest: not checked within {seconds:g} s; see --time-limit"]
    try:
        os.write(1, ("\n".join(map(visible, told)) + "\n").encode(errors="backslashreplace"))
    finally:  # whether anybody reads it or not
        os._exit(exit_status(told, checked=False))


def answer(name: str, lines: list[str]) -> int:
    """Check a file, and add what is found to the lines; return the exit status."""
    checked = True
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            content = file.read(MOST_BYTES + 1)  # a device may have no end
        if len(content) > MOST_BYTES:
            raise LimitError(f"the file has more than {MOST_BYTES:,} bytes")
        _, checked, _ = check(content.decode(), lines)
    except LimitError as problem:
        lines.append(f"OPEN   {problem}")
    except RefutedError as problem:
        lines.append(f"WRONG  {problem}")
    except MemoryError:
        lines.append("OPEN   the check needs more memory than there is")
    except UNREADABLE as problem:
        told = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        print(visible(f"{name}: cannot be read as a certificate: {told}"), file=sys.stderr)
        return 2
    print("\n".join(map(visible, lines)))
    return exit_status(lines, checked)


def main() -> int:
    """Check the certificate that the command line names."""
    parser = argparse.ArgumentParser(description="Check a certificate of coalitions.")
    parser.add_argument("certificate", help="the file, or - for standard input")
    about = "end after so many seconds (default: %(default)s)"
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help=about)
    given = parser.parse_args()
    if not 0 < given.time_limit < threading.TIMEOUT_MAX:
        parser.error("the time limit is no positive number of seconds")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may have letters that it cannot show
            stream.reconfigure(errors="backslashreplace")
    lines: list[str] = []
    end = threading.Timer(given.time_limit, give_up, (lines, given.time_limit))
    end.daemon = True
    end.start()
    try:
        return answer(given.certificate, lines)
    finally:
        end.cancel()


if __name__ == "__main__":
    sys.exit(main())
