"""The benefit graph: what it holds, that it never changes, and what it refuses."""

import copy
import hashlib
import itertools
import json
import pickle
import struct
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import MAX_PARTICIPANTS, BenefitGraph, CompetitionGraph
from tests.graphs.graph_strategies import AWKWARD_NAMES, benefit_graphs, quick

HEADER = "source,target,weight\n"


def graph_abc() -> BenefitGraph:
    """a benefits b by 0.5 and c by 2; c benefits a by 1e-300."""
    return BenefitGraph([[0, 0.5, 2], [0, 0, 0], [1e-300, 0, 0]], ["a", "b", "c"])


def read_csv(folder: Path, content: str | bytes, participants: object = None) -> BenefitGraph:
    path = folder / "benefit.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return BenefitGraph.from_csv(path, participants)  # type: ignore[arg-type]


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
        with pytest.raises(GraphError, match="the name 'a' stands twice"):
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


class TestImmutable:
    def test_weights_are_read_only(self) -> None:
        graph = graph_abc()
        with pytest.raises(ValueError, match="read-only"):
            graph.weights[0, 1] = 7
        with pytest.raises(ValueError, match="WRITEABLE"):
            graph.weights.flags.writeable = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            graph.weights[0].flags.writeable = True

    def test_the_shape_of_a_view_is_not_the_graphs(self) -> None:
        graph = graph_abc()
        view = graph.weights
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            view.shape = (9,)  # later versions of numpy advise against it
        assert graph.weights.shape == (3, 3)
        assert graph.benefit("a", "b") == 0.5

    @pytest.mark.parametrize("name", ["weights", "participants", "n", "sha256", "new"])
    def test_attributes_cannot_be_set_or_deleted(self, name: str) -> None:
        graph = graph_abc()
        with pytest.raises(AttributeError):
            setattr(graph, name, 1)
        with pytest.raises(AttributeError):
            delattr(graph, name)
        assert graph == graph_abc()

    def test_the_callers_array_and_list_are_copied(self) -> None:
        weights, names = np.array([[0.0, 0.5], [0.0, 0.0]]), ["a", "b"]
        graph = BenefitGraph(weights, names)
        before = hash(graph), graph.sha256
        weights[0, 1] = 7
        names[0] = "z"
        assert graph.benefit("a", "b") == 0.5
        assert (hash(graph), graph.sha256) == before
        assert weights.flags.writeable

    def test_a_copy_may_be_changed(self) -> None:
        graph = graph_abc()
        numbers = graph.to_numpy()
        numbers[0, 1] = 7
        assert graph.benefit("a", "b") == 0.5


class TestIdentity:
    @quick
    @given(benefit_graphs())
    def test_equal_graphs_have_equal_hashes(self, graph: BenefitGraph) -> None:
        same = BenefitGraph(graph.weights.tolist(), list(graph.participants))
        assert same == graph
        assert hash(same) == hash(graph)
        assert same.sha256 == graph.sha256
        assert len({same, graph}) == 1

    @quick
    @given(benefit_graphs())
    def test_copies_and_pickles_are_equal_and_read_only(self, graph: BenefitGraph) -> None:
        for other in (
            copy.copy(graph),
            copy.deepcopy(graph),
            *(pickle.loads(pickle.dumps(graph, k)) for k in range(pickle.HIGHEST_PROTOCOL + 1)),
        ):
            assert other == graph
            assert hash(other) == hash(graph)
            assert not other.weights.flags.writeable

    def test_no_other_type_is_equal(self) -> None:
        assert BenefitGraph([]) != CompetitionGraph([], 0)
        assert BenefitGraph([]) != []
        assert (BenefitGraph([]) == ()) is False

    def test_the_sign_of_zero_does_not_matter(self) -> None:
        plus, minus = BenefitGraph([[0.0, 1], [0.0, 0.0]]), BenefitGraph([[-0.0, 1], [-0.0, -0.0]])
        assert plus == minus
        assert hash(plus) == hash(minus)
        assert not np.signbit(minus.weights).any()

    def test_anything_that_differs_makes_another_graph(self) -> None:
        graphs = [
            BenefitGraph([[0, 0.5], [0, 0]], ["a", "b"]),
            BenefitGraph([[0, np.nextafter(0.5, 1)], [0, 0]], ["a", "b"]),
            BenefitGraph([[0, 0], [0.5, 0]], ["a", "b"]),
            BenefitGraph([[0, 0.5], [0.5, 0]], ["a", "b"]),
            BenefitGraph([[0, 0], [0, 0]], ["a", "b"]),
            BenefitGraph([[0, 0.5], [0, 0]], ["b", "a"]),
            BenefitGraph([[0, 0.5], [0, 0]], ["a", "c"]),
            BenefitGraph([[0, 0.5], [0, 0]], ["a", "B"]),
            BenefitGraph([[0, 0.5, 0], [0, 0, 0], [0, 0, 0]], ["a", "b", "c"]),
        ]
        assert not any(one == other for one, other in itertools.combinations(graphs, 2))
        assert len(set(graphs)) == len(graphs)
        assert len({graph.sha256 for graph in graphs}) == len(graphs)

    def test_canonical_bytes_by_hand(self) -> None:
        # 0.5 = 2^-1 is the double with sign 0, exponent 1023 - 1 = 0x3fe and fraction 0:
        # 3fe0000000000000. Participant 0 benefits participant 1, so the edge is [0,1,"3fe…"].
        expected = b'{"edges":[[0,1,"3fe0000000000000"]],"kind":"benefit","participants":["a","b"]}'
        graph = BenefitGraph([[0, 0.5], [0, 0]], ["a", "b"])
        assert graph.canonical_bytes() == expected
        # printf '{"edges":…}' | sha256sum
        sha256 = "610d8a3481a449d50698275247d4fba4be5f8e9946cea301472e942fa0376df5"
        assert hashlib.sha256(expected).hexdigest() == sha256
        assert graph.sha256 == sha256

    def test_canonical_bytes_of_several_edges_and_awkward_names(self) -> None:
        # 2 = 2^1 has the exponent 1024 = 0x400; 1.75 = 2^0 · (1 + 1/2 + 1/4) the exponent
        # 1023 = 0x3ff and the fraction bits 11 followed by zeros, c000000000000 in hexadecimal.
        graph = BenefitGraph([[0, 0, 2], [0, 0, 0], [1.75, 1, 0]], ['"', "\\", "ü"])
        assert graph.canonical_bytes() == (
            b'{"edges":[[0,2,"4000000000000000"],[2,0,"3ffc000000000000"],[2,1,"3ff0000000000000"]]'
            b',"kind":"benefit","participants":["\\"","\\\\","\xc3\xbc"]}'
        )

    def test_canonical_bytes_of_nobody(self) -> None:
        assert BenefitGraph([]).canonical_bytes() == (
            b'{"edges":[],"kind":"benefit","participants":[]}'
        )
        assert BenefitGraph([]).sha256 == (
            "100ad617be8ea33edc9fbd57b79c45833d9e844020b3c596a8aa4513566c5876"
        )

    @quick
    @given(benefit_graphs())
    def test_canonical_bytes_tell_the_whole_graph(self, graph: BenefitGraph) -> None:
        value = json.loads(graph.canonical_bytes())
        edges = [(j, i, struct.unpack(">d", bytes.fromhex(w))[0]) for j, i, w in value["edges"]]
        assert BenefitGraph.from_edges(edges, value["participants"]) == graph
        assert edges == sorted(edges)


class TestRoundTrips:
    @quick
    @given(benefit_graphs())
    def test_numpy(self, graph: BenefitGraph) -> None:
        assert BenefitGraph.from_numpy(graph.to_numpy(), graph.participants) == graph

    @quick
    @given(benefit_graphs())
    def test_edges(self, graph: BenefitGraph) -> None:
        assert BenefitGraph.from_edges(graph.edges(), graph.participants) == graph

    @quick
    @given(benefit_graphs())
    def test_networkx(self, graph: BenefitGraph) -> None:
        assert BenefitGraph.from_networkx(graph.to_networkx()) == graph

    @quick
    @given(benefit_graphs())
    def test_dict_and_json(self, graph: BenefitGraph) -> None:
        assert BenefitGraph.from_dict(graph.to_dict()) == graph
        assert BenefitGraph.from_json(graph.to_json()) == graph
        assert BenefitGraph.from_json(json.dumps(json.loads(graph.to_json()), indent=2)) == graph

    @quick
    @given(benefit_graphs())
    @example(BenefitGraph(np.ones((24, 24)) - np.eye(24), AWKWARD_NAMES))
    def test_csv(self, tmp_path_factory: pytest.TempPathFactory, graph: BenefitGraph) -> None:
        folder = tmp_path_factory.getbasetemp()
        assert read_csv(folder, graph.csv_bytes(), graph.participants) == graph
        # Without the list, whoever has an edge is there, with the same weights.
        read = read_csv(folder, graph.csv_bytes())
        assert set(read.edges()) == set(graph.edges())
        assert set(read.participants) == {name for a, b, _ in graph.edges() for name in (a, b)}

    def test_the_csv_file_by_hand(self, tmp_path: Path) -> None:
        graph = BenefitGraph([[0, 0.1, 0], [0, 0, 0], [1e300, 0, 0]], ["a,b", 'c"d', "#é"])
        graph.to_csv(tmp_path / "new" / "benefit.csv")
        assert (tmp_path / "new" / "benefit.csv").read_bytes() == (
            'source,target,weight\n"a,b","c""d",0.1\n#é,"a,b",1e+300\n'.encode()
        )

    def test_the_json_text_by_hand(self) -> None:
        assert BenefitGraph([[0, 0.1], [0, 0]], ["é", "b"]).to_json() == (
            '{"participants": ["é", "b"], "edges": [["é", "b", 0.1]]}'
        )

    def test_the_networkx_graph_by_hand(self) -> None:
        graph = graph_abc().to_networkx()
        assert type(graph) is nx.DiGraph
        assert list(graph) == ["a", "b", "c"]
        assert sorted(graph.edges(data="weight")) == [
            ("a", "b", 0.5),
            ("a", "c", 2.0),
            ("c", "a", 1e-300),
        ]


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
        with pytest.raises(GraphError, match=r"^benefit graph: too many participants; at most 5,0"):
            BenefitGraph(np.broadcast_to(np.uint8(0), (n, n)))

    def test_names_that_do_not_fit(self) -> None:
        with pytest.raises(GraphError, match=r"^benefit graph: 2 rows of weights for 1 participa"):
            BenefitGraph(np.zeros((2, 2)), ["a"])
        with pytest.raises(GraphError, match=r"^benefit graph: 0 rows of weights for 1 participa"):
            BenefitGraph([], ["a"])
        with pytest.raises(GraphError, match=r"^benefit graph: the name 'a' stands twice"):
            BenefitGraph(np.zeros((2, 2)), ["a", "a"])
        with pytest.raises(GraphError, match=r"^benefit graph: 2 is not a name"):
            BenefitGraph(np.zeros((2, 2)), ["a", 2])  # type: ignore[list-item]
        with pytest.raises(GraphError, match=r"^benefit graph: expected a list of names, not the"):
            BenefitGraph(np.zeros((2, 2)), "ab")
        with pytest.raises(GraphError, match=r"^benefit graph: a set of names has no order"):
            BenefitGraph(np.zeros((2, 2)), {"a", "b"})
        with pytest.raises(GraphError, match=r"^benefit graph: expected a list of names, got 2$"):
            BenefitGraph(np.zeros((2, 2)), 2)  # type: ignore[arg-type]


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
            (("b", "a", 0.5), "the edge from 'b' to 'a' stands twice; keep one$"),
            (("b", "a", 0.75), "the edge from 'b' to 'a' stands twice; keep one$"),
        ],
        ids=lambda value: "" if isinstance(value, tuple) else None,
    )
    def test_an_edge_that_is_none(self, edge: object, message: str) -> None:
        with pytest.raises(GraphError, match=f"^benefit edge 1: {message}"):
            BenefitGraph.from_edges([("b", "a", 0.5), edge], ["a", "b"])  # type: ignore[list-item]

    def test_no_list_of_edges(self) -> None:
        with pytest.raises(GraphError, match=r"^benefit edges: expected a list of them, got None$"):
            BenefitGraph.from_edges(None, ["a", "b"])  # type: ignore[arg-type]


class TestFromNetworkx:
    def test_numbered_nodes_get_names_in_their_order(self) -> None:
        graph = nx.DiGraph([(2, 0, {"weight": 0.5}), (0, 1, {"weight": 2})])
        assert list(graph) == [2, 0, 1]
        read = BenefitGraph.from_networkx(graph)
        assert read.participants == ("v0", "v1", "v2")
        assert list(read.edges()) == [("v0", "v1", 2.0), ("v2", "v0", 0.5)]

    def test_an_edge_without_weight_counts_one(self) -> None:
        assert BenefitGraph.from_networkx(nx.DiGraph([("a", "b")])).benefit("a", "b") == 1.0

    def test_nobody(self) -> None:
        assert BenefitGraph.from_networkx(nx.DiGraph()) == BenefitGraph([])

    def test_subgraph_views(self) -> None:
        part = graph_abc().to_networkx().subgraph(["a", "b"])
        assert BenefitGraph.from_networkx(part) == graph_abc().restricted_to(["a", "b"])

    @pytest.mark.parametrize(
        "graph", [nx.Graph([("a", "b")]), nx.MultiDiGraph([("a", "b")]), nx.MultiGraph(), None, []]
    )
    def test_other_kinds(self, graph: object) -> None:
        with pytest.raises(GraphError, match=r"^benefit graph: expected a networkx\.DiGraph"):
            BenefitGraph.from_networkx(graph)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            (("a", "a", 1.0), "^benefit edge 0: 'a' cannot benefit itself"),
            (("a", "b", -1.0), r"^benefit edge 0: the benefit of 'a' to 'b' is -1\.0; expected"),
            (("a", "b", np.nan), "^benefit edge 0: the benefit of 'a' to 'b' is nan; expected"),
            (("a", "b", "x"), "^benefit edge 0: the weight 'x' of 'a' for 'b' is not a finite"),
            (("a", "b", None), "^benefit edge 0: the weight None of 'a' for 'b' is not a finite"),
            (("a", 0, 1.0), "^benefit graph: 0 is not a name"),
            ((1, 2, 1.0), "^benefit graph: numbered nodes must be 0 to 1; give the nodes names"),
            ((True, False, 1.0), "^benefit graph: True is not a name"),
            (("a", ("b",), 1.0), r"^benefit graph: \('b',\) is not a name"),
            (("a", " b", 1.0), "^benefit graph: the name ' b' starts or ends with a space"),
            (("\u00e9", "e\u0301", 1.0), "^benefit graph: the name 'é' stands twice"),
        ],
    )
    def test_wrong_edges_and_nodes(self, edge: tuple[object, object, object], message: str) -> None:
        graph = nx.DiGraph()
        graph.add_edge(edge[0], edge[1], weight=edge[2])
        with pytest.raises(GraphError, match=message):
            BenefitGraph.from_networkx(graph)


class TestFromJson:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"^b\.json: not JSON \(Expecting value: line 1 column 1 \(char 0\)\)$"),
            ('{"participants": ["a"], "ed', r"^b\.json: not JSON \(.*line 1 column 25"),
            ("[" * 100_000, r"^b\.json: not JSON \(maximum recursion"),
            ('{"a":' * 100_000, r"^b\.json: not JSON \(maximum recursion"),
            ("1" * 5000, r"^b\.json: not JSON \(Exceeds the limit"),
            ("\0", r"^b\.json: not JSON"),
            ("null", r"^b\.json: expected an object with 'participants' and 'edges'$"),
            ("[]", r"^b\.json: expected an object with"),
            ("{}", r"^b\.json: expected an object with"),
            ('{"participants": []}', r"^b\.json: expected an object with"),
            ('{"participants": [], "edges": [], "x": 1}', r"^b\.json: expected an object with"),
            ('{"participants": [], "pairs": []}', r"^b\.json: expected an object with"),
            ('{"participants": {}, "edges": []}', r"^b\.json: 'participants' and 'edges' must be"),
            ('{"participants": [], "edges": "ab"}', r"^b\.json: 'participants' and 'edges' must b"),
            (
                '{"participants": ["a"], "participants": [], "edges": []}',
                r"^b\.json: not JSON \(the key 'participants' stands twice\)$",
            ),
            ('{"participants": ["a", "a"], "edges": []}', r"^b\.json: the name 'a' stands twice"),
            ('{"participants": [1], "edges": []}', r"^b\.json: 1 is not a name"),
            (
                '{"participants": ["\\ud800"], "edges": []}',
                r"the name '\\ud800' contains a control",
            ),
        ],
        ids=lambda value: "" if len(value) > 50 else None,
    )
    def test_wrong_objects(self, text: str, message: str) -> None:
        with pytest.raises(GraphError, match=message):
            BenefitGraph.from_json(text, "b.json")

    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            ('["a", "c", 1]', r"^b\.json, edge 1: unknown participant 'c'; known are 'a', 'b'$"),
            ('["a", "a", 1]', r"^b\.json, edge 1: 'a' cannot benefit itself; remove the edge$"),
            ('["b", "a", 1]', r"^b\.json, edge 1: the edge from 'b' to 'a' stands twice; keep one"),
            ('["a", "b", -1]', r"^b\.json, edge 1: the benefit of 'a' to 'b' is -1\.0; expected"),
            ('["a", "b", NaN]', r"^b\.json, edge 1: the benefit of 'a' to 'b' is nan; expected"),
            ('["a", "b", Infinity]', r"^b\.json, edge 1: the benefit of 'a' to 'b' is inf; expec"),
            ('["a", "b", 1e400]', r"^b\.json, edge 1: the benefit of 'a' to 'b' is inf; expected"),
            (f'["a", "b", {10**400}]', r"^b\.json, edge 1: the weight 10+… of 'a' for 'b' is not"),
            ('["a", "b", true]', r"^b\.json, edge 1: the weight True of 'a' for 'b' is not a fin"),
            ('["a", "b", "1"]', r"^b\.json, edge 1: the weight '1' of 'a' for 'b' is not a finite"),
            ('["a", "b", null]', r"^b\.json, edge 1: the weight None of 'a' for 'b' is not a fin"),
            ('["a", "b", [1]]', r"^b\.json, edge 1: the weight \[1\] of 'a' for 'b' is not a fin"),
            ("[0, 1, 1]", r"^b\.json: entry 1 of 'edges' is \[0, 1, 1\], not two participants an"),
            ('["a", "b"]', r"^b\.json: entry 1 of 'edges' is \['a', 'b'\], not two participants"),
            ('["a", "b", 1, 2]', r"^b\.json: entry 1 of 'edges' is \['a', 'b', 1, 2\], not two p"),
            ('"ab1"', r"^b\.json: entry 1 of 'edges' is 'ab1', not two participants and a weight"),
            ("{}", r"^b\.json: entry 1 of 'edges' is \{\}, not two participants and a weight"),
        ],
        ids=lambda value: "" if len(value) > 100 else None,
    )
    def test_wrong_edges(self, edge: str, message: str) -> None:
        text = f'{{"participants": ["a", "b"], "edges": [["b", "a", 0.5], {edge}]}}'
        with pytest.raises(GraphError, match=message):
            BenefitGraph.from_json(text, "b.json")

    def test_nested_just_below_what_the_parser_bears(self) -> None:
        for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
            text = '{"participants": [], "edges": [' + "[" * depth + "]" * depth + "]}"
            with pytest.raises(GraphError, match=r"not JSON|entry 0 of 'edges' is"):
                BenefitGraph.from_json(text)

    @quick
    @given(
        st.text(max_size=60)
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from("abé"),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(["participants", "edges", "x"]), inner, max_size=3
                )
            ),
            max_leaves=12,
        ).map(json.dumps)
    )
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            graph = BenefitGraph.from_json(text)
        except GraphError:
            return
        assert BenefitGraph.from_json(graph.to_json()) == graph

    @quick
    @given(
        st.lists(
            st.lists(
                st.sampled_from(["a", "b", "c", 0, 1, -1.0, 0.5, True, None, [], {}]), max_size=4
            ),
            max_size=3,
        )
    )
    def test_almost_edges_are_read_or_refused(self, edges: list[list[object]]) -> None:
        text = json.dumps({"participants": ["a", "b"], "edges": edges})
        try:
            graph = BenefitGraph.from_json(text)
        except GraphError:
            return
        kept = [(a, b, float(w)) for a, b, w in edges if w]  # type: ignore[arg-type]
        assert sorted(graph.edges()) == sorted(kept)


class TestFromCsv:
    @pytest.mark.parametrize(
        "content",
        [
            "source,target,weight\na,b,0.5\n",
            "source,target,weight\na,b,0.5",
            "source,target,weight\r\na,b,0.5\r\n",
            "source,target,weight\ra,b,0.5\r",
            "\ufeffsource,target,weight\na,b,0.5\n",
            "\n\nsource,target,weight\n\n  \na,b,0.5\n,,\n\n",
            "source , Target, WEIGHT\n a ,\tb,  0.5 \n",
            "weight,source,target\n0.5,a,b\n",
            "target,weight,source\nb,0.5,a\n",
            '"source","target","weight"\n"a","b","0.5"\n',
            "source,target,weight\na,b,5e-1\n",
            "source,target,weight\na,b,+.5\n",
            "source,target,weight\na,b,\u00a00.5\n",
            "source,target,weight\na,b,0.5\nb,a,-0\n",
        ],
    )
    def test_the_same_file_written_in_many_ways(self, tmp_path: Path, content: str) -> None:
        assert read_csv(tmp_path, content) == BenefitGraph([[0, 0.5], [0, 0]], ["a", "b"])

    def test_the_header_alone_is_nobody(self, tmp_path: Path) -> None:
        assert read_csv(tmp_path, HEADER) == BenefitGraph([])
        assert read_csv(tmp_path, HEADER, ["a"]) == BenefitGraph([[0]], ["a"])

    def test_participants_in_natural_order(self, tmp_path: Path) -> None:
        graph = read_csv(tmp_path, HEADER + "v10,v9,1\nv2,v10,1\n")
        assert graph.participants == ("v2", "v9", "v10")
        assert list(graph.edges()) == [("v2", "v10", 1.0), ("v10", "v9", 1.0)]

    def test_participants_given_fix_list_and_order(self, tmp_path: Path) -> None:
        graph = read_csv(tmp_path, HEADER + "v10,v9,1\n", ["v10", "x", "v9"])
        assert graph == BenefitGraph([[0, 0, 1], [0, 0, 0], [0, 0, 0]], ["v10", "x", "v9"])

    def test_an_accent_written_in_two_ways_is_one_name(self, tmp_path: Path) -> None:
        graph = read_csv(tmp_path, HEADER + "Z\u00fcrich,a,1\na,Zu\u0308rich,2\n")
        assert graph.participants == ("a", "Zürich")
        assert graph.benefit("a", "Zürich") == 2.0

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ("a,b,-0.5", r"line 3: the benefit of 'a' to 'b' is -0\.5; expected a finite number"),
            ("a,b,nan", "line 3: the benefit of 'a' to 'b' is nan; expected a finite number"),
            ("a,b,-inf", "line 3: the benefit of 'a' to 'b' is -inf; expected a finite number"),
            ("a,b,1e400", "line 3: the benefit of 'a' to 'b' is inf; expected a finite number"),
            ("\n\na,b,nan", "line 5: the benefit of 'a' to 'b' is nan"),
            ("a,b,1_000", "line 3: the weight '1_000' of 'a' for 'b' is not a number; write num"),
            ("a,b,0x10", "line 3: the weight '0x10' of 'a' for 'b' is not a number"),
            ("a,b,１.５", "line 3: the weight '１.５' of 'a' for 'b' is not a number"),
            ("a,b,٣", "line 3: the weight '٣' of 'a' for 'b' is not a number"),
            ("a,b,", "line 3: the weight '' of 'a' for 'b' is not a number"),
            (" a , b ,x", "line 3: the weight 'x' of 'a' for 'b' is not a number"),
            ("a,b,high", "line 3: the weight 'high' of 'a' for 'b' is not a number"),
            ("a,b,True", "line 3: the weight 'True' of 'a' for 'b' is not a number"),
            ("a,b,1;5", "line 3: the weight '1;5' of 'a' for 'b' is not a number"),
            ('a,b,"0,5"', "line 3: the weight '0,5' of 'a' for 'b' is not a number"),
            ("a,b," + "9" * 99 + "x", "line 3: the weight '9{59}… of 'a' for 'b' is not a number"),
            ("a,b,0,5", r"line 3: 4 values where 3 are expected \(source,target,weight\)"),
            ("a,b", "line 3: 2 values where 3 are expected .*; is the file cut off, or a name wit"),
            ("a", "line 3: 1 values where 3 are expected"),
            ("a;b;1", "line 3: 1 values where 3 are expected"),
            ('a,"b', r"line 3: not valid CSV \(unexpected end of data\); is the file cut off\?"),
            ('a,"b"x,1', "line 3: not valid CSV"),
            ("a" * 200_000 + ",b,1", r"line 3: not valid CSV \(field larger than field limit"),
            ("a" * 300 + ",b,1", "line 3: the name 'a{30}'… has 300 characters; at most 200 are"),
            ('"a\nb",c,1', r"line 4: the name 'a\\nb' contains a control character"),
            ("a\u202eb,c,1", r"line 3: the name 'a\\u202eb' contains a control character"),
            ("a\x85b,c,1", r"line 3: the name 'a\\x85b' contains a control character"),
            (",b,1", "line 3: a participant's name is empty"),
            ("a, ,1", "line 3: a participant's name is empty"),
            ("a,a,1", "line 3: 'a' cannot benefit itself; remove the edge"),
            ("a, a,0", "line 3: 'a' cannot benefit itself; remove the edge"),
            ("x,y,1", "line 3: the edge from 'x' to 'y' stands twice; keep one"),
            ("y,x,1\n x,y ,2", "line 4: the edge from 'x' to 'y' stands twice; keep one"),
            ("source,target,weight", "line 3: the weight 'weight' of 'source' for 'target' is no"),
        ],
        ids=lambda value: "" if len(value) > 200 else None,
    )
    def test_wrong_rows(self, tmp_path: Path, rows: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"benefit\.csv, {message}"):
            read_csv(tmp_path, f"{HEADER}x,y,0.5\n{rows}\n")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", r": the file is empty; expected the header source,target,weight$"),
            ("\n \n", ": the file is empty; expected the header source,target,weight$"),
            ("\ufeff", ": the file is empty"),
            ("a,b,0.5\n", ", line 1: expected the header source,target,weight, got 'a,b,0.5'$"),
            ("\n\na,b\n", ", line 3: expected the header source,target,weight, got 'a,b'$"),
            ("source,tar", ", line 1: expected the header source,target,weight, got 'source,tar'$"),
            ("source,source,weight\n", ", line 1: expected the header"),
            ("source,target,weight,note\n", ", line 1: expected the header"),
            ("# made by us\nsource,target,weight\n", ", line 1: expected the header .*'# made by"),
            (
                "source;target;weight\na;b;1\n",
                r"got 'source;target;weight' \(separate the columns by commas, not semicolons\)$",
            ),
            ("x" * 1000, "got 'x{80}'$"),
        ],
        ids=lambda value: "" if len(value) > 200 else None,
    )
    def test_wrong_headers(self, tmp_path: Path, content: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"benefit\.csv.*{message}"):
            read_csv(tmp_path, content)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ((HEADER + "a,b,1\n").encode("utf-16"), "line 1: byte 0 is not UTF-8 text"),
            ((HEADER + "a,b,1\n").encode("utf-16-be"), "line 1: contains a NUL character"),
            ((HEADER + "é,b,1\n").encode("latin-1"), "line 2: byte 21 is not UTF-8 text"),
            (b"\x1f\x8b\x08\x00\x00", "line 1: byte 1 is not UTF-8 text"),
            (HEADER.encode() + b"a,b,1\na,\0,1\n", "line 3: contains a NUL character"),
        ],
    )
    def test_what_is_no_text(self, tmp_path: Path, content: bytes, message: str) -> None:
        with pytest.raises(FedEgoistsError, match=rf"benefit\.csv, {message}"):
            read_csv(tmp_path, content)

    def test_unknown_names_with_file_and_line(self, tmp_path: Path) -> None:
        with pytest.raises(
            GraphError,
            match=r"benefit\.csv, line 3: unknown participant 'Nort'; did you mean 'North'\?$",
        ):
            read_csv(tmp_path, HEADER + "North,East,1\nEast,Nort,1\n", ["East", "North"])
        with pytest.raises(GraphError, match=r"benefit\.csv, line 2: unknown participant 'Nort'"):
            read_csv(tmp_path, HEADER + "Nort,East,1\n", ["East", "North"])
        with pytest.raises(GraphError, match=r"benefit\.csv, line 2: unknown participant 'a'; the"):
            read_csv(tmp_path, HEADER + "a,b,1\n", [])

    def test_participants_given_twice(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match=r"^participants: the name 'a' stands twice"):
            read_csv(tmp_path, HEADER, ["a", "a"])

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FedEgoistsError, match=r"none\.csv: no such file"):
            BenefitGraph.from_csv(tmp_path / "none.csv")
        with pytest.raises(FedEgoistsError, match="is a folder"):
            BenefitGraph.from_csv(tmp_path)

    @quick
    @given(
        st.binary(max_size=80)
        | st.text(alphabet='ab,;"\n\r \t#é\x85\ufeff\x000.5-einfN_', max_size=60).map(str.encode)
        | st.text(max_size=40).map(lambda text: text.encode("utf-16"))
    )
    def test_any_bytes_are_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes
    ) -> None:
        folder = tmp_path_factory.getbasetemp()
        for start in (b"", HEADER.encode()):
            try:
                graph = read_csv(folder, start + content)
            except FedEgoistsError:
                continue
            assert read_csv(folder, graph.csv_bytes(), graph.participants) == graph

    @quick
    @given(benefit_graphs(), st.data())
    def test_a_file_cut_off_is_refused_or_lacks_its_end(
        self, tmp_path_factory: pytest.TempPathFactory, graph: BenefitGraph, data: st.DataObject
    ) -> None:
        whole = graph.csv_bytes()
        cut = whole[: data.draw(st.integers(0, len(whole)))]
        try:
            read = read_csv(tmp_path_factory.getbasetemp(), cut)
        except FedEgoistsError:
            return
        # Nothing can tell a last weight that lost digits; all rows before it are right.
        complete = list(graph.edges())[: max(0, cut.count(b"\n") - 1)]
        assert set(complete) <= set(read.edges())
        assert len(list(read.edges())) <= len(complete) + 1


@pytest.mark.parametrize("largest", [1e304, 1e308, 1.7e308])
def test_weights_whose_sums_may_not_be_finite_are_refused(largest):
    with pytest.raises(GraphError, match="so large that sums of them may not be finite numbers"):
        BenefitGraph([[0, largest, 0], [largest, 0, 0], [0, 0, 0]])
    with pytest.raises(GraphError, match="divide all of them by the same number"):
        BenefitGraph.from_dict({"participants": ["A", "B"], "edges": [["A", "B", largest]]})
