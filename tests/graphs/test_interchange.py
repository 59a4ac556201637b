"""Reading graphs from NetworkX and JSON: many ways to write them, and clear errors."""

import json
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import GraphError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from tests.graphs.graph_strategies import (
    graph_abc,
    quick,
)


class TestBenefitFromNetworkx:
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
            (("\u00e9", "e\u0301", 1.0), "^benefit graph: the name 'é' is listed twice"),
        ],
    )
    def test_wrong_edges_and_nodes(self, edge: tuple[object, object, object], message: str) -> None:
        graph = nx.DiGraph()
        graph.add_edge(edge[0], edge[1], weight=edge[2])
        with pytest.raises(GraphError, match=message):
            BenefitGraph.from_networkx(graph)


class TestBenefitFromJson:
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
                r"^b\.json: not JSON \(the key 'participants' appears twice\)$",
            ),
            (
                '{"participants": ["a", "a"], "edges": []}',
                r"^b\.json: the name 'a' is listed twice",
            ),
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
            (
                '["b", "a", 1]',
                r"^b\.json, edge 1: the edge from 'b' to 'a' is listed twice; keep one",
            ),
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


class TestCompetitionFromNetworkx:
    def test_numbered_nodes_get_names_in_their_order(self) -> None:
        graph = CompetitionGraph.from_networkx(nx.Graph([(2, 0), (1, 2)]))
        assert graph == CompetitionGraph([(0, 2), (1, 2)], 3)

    def test_nobody(self) -> None:
        assert CompetitionGraph.from_networkx(nx.Graph()) == CompetitionGraph([], 0)

    @pytest.mark.parametrize(
        "graph", [nx.DiGraph([("a", "b")]), nx.MultiGraph([("a", "b")]), nx.MultiDiGraph(), None]
    )
    def test_other_kinds(self, graph: object) -> None:
        with pytest.raises(GraphError, match=r"^competition graph: expected a networkx\.Graph"):
            CompetitionGraph.from_networkx(graph)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            (("a", "a"), "^competition pair 0: 'a' cannot compete with itself"),
            (("a", 0), "^competition graph: 0 is not a name"),
            ((1, 2), "^competition graph: numbered nodes must be 0 to 1; give the nodes names"),
        ],
    )
    def test_wrong_edges_and_nodes(self, edge: tuple[object, object], message: str) -> None:
        with pytest.raises(GraphError, match=message):
            CompetitionGraph.from_networkx(nx.Graph([edge]))


class TestCompetitionFromJson:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", r"^c\.json: not JSON \("),
            ("[" * 100_000, r"^c\.json: not JSON \(maximum recursion"),
            ("[]", r"^c\.json: expected an object with 'participants' and 'pairs'$"),
            ('{"participants": [], "edges": []}', r"^c\.json: expected an object with"),
            ('{"participants": [], "pairs": {}}', r"^c\.json: 'participants' and 'pairs' must be"),
            ('{"pairs": [], "participants": [], "pairs": []}', r"the key 'pairs' appears twice"),
            (
                '{"participants": ["a", "a"], "pairs": []}',
                r"^c\.json: the name 'a' is listed twice",
            ),
        ],
        ids=lambda value: "" if len(value) > 50 else None,
    )
    def test_wrong_objects(self, text: str, message: str) -> None:
        with pytest.raises(GraphError, match=message):
            CompetitionGraph.from_json(text, "c.json")

    @pytest.mark.parametrize(
        ("pair", "message"),
        [
            ('["a", "Zug"]', r"^c\.json, pair 1: unknown participant 'Zug'; known are 'a', 'b'"),
            ('["a", "a"]', r"^c\.json, pair 1: 'a' cannot compete with itself; remove the pair$"),
            (
                '["c", "b"]',
                r"^c\.json, pair 1: the pair of 'c' and 'b' is listed twice; keep one",
            ),
            ("[0, 1]", r"^c\.json: entry 1 of 'pairs' is \[0, 1\], not a pair of two participant"),
            ('["a"]', r"^c\.json: entry 1 of 'pairs' is \['a'\], not a pair of two participants b"),
            ('["a", "b", 1]', r"^c\.json: entry 1 of 'pairs' is \['a', 'b', 1\], not a pair of"),
            ('"ab"', r"^c\.json: entry 1 of 'pairs' is 'ab', not a pair of two participants by n"),
        ],
    )
    def test_wrong_pairs(self, pair: str, message: str) -> None:
        text = f'{{"participants": ["a", "b", "c"], "pairs": [["b", "c"], {pair}]}}'
        with pytest.raises(GraphError, match=message):
            CompetitionGraph.from_json(text, "c.json")

    @quick
    @given(
        st.text(max_size=60)
        | st.lists(st.lists(st.sampled_from(["a", "b", "c", 0, None, []]), max_size=3)).map(
            lambda pairs: json.dumps({"participants": ["a", "b"], "pairs": pairs})
        )
    )
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            graph = CompetitionGraph.from_json(text)
        except GraphError:
            return
        assert set(map(frozenset, graph.pairs)) == set(map(frozenset, json.loads(text)["pairs"]))
