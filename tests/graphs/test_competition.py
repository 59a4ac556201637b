"""The competition graph: what it holds, that it never changes, and what it refuses."""

import copy
import hashlib
import itertools
import json
import pickle
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from tests.graphs.graph_strategies import AWKWARD_NAMES, competition_graphs, quick

HEADER = "a,b\n"


def graph_nsew() -> CompetitionGraph:
    """North competes with South and West; East with nobody."""
    return CompetitionGraph(
        [("West", "North"), ("North", "South")], ["North", "South", "East", "West"]
    )


def read_csv(folder: Path, content: str | bytes, participants: object = None) -> CompetitionGraph:
    path = folder / "competition.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return CompetitionGraph.from_csv(path, participants)  # type: ignore[arg-type]


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
        with pytest.raises(GraphError, match="the name 'North' stands twice"):
            graph_nsew().restricted_to(["North", "North"])

    def test_asked_about_strangers(self) -> None:
        with pytest.raises(GraphError, match=r"^competition: unknown participant 'x'; known are"):
            graph_nsew().competes("North", "x")
        with pytest.raises(GraphError, match=r"^competition: 4 is not a participant"):
            graph_nsew().competitors(4)

    def test_repr(self) -> None:
        assert repr(graph_nsew()) == "<CompetitionGraph: 4 participants, 2 pairs>"


class TestImmutable:
    def test_the_matrix_is_read_only(self) -> None:
        graph = graph_nsew()
        with pytest.raises(ValueError, match="read-only"):
            graph.matrix[0, 2] = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            graph.matrix.flags.writeable = True

    def test_the_shape_of_a_view_is_not_the_graphs(self) -> None:
        graph = graph_nsew()
        view = graph.matrix
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            view.shape = (16,)  # later versions of numpy advise against it
        assert graph.matrix.shape == (4, 4)

    @pytest.mark.parametrize("name", ["matrix", "participants", "pairs", "n", "sha256", "new"])
    def test_attributes_cannot_be_set_or_deleted(self, name: str) -> None:
        graph = graph_nsew()
        with pytest.raises(AttributeError):
            setattr(graph, name, 1)
        with pytest.raises(AttributeError):
            delattr(graph, name)
        assert graph == graph_nsew()

    def test_the_callers_array_and_lists_are_copied(self) -> None:
        matrix, names, pairs = np.array([[0, 1], [1, 0]]), ["a", "b"], [["a", "b"]]
        from_matrix, from_pairs = (
            CompetitionGraph.from_numpy(matrix, names),
            CompetitionGraph(pairs, names),  # type: ignore[arg-type]
        )
        matrix[:], names[0], pairs[0][0] = 0, "z", "b"
        assert from_matrix.pairs == from_pairs.pairs == (("a", "b"),)

    def test_a_copy_may_be_changed(self) -> None:
        graph = graph_nsew()
        graph.to_numpy()[0, 1] = False
        assert graph.competes(0, 1)


class TestIdentity:
    @quick
    @given(competition_graphs(), st.randoms())
    def test_neither_order_nor_direction_of_pairs_matters(
        self, graph: CompetitionGraph, random: object
    ) -> None:
        pairs = [pair[::-1] for pair in graph.pairs]
        random.shuffle(pairs)  # type: ignore[attr-defined]
        same = CompetitionGraph(pairs, graph.participants)
        assert same == graph
        assert hash(same) == hash(graph)
        assert same.sha256 == graph.sha256
        assert len({same, graph}) == 1

    @quick
    @given(competition_graphs())
    def test_copies_and_pickles_are_equal_and_read_only(self, graph: CompetitionGraph) -> None:
        for other in (
            copy.copy(graph),
            copy.deepcopy(graph),
            *(pickle.loads(pickle.dumps(graph, k)) for k in range(pickle.HIGHEST_PROTOCOL + 1)),
        ):
            assert other == graph
            assert hash(other) == hash(graph)
            assert np.array_equal(other.matrix, graph.matrix)
            assert not other.matrix.flags.writeable

    def test_no_other_type_is_equal(self) -> None:
        assert CompetitionGraph([], 0) != BenefitGraph([])
        assert (CompetitionGraph([], 0) == ()) is False

    def test_anything_that_differs_makes_another_graph(self) -> None:
        graphs = [
            CompetitionGraph([], ["a", "b", "c"]),
            CompetitionGraph([(0, 1)], ["a", "b", "c"]),
            CompetitionGraph([(0, 2)], ["a", "b", "c"]),
            CompetitionGraph([(0, 1), (0, 2)], ["a", "b", "c"]),
            CompetitionGraph([(0, 1)], ["b", "a", "c"]),
            CompetitionGraph([(0, 1)], ["a", "b", "d"]),
            CompetitionGraph([(0, 1)], ["a", "b"]),
        ]
        assert not any(one == other for one, other in itertools.combinations(graphs, 2))
        assert len(set(graphs)) == len(graphs)
        assert len({graph.sha256 for graph in graphs}) == len(graphs)

    def test_canonical_bytes_by_hand(self) -> None:
        expected = b'{"kind":"competition","pairs":[[0,1]],"participants":["a","b"]}'
        graph = CompetitionGraph([("b", "a")], ["a", "b"])
        assert graph.canonical_bytes() == expected
        # printf '{"kind":…}' | sha256sum
        sha256 = "eaeb1edd00de1025215638df06b3eeb01174e28970ee461ce8b9aefd003bd61e"
        assert hashlib.sha256(expected).hexdigest() == sha256
        assert graph.sha256 == sha256

    def test_canonical_bytes_of_several_pairs_and_awkward_names(self) -> None:
        graph = CompetitionGraph([(2, 1), (2, 0), (1, 0)], ['"', "\\", "ü"])
        assert graph.canonical_bytes() == (
            b'{"kind":"competition","pairs":[[0,1],[0,2],[1,2]],'
            b'"participants":["\\"","\\\\","\xc3\xbc"]}'
        )

    @quick
    @given(competition_graphs())
    def test_canonical_bytes_tell_the_whole_graph(self, graph: CompetitionGraph) -> None:
        value = json.loads(graph.canonical_bytes())
        assert CompetitionGraph(value["pairs"], value["participants"]) == graph
        assert value["pairs"] == sorted(sorted(pair) for pair in value["pairs"])


class TestRoundTrips:
    @quick
    @given(competition_graphs())
    def test_numpy(self, graph: CompetitionGraph) -> None:
        matrix = graph.to_numpy()
        for kind in (bool, int, float):
            assert CompetitionGraph.from_numpy(matrix.astype(kind), graph.participants) == graph

    @quick
    @given(competition_graphs())
    def test_networkx(self, graph: CompetitionGraph) -> None:
        assert CompetitionGraph.from_networkx(graph.to_networkx()) == graph

    @quick
    @given(competition_graphs())
    def test_dict_and_json(self, graph: CompetitionGraph) -> None:
        assert CompetitionGraph.from_dict(graph.to_dict()) == graph
        assert CompetitionGraph.from_json(graph.to_json()) == graph

    @quick
    @given(competition_graphs())
    @example(CompetitionGraph([(i, i + 1) for i in range(23)], AWKWARD_NAMES))
    def test_csv(self, tmp_path_factory: pytest.TempPathFactory, graph: CompetitionGraph) -> None:
        folder = tmp_path_factory.getbasetemp()
        assert read_csv(folder, graph.csv_bytes(), graph.participants) == graph
        read = read_csv(folder, graph.csv_bytes())
        assert set(map(frozenset, read.pairs)) == set(map(frozenset, graph.pairs))
        assert set(read.participants) == {name for pair in graph.pairs for name in pair}

    def test_the_csv_file_by_hand(self, tmp_path: Path) -> None:
        CompetitionGraph([(1, 0), (2, 0)], ["x,y", 'c"d', "#é"]).to_csv(tmp_path / "c.csv")
        assert (tmp_path / "c.csv").read_bytes() == 'a,b\n"x,y","c""d"\n"x,y",#é\n'.encode()

    def test_the_json_text_by_hand(self) -> None:
        assert CompetitionGraph([(1, 0)], ["é", "b"]).to_json() == (
            '{"participants": ["é", "b"], "pairs": [["é", "b"]]}'
        )

    def test_the_networkx_graph_by_hand(self) -> None:
        graph = graph_nsew().to_networkx()
        assert type(graph) is nx.Graph
        assert list(graph) == ["North", "South", "East", "West"]
        assert list(graph.edges) == [("North", "South"), ("North", "West")]


class TestRefusedPairs:
    @pytest.mark.parametrize(
        ("pair", "message"),
        [
            (("a", "a"), "'a' cannot compete with itself; remove the pair$"),
            ((1, "b"), "'b' cannot compete with itself; remove the pair$"),
            (("b", "c"), "'b' and 'c' stand as competitors twice; keep one of the pairs$"),
            (("c", "b"), "'c' and 'b' stand as competitors twice; keep one of the pairs$"),
            ((2, 1), "'c' and 'b' stand as competitors twice"),
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
            (5001, "too many participants; at most 5,000 are supported$"),
            (10**5000, "too many participants; at most 5,000 are supported$"),
            (-(10**5000), "a value of type int participants; expected a number"),
            (True, "expected a list of names, got True$"),
            (None, "expected a list of names, got None$"),
            (2.0, r"expected a list of names, got 2\.0$"),
            ("ab", "expected a list of names, not the single string 'ab'$"),
            ({"a", "b"}, "a set of names has no order"),
            (["a", "b", "a"], r"the name 'a' stands twice \(positions 0 and 2\)"),
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
            ([0, 1, 0], r"expected a square matrix, got shape \(3,\)$"),
            ([[], [], []], r"expected a square matrix, got shape \(3, 0\)$"),
            (np.zeros((3, 3, 3)), r"expected a square matrix, got shape \(3, 3, 3\)$"),
            (1, r"expected a square matrix, got shape \(\)$"),
            ([[0, 1], [1]], "expected a square matrix, got rows of different lengths$"),
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
            CompetitionGraph.from_numpy(np.broadcast_to(np.False_, (5001, 5001)))

    def test_names_left_out(self) -> None:
        assert CompetitionGraph.from_numpy([[0, 1], [1, 0]]).pairs == (("v0", "v1"),)


class TestFromNetworkx:
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


class TestFromJson:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", r"^c\.json: not JSON \("),
            ("[" * 100_000, r"^c\.json: not JSON \(maximum recursion"),
            ("[]", r"^c\.json: expected an object with 'participants' and 'pairs'$"),
            ('{"participants": [], "edges": []}', r"^c\.json: expected an object with"),
            ('{"participants": [], "pairs": {}}', r"^c\.json: 'participants' and 'pairs' must be"),
            ('{"pairs": [], "participants": [], "pairs": []}', r"the key 'pairs' stands twice"),
            ('{"participants": ["a", "a"], "pairs": []}', r"^c\.json: the name 'a' stands twice"),
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
            ('["c", "b"]', r"^c\.json, pair 1: 'c' and 'b' stand as competitors twice; keep one"),
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


class TestFromCsv:
    @pytest.mark.parametrize(
        "content",
        [
            "a,b\nx,y\n",
            "a,b\r\ny,x",
            "\ufeffa,b\nx,y\n",
            "B, A\n\n y , x\n,\n",
            '"a","b"\n"x","y"\n',
        ],
    )
    def test_the_same_file_written_in_many_ways(self, tmp_path: Path, content: str) -> None:
        assert read_csv(tmp_path, content) == CompetitionGraph([("x", "y")], ["x", "y"])

    def test_the_header_alone_is_nobody(self, tmp_path: Path) -> None:
        assert read_csv(tmp_path, HEADER) == CompetitionGraph([], 0)

    def test_participants_in_natural_order_or_as_given(self, tmp_path: Path) -> None:
        content = HEADER + "v10,v9\nv10,v2\n"
        assert read_csv(tmp_path, content).participants == ("v2", "v9", "v10")
        given_names = ["v10", "x", "v9", "v2"]
        assert read_csv(tmp_path, content, given_names) == CompetitionGraph(
            [(0, 2), (0, 3)], given_names
        )

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ("v,v", "line 3: 'v' cannot compete with itself; remove the pair$"),
            ("x,y", "line 3: 'x' and 'y' stand as competitors twice; keep one of the pairs$"),
            ("\ny, x", "line 4: 'y' and 'x' stand as competitors twice; keep one of the pairs$"),
            ("x,y,1", r"line 3: 3 values where 2 are expected \(a,b\); is the file cut off"),
            ("x", r"line 3: 1 values where 2 are expected \(a,b\); is the file cut off"),
            ('x,"y', r"line 3: not valid CSV \(unexpected end of data\); is the file cut off"),
            ("x,", "line 3: a participant's name is empty$"),
            ('"x\ny",z', r"line 4: the name 'x\\ny' contains a control character"),
        ],
    )
    def test_wrong_rows(self, tmp_path: Path, rows: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"competition\.csv, {message}"):
            read_csv(tmp_path, f"{HEADER}x,y\n{rows}\n")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", ": the file is empty; expected the header a,b$"),
            ("x,y\n", ", line 1: expected the header a,b, got 'x,y'$"),
            ("a,a\n", ", line 1: expected the header a,b, got 'a,a'$"),
            ("a;b\n", ", line 1: expected the header a,b, got 'a;b' .*not semicolons"),
            ("source,target,weight\n", ", line 1: expected the header a,b, got 'source,target,w"),
        ],
    )
    def test_wrong_headers(self, tmp_path: Path, content: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"competition\.csv{message}"):
            read_csv(tmp_path, content)

    def test_unknown_names_with_file_and_line(self, tmp_path: Path) -> None:
        with pytest.raises(
            GraphError, match=r"competition\.csv, line 3: unknown participant 'Nort'; did you mean"
        ):
            read_csv(tmp_path, HEADER + "North,East\nEast,Nort\n", ["North", "East"])

    def test_latin_1(self, tmp_path: Path) -> None:
        with pytest.raises(FedEgoistsError, match=r"competition\.csv, line 2: byte 5 is not UTF-8"):
            read_csv(tmp_path, (HEADER + "Zürich,Genf\n").encode("latin-1"))

    @quick
    @given(
        st.binary(max_size=80) | st.text(alphabet='xy,;"\n\r #é\x85\0', max_size=60).map(str.encode)
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
