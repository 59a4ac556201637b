"""The benefit graph: its content, and the weights and edges it refuses."""

from fractions import Fraction

import numpy as np
import pytest

from fedegoists.errors import GraphError
from fedegoists.graphs import MAX_PARTICIPANTS, BenefitGraph
from tests.graphs.graph_strategies import (
    graph_abc,
)


class TestContent:
    def test_source_in_rows_target_in_columns(self) -> None:
        graph = graph_abc()
        assert graph.n == 3
        assert graph.participants == ("a", "b", "c")
        assert graph.weights[0, 1] == 0.5
        assert graph.weights.dtype == np.float64
        assert graph.benefit("a", "b") == graph.benefit(0, 1) == 0.5
        assert graph.benefit("b", "a") == graph.benefit(np.int64(1), 0) == 0.0
        assert list(graph.edges()) == [("a", "b", 0.5), ("a", "c", 2.0), ("c", "a", 1e-300)]

    def test_names_left_out(self) -> None:
        assert BenefitGraph([[0, 1], [0, 0]]).participants == ("v0", "v1")

    def test_names_of_any_iterable(self) -> None:
        assert BenefitGraph(np.zeros((2, 2)), iter("ab")).participants == ("a", "b")
        assert BenefitGraph(np.zeros((2, 2)), np.array(["a", "b"])).participants == ("a", "b")

    @pytest.mark.parametrize("weights", [[], np.zeros((0, 0)), np.zeros((0, 0), dtype=int)])
    def test_nobody(self, weights: object) -> None:
        graph = BenefitGraph(weights)  # type: ignore[arg-type]
        assert (graph.n, graph.participants, graph.weights.shape) == (0, (), (0, 0))
        assert graph == BenefitGraph([], [])
        assert list(graph.edges()) == []

    def test_one(self) -> None:
        graph = BenefitGraph([[0]], ["a"])
        assert graph.n == 1
        assert list(graph.edges()) == []

    @pytest.mark.parametrize(
        "weights",
        [
            [[0, 1], [0, 0]],
            ((0, 1.0), (0, 0)),
            np.array([[0, 1], [0, 0]], dtype=np.uint8),
            np.array([[0, 1], [0, 0]], dtype=np.float16),
            np.array([[False, True], [False, False]]),
            np.asfortranarray([[0.0, 1.0], [0.0, 0.0]]),
            np.array([[0.0, 9.0, 1.0], [0.0, 9.0, 0.0]])[:, ::2],
        ],
    )
    def test_matrices_of_any_kind_of_number(self, weights: object) -> None:
        graph = BenefitGraph(weights)  # type: ignore[arg-type]
        assert graph.weights.tolist() == [[0.0, 1.0], [0.0, 0.0]]
        assert graph.weights.flags.c_contiguous

    def test_edges_by_name_and_position(self) -> None:
        graph = BenefitGraph.from_edges([("a", 1, 0.5), [np.int8(2), "b", 2]], ["a", "b", "c"])
        assert list(graph.edges()) == [("a", "b", 0.5), ("c", "b", 2.0)]

    def test_an_edge_of_weight_zero_is_no_edge(self) -> None:
        assert list(BenefitGraph.from_edges([("a", "b", 0)], ["a", "b"]).edges()) == []

    def test_restricted_in_the_order_given(self) -> None:
        part = graph_abc().restricted_to(["c", "a"])
        assert part == BenefitGraph([[0, 1e-300], [2, 0]], ["c", "a"])
        assert graph_abc().restricted_to([]) == BenefitGraph([])

    def test_restricted_to_strangers_or_twice_the_same(self) -> None:
        with pytest.raises(GraphError, match=r"^restriction: unknown participant 'd'"):
            graph_abc().restricted_to(["a", "d"])
        with pytest.raises(GraphError, match="the name 'a' is listed twice"):
            graph_abc().restricted_to(["a", "a"])

    def test_asked_about_strangers(self) -> None:
        with pytest.raises(GraphError, match=r"^benefit: unknown participant 'd'; known are 'a'"):
            graph_abc().benefit("a", "d")
        with pytest.raises(GraphError, match=r"^benefit: -1 is not a participant"):
            graph_abc().benefit(-1, "a")
        with pytest.raises(GraphError, match=r"^benefit: True is not a participant"):
            graph_abc().benefit(True, "a")

    def test_repr(self) -> None:
        assert repr(graph_abc()) == "<BenefitGraph: 3 participants, 3 edges>"


class TestRefusedNumbers:
    @pytest.mark.parametrize(
        ("weight", "written"),
        [
            (-0.25, r"-0\.25"),
            (np.nan, "nan"),
            (np.inf, "inf"),
            (-np.inf, "-inf"),
            (-5e-324, "-5e-324"),
        ],
    )
    def test_negative_or_not_finite(self, weight: float, written: str) -> None:
        message = (
            f"the benefit of 'South' to 'North' is {written}; "
            "expected a finite number that is not negative$"
        )
        with pytest.raises(GraphError, match=f"^benefit graph: {message}"):
            BenefitGraph([[0, 1], [weight, 0]], ["North", "South"])
        with pytest.raises(GraphError, match=f"^benefit edge 1: {message}"):
            BenefitGraph.from_edges([(0, 1, 1), (1, 0, weight)], ["North", "South"])

    def test_how_many_more_are_wrong(self) -> None:
        with pytest.raises(GraphError, match=r"'v0' to 'v1' is -1\.0; .*\(2 more like it\)$"):
            BenefitGraph([[0, -1, np.nan], [0, 0, np.inf], [0, 0, 0]])
        with pytest.raises(GraphError, match=r"'v0' to 'v1' is -1\.0; .*\(1 more like it\)$"):
            BenefitGraph([[0, -1], [-2, 0]])

    def test_wider_numbers_that_become_infinite(self) -> None:
        weights = np.zeros((2, 2), dtype=np.longdouble)
        weights[0, 1] = np.finfo(np.longdouble).max
        if np.isfinite(float(weights[0, 1])):
            pytest.skip("a long double is a double here")
        with pytest.raises(GraphError, match="the benefit of 'v0' to 'v1' is inf"):
            BenefitGraph(weights)

    def test_oneself(self) -> None:
        with pytest.raises(
            GraphError, match=r"^benefit graph: 'b' benefits itself with weight 0\.5; set the diag"
        ):
            BenefitGraph([[0, 1], [0, 0.5]], ["a", "b"])
        with pytest.raises(GraphError, match=r"^benefit edge 1: 'b' cannot benefit itself"):
            BenefitGraph.from_edges([("a", "b", 1), ("b", "b", 0)], ["a", "b"])

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([[0, 1]], r"got shape \(1, 2\)$"),
            ([0], r"got shape \(1,\)$"),
            (0.0, r"got shape \(\)$"),
            (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)$"),
            ([[], []], r"got shape \(2, 0\)$"),
            (np.zeros((0, 3)), r"got shape \(0, 3\)$"),
            (np.zeros((0, 0, 0)), r"got shape \(0, 0, 0\)$"),
            ([[0, 1], [0]], "got rows of different lengths$"),
            ([[0, None], [0, 0]], "got values of type object$"),
            (np.array([[0, 1], [0, 0]], dtype=object), "got values of type object$"),
            ([[0, 10**400], [0, 0]], "got values of type object$"),
            ([[0, Fraction(1, 2)], [0, 0]], "got values of type object$"),
            ([["0", "1"], ["0", "0"]], "got values of type <U1$"),
            ([[0, 1j], [0, 0]], "got values of type complex128$"),
            (np.zeros((1, 1), dtype="datetime64[s]"), r"got values of type datetime64\[s\]$"),
            (None, "got values of type object$"),
            ({"a": 1}, "got values of type object$"),
            ("ab", "got values of type <U2$"),
        ],
    )
    def test_what_is_no_square_matrix_of_numbers(self, weights: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^benefit graph: expected a square .*{message}"):
            BenefitGraph(weights)  # type: ignore[arg-type]

    def test_more_participants_than_allowed(self) -> None:
        n = MAX_PARTICIPANTS + 1
        with pytest.raises(GraphError, match=r"^benefit graph: too many participants; at most 10"):
            BenefitGraph(np.broadcast_to(np.uint8(0), (n, n)))

    def test_names_that_do_not_fit(self) -> None:
        with pytest.raises(GraphError, match=r"^benefit graph: 2 rows for 1 participants"):
            BenefitGraph(np.zeros((2, 2)), ["a"])
        with pytest.raises(GraphError, match=r"^benefit graph: 0 rows for 1 participants"):
            BenefitGraph([], ["a"])
        with pytest.raises(GraphError, match=r"^benefit graph: the name 'a' is listed twice"):
            BenefitGraph(np.zeros((2, 2)), ["a", "a"])
        with pytest.raises(GraphError, match=r"^benefit graph: 2 is not a name"):
            BenefitGraph(np.zeros((2, 2)), ["a", 2])  # type: ignore[list-item]
        with pytest.raises(GraphError, match=r"^benefit graph: expected a list of names, not the"):
            BenefitGraph(np.zeros((2, 2)), "ab")
        with pytest.raises(GraphError, match=r"^benefit graph: a set of names has no order"):
            BenefitGraph(np.zeros((2, 2)), {"a", "b"})
        with pytest.raises(GraphError, match=r"^benefit graph: expected a list of names, got 2$"):
            BenefitGraph(np.zeros((2, 2)), 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("largest", [1e304, 1e308, 1.7e308])
def test_weights_whose_sums_may_not_be_finite_are_refused(largest):
    with pytest.raises(GraphError, match="so large that sums of them may not be finite numbers"):
        BenefitGraph([[0, largest, 0], [largest, 0, 0], [0, 0, 0]])
    with pytest.raises(GraphError, match="divide all of them by the same number"):
        BenefitGraph.from_dict({"participants": ["A", "B"], "edges": [["A", "B", largest]]})


class TestRefusedEdges:
    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            (("a", "c", 1), "unknown participant 'c'; known are 'a', 'b'$"),
            (("c", "a", 1), "unknown participant 'c'"),
            (("a", 2, 1), "2 is not a participant; expected a name or a position from 0 to 1$"),
            ((-1, "a", 1), "-1 is not a participant"),
            ((True, "b", 1), "True is not a participant"),
            (("a", "b", True), "the weight True of 'a' for 'b' is not a finite number$"),
            (("a", "b", np.True_), r"the weight np\.True_ of 'a' for 'b' is not a finite number$"),
            (("a", "b", "1"), "the weight '1' of 'a' for 'b' is not a finite number$"),
            (("a", "b", None), "the weight None of 'a' for 'b' is not"),
            (("a", "b", 1j), "the weight 1j of 'a' for 'b' is not"),
            (("a", "b", 10**400), "the weight 10{59}… of 'a' for 'b' is not a finite number$"),
            (("a", "b", 10**5000), "the weight a value of type int of 'a' for 'b' is not"),
            (("a", "b"), r"\('a', 'b'\) is not two participants and a weight$"),
            (("a", "b", 1, 2), r"\('a', 'b', 1, 2\) is not two participants and a weight$"),
            ("ab1", "'ab1' is not two participants and a weight$"),
            (b"ab1", "b'ab1' is not two participants and a weight$"),
            (None, "None is not two participants and a weight$"),
            (("b", "a", 0.5), "the edge from 'b' to 'a' is listed twice; keep one$"),
            (("b", "a", 0.75), "the edge from 'b' to 'a' is listed twice; keep one$"),
        ],
        ids=lambda value: "" if isinstance(value, tuple) else None,
    )
    def test_an_edge_that_is_none(self, edge: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^benefit edge 1: {message}"):
            BenefitGraph.from_edges([("b", "a", 0.5), edge], ["a", "b"])  # type: ignore[list-item]

    def test_no_list_of_edges(self) -> None:
        with pytest.raises(GraphError, match=r"^benefit edges: expected a list of them, got None$"):
            BenefitGraph.from_edges(None, ["a", "b"])  # type: ignore[arg-type]
