"""The competition graph: its content, and the pairs and matrices it refuses."""

import numpy as np
import pytest

from fedegoists.errors import GraphError, SettingsError
from fedegoists.graphs import CompetitionGraph
from tests.graphs.graph_strategies import (
    graph_nsew,
)


class TestContent:
    def test_pairs_without_direction_in_the_order_of_participants(self) -> None:
        graph = graph_nsew()
        assert graph.n == 4
        assert graph.participants == ("North", "South", "East", "West")
        assert graph.pairs == (("North", "South"), ("North", "West"))
        assert graph.competes("West", "North") is graph.competes(0, 3) is True
        assert graph.competes("South", "West") is graph.competes("North", "North") is False
        assert graph.competitors("North") == ("South", "West")
        assert graph.competitors(3) == ("North",)
        assert graph.competitors("East") == ()

    def test_the_matrix_by_hand(self) -> None:
        assert graph_nsew().matrix.dtype == np.bool_
        assert graph_nsew().matrix.astype(int).tolist() == [
            [0, 1, 0, 1],
            [1, 0, 0, 0],
            [0, 0, 0, 0],
            [1, 0, 0, 0],
        ]

    @pytest.mark.parametrize(
        "pairs",
        [
            [(0, 2)],
            [(2, 0)],
            [["v0", "v2"]],
            [("v2", 0)],
            iter([(0, 2)]),
            [(np.int64(0), np.uint8(2))],
            np.array([[0, 2]]),
            np.array([["v0", "v2"]]),
        ],
    )
    def test_pairs_by_name_or_position(self, pairs: object) -> None:
        graph = CompetitionGraph(pairs, 3)  # type: ignore[arg-type]
        assert graph.pairs == (("v0", "v2"),)
        assert type(graph.pairs[0][0]) is str

    def test_how_many_instead_of_names(self) -> None:
        assert CompetitionGraph([], 3).participants == ("v0", "v1", "v2")
        assert CompetitionGraph([], np.int32(3)).participants == ("v0", "v1", "v2")  # type: ignore[arg-type]

    def test_nobody_and_one(self) -> None:
        nobody = CompetitionGraph([], 0)
        assert (nobody.n, nobody.pairs, nobody.matrix.shape) == (0, (), (0, 0))
        assert nobody == CompetitionGraph([], []) == CompetitionGraph.from_numpy([])
        one = CompetitionGraph([], ["a"])
        assert (one.n, one.pairs, one.matrix.tolist()) == (1, (), [[False]])
        assert one == CompetitionGraph.from_numpy([[0]], ["a"])

    def test_restricted_in_the_order_given(self) -> None:
        part = graph_nsew().restricted_to(["West", "East", "North"])
        assert part == CompetitionGraph([(0, 2)], ["West", "East", "North"])
        assert graph_nsew().restricted_to([]) == CompetitionGraph([], 0)

    def test_restricted_by_a_name_with_its_accent_written_otherwise(self) -> None:
        graph = CompetitionGraph([("Z\u00fcrich", "Genf")], ["Z\u00fcrich", "Genf"])
        assert graph.restricted_to(["Zu\u0308rich", "Genf"]) == graph

    def test_restricted_to_strangers_or_twice_the_same(self) -> None:
        with pytest.raises(GraphError, match=r"^restriction: unknown participant 'Nord'; did you "):
            graph_nsew().restricted_to(["Nord"])
        with pytest.raises(GraphError, match="the name 'North' is listed twice"):
            graph_nsew().restricted_to(["North", "North"])

    def test_asked_about_strangers(self) -> None:
        with pytest.raises(GraphError, match=r"^competition: unknown participant 'x'; known are"):
            graph_nsew().competes("North", "x")
        with pytest.raises(GraphError, match=r"^competition: 4 is not a participant"):
            graph_nsew().competitors(4)

    def test_repr(self) -> None:
        assert repr(graph_nsew()) == "<CompetitionGraph: 4 participants, 2 pairs>"


class TestChanged:
    def test_pairs_end_and_begin(self) -> None:
        graph = graph_nsew()
        after = graph.changed(add=[("East", "South"), (2, 3)], remove=[("South", "North")])
        assert after.pairs == (("North", "West"), ("South", "East"), ("East", "West"))
        assert after.participants == graph.participants
        assert graph == graph_nsew()
        assert not after.matrix.flags.writeable

    def test_a_pair_may_end_and_begin_again(self) -> None:
        pairs = [("South", "North")]
        assert graph_nsew().changed(add=pairs, remove=pairs) == graph_nsew()

    @pytest.mark.parametrize(
        ("add", "remove", "error", "message"),
        [
            ([("South", "North")], [], SettingsError, "'South' and 'North' compete already"),
            ([(1, 2), (2, 1)], [], SettingsError, "'East' and 'South' compete already; nothing"),
            ([], [(1, 2)], SettingsError, "^'South' and 'East' do not compete; nothing to remove$"),
            ([(1, 1)], [], GraphError, "^competition: 'South' cannot compete with itself"),
            ([("x", 0)], [], GraphError, "^competition: unknown participant 'x'"),
        ],
    )
    def test_what_does_not_fit(
        self, add: list, remove: list, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            graph_nsew().changed(add, remove)


class TestRefusedPairs:
    @pytest.mark.parametrize(
        ("pair", "message"),
        [
            (("a", "a"), "'a' cannot compete with itself; remove the pair$"),
            ((1, "b"), "'b' cannot compete with itself; remove the pair$"),
            (("b", "c"), "the pair of 'b' and 'c' is listed twice; keep one$"),
            (("c", "b"), "the pair of 'c' and 'b' is listed twice; keep one$"),
            ((2, 1), "the pair of 'c' and 'b' is listed twice"),
            (("a", "Zug"), "unknown participant 'Zug'; known are 'a', 'b', 'c'$"),
            (("a", "1"), "unknown participant '1'"),
            (("a", 3), "3 is not a participant; expected a name or a position from 0 to 2$"),
            (("a", -1), "-1 is not a participant"),
            (("a", True), "True is not a participant"),
            (("a", 1.0), r"1\.0 is not a participant"),
            (("a", None), "None is not a participant"),
            (("a", ("b",)), r"\('b',\) is not a participant"),
            (("a", 10**5000), "a value of type int is not a participant"),
            (("a",), r"\('a',\) is not a pair of two participants$"),
            (("a", "b", 1), r"\('a', 'b', 1\) is not a pair of two participants$"),
            ("ab", "'ab' is not a pair of two participants$"),
            (b"\0\1", r"b'\\x00\\x01' is not a pair of two participants$"),
            ({"a": 1, "b": 2}, r"\{'a': 1, 'b': 2\} is not a pair"),
            (np.array(1), "1 is not a pair of two participants$"),
            (7, "7 is not a pair of two participants$"),
            (None, "None is not a pair of two participants$"),
        ],
        ids=lambda value: "" if isinstance(value, tuple) else None,
    )
    def test_a_pair_that_is_none(self, pair: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^competition pair 1: {message}"):
            CompetitionGraph([("b", "c"), pair], ["a", "b", "c"])  # type: ignore[list-item]

    @pytest.mark.parametrize("pairs", [None, 5, True])
    def test_no_list_of_pairs(self, pairs: object) -> None:
        with pytest.raises(
            GraphError, match=f"^competition pairs: expected a list of them, got {pairs}$"
        ):
            CompetitionGraph(pairs, 3)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("participants", "message"),
        [
            (-1, "-1 participants; expected a number that is not negative$"),
            (10001, "too many participants; at most 10,000 are supported$"),
            (10**5000, "too many participants; at most 10,000 are supported$"),
            (-(10**5000), "a value of type int participants; expected a number"),
            (True, "expected a list of names, got True$"),
            (None, "expected a list of names, got None$"),
            (2.0, r"expected a list of names, got 2\.0$"),
            ("ab", "expected a list of names, not the single string 'ab'$"),
            ({"a", "b"}, "a set of names has no order"),
            (["a", "b", "a"], r"the name 'a' is listed twice \(positions 0 and 2\)"),
            (["a", 1], "1 is not a name"),
            (["a", ""], "a participant's name is empty$"),
        ],
        ids=lambda value: "" if isinstance(value, int) else None,
    )
    def test_wrong_participants(self, participants: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^competition graph: {message}"):
            CompetitionGraph([], participants)  # type: ignore[arg-type]


class TestFromNumpy:
    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            ([[0, 1, 0], [1, 0, 1], [0, 0, 0]], "'b' and 'c' compete in one direction only; the m"),
            ([[0, 0, 0], [0, 0, 0], [1, 0, 0]], "'a' and 'c' compete in one direction only; the m"),
            ([[0, 0, 0], [0, 1, 0], [0, 0, 0]], "'b' competes with itself; set the diagonal to z"),
            ([[0, 0, 2], [0, 0, 0], [2, 0, 0]], "the entry of 'a' and 'c' is 2; expected booleans"),
            (
                [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]],
                r"the entry of 'a' and 'b' is 0\.5; expected",
            ),
            ([[0, 0, 0], [-1, 0, 0], [0, 0, 0]], "the entry of 'b' and 'a' is -1; expected boole"),
            ([[0, np.nan, 0], [0, 0, 0], [0, 0, 0]], "the entry of 'a' and 'b' is nan; expected b"),
            ([[0, np.inf, 0], [0, 0, 0], [0, 0, 0]], "the entry of 'a' and 'b' is inf; expected b"),
            ([[0, 1], [1, 0]], "2 rows for 3 participants$"),
            ([], "0 rows for 3 participants$"),
            (
                [0, 1, 0],
                r".*of booleans, or of zeros and ones, got shape \(3,\)$",
            ),
            (
                [[], [], []],
                r".*of booleans, or of zeros and ones, got shape \(3, 0\)$",
            ),
            (
                np.zeros((3, 3, 3)),
                r".*of booleans, or of zeros and ones, got shape \(3, 3, 3\)$",
            ),
            (1, r".*of booleans, or of zeros and ones, got shape \(\)$"),
            (
                [[0, 1], [1]],
                ".*of booleans, or of zeros and ones, got rows of different lengths$",
            ),
            ([["0"] * 3] * 3, ".* got values of type <U1$"),
            ([[0j] * 3] * 3, ".* got values of type complex128$"),
            ([[None] * 3] * 3, ".* got values of type object$"),
        ],
    )
    def test_wrong_matrices(self, matrix: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^competition graph: {message}"):
            CompetitionGraph.from_numpy(matrix, ["a", "b", "c"])  # type: ignore[arg-type]

    def test_more_participants_than_allowed(self) -> None:
        with pytest.raises(GraphError, match=r"^competition graph: too many participants"):
            CompetitionGraph.from_numpy(np.broadcast_to(np.False_, (10001, 10001)))

    def test_names_left_out(self) -> None:
        assert CompetitionGraph.from_numpy([[0, 1], [1, 0]]).pairs == (("v0", "v1"),)
