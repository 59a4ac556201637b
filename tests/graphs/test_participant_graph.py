"""What both graphs share: immutability, identity, and round trips through every format."""

import copy
import hashlib
import itertools
import json
import pickle
import struct
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedegoists.graphs import BenefitGraph, CompetitionGraph
from tests.graphs.graph_strategies import (
    AWKWARD_NAMES,
    benefit_graphs,
    competition_graphs,
    graph_abc,
    graph_nsew,
    quick,
    read_benefit,
    read_competition,
)


class TestBenefitImmutable:
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


class TestBenefitIdentity:
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


class TestBenefitRoundTrips:
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
        assert read_benefit(folder, graph.csv_bytes(), graph.participants) == graph
        # Without the list, whoever has an edge is there, with the same weights.
        read = read_benefit(folder, graph.csv_bytes())
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


class TestCompetitionImmutable:
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


class TestCompetitionIdentity:
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


class TestCompetitionRoundTrips:
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
        assert read_competition(folder, graph.csv_bytes(), graph.participants) == graph
        read = read_competition(folder, graph.csv_bytes())
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


class TestEntries:
    @quick
    @given(benefit_graphs() | competition_graphs(), st.data())
    def test_they_say_what_the_matrix_says(
        self, graph: BenefitGraph | CompetitionGraph, data: st.DataObject
    ) -> None:
        matrix = graph.to_numpy()
        again = type(graph).from_dict(graph.to_dict())  # from links, without a matrix
        assert again == graph
        assert hash(again) == hash(graph)
        assert pickle.loads(pickle.dumps(again)) == graph
        assert np.array_equal(again.entries.dense(), matrix)
        assert np.array_equal(again.to_numpy(), matrix)
        group = data.draw(
            st.lists(st.integers(0, graph.n - 1), unique=True) if graph.n else st.just([])
        )
        inside = matrix[np.ix_(group, group)]
        assert sorted(again.inside(group).tolist()) == sorted(inside[inside != 0].tolist())
        kept = again.restricted_to([graph.participants[k] for k in group])
        assert np.array_equal(kept.to_numpy(), inside)

    def test_they_are_read_only(self) -> None:
        for part in graph_abc().entries[:3]:
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 0
