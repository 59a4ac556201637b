"""Two files, one consortium: whose participants count, and what large files do."""

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph, CompetitionGraph, read_graphs
from fedegoists.graphs.graph_files import read_uncertain
from tests.graphs.graph_strategies import benefit_graphs, competition_graphs, quick

BENEFIT = "source,target,weight\nv10,v2,0.5\nv2,Bank A,1\n"
COMPETITION = "a,b\nv3,v2\n"


@pytest.fixture
def benefit(tmp_path: Path) -> Path:
    path = tmp_path / "benefit.csv"
    path.write_text(BENEFIT)
    return path


@pytest.fixture
def competition(tmp_path: Path) -> Path:
    path = tmp_path / "competition.csv"
    path.write_text(COMPETITION)
    return path


def written(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


class TestTwoCsvFiles:
    def test_the_participants_are_those_of_both(self, benefit: Path, competition: Path) -> None:
        gives, rivals = read_graphs(benefit, competition)
        # Bank A is in the benefit file only, v3 in the competition file only.
        assert gives.participants == rivals.participants == ("Bank A", "v2", "v3", "v10")
        assert list(gives.edges()) == [("v2", "Bank A", 1.0), ("v10", "v2", 0.5)]
        assert rivals.pairs == (("v2", "v3"),)

    def test_competitors_without_any_benefit_are_told_of(
        self, benefit: Path, tmp_path: Path
    ) -> None:
        rivals = written(tmp_path / "c.csv", "a,b\nv2,v10\nbank a,v2\nv10,Somebody else\n")
        told: list[str] = []
        read_graphs(benefit, rivals, tell=told.append)
        strangers = f"is in no line of {benefit}, and counts as a further participant"
        assert told == [
            f"{rivals}, line 3: 'bank a' {strangers}; did you mean 'Bank A'?",
            f"{rivals}, line 4: 'Somebody else' {strangers}",
        ]

    def test_competitors_without_any_uncertain_benefit_are_told_of(self, tmp_path: Path) -> None:
        benefit = written(tmp_path / "e.csv", "source,target,weight,error\nv2,v10,1,0.1\n")
        rivals = written(tmp_path / "c.csv", "a,b\nv2,v11\n")
        told: list[str] = []
        known, _ = read_uncertain(benefit, rivals, tell=told.append)
        assert known.participants == ("v2", "v10", "v11")
        assert len(told) == 1
        assert "'v11' is in no line of" in told[0]

    def test_of_many_such_competitors_the_first_are_told_of(
        self, benefit: Path, tmp_path: Path
    ) -> None:
        pairs = "".join(f"v2,other {k}\n" for k in range(8))
        told: list[str] = []
        read_graphs(benefit, written(tmp_path / "c.csv", f"a,b\n{pairs}"), tell=told.append)
        assert len(told) == 6
        assert told[-1] == f"3 more competitors are in no line of {benefit}"

    def test_a_weight_of_zero_makes_a_name_known(self, tmp_path: Path, competition: Path) -> None:
        benefit = written(tmp_path / "b.csv", "source,target,weight\nv3,v2,0\n")
        told: list[str] = []
        read_graphs(benefit, competition, tell=told.append)
        assert told == []

    def test_paths_may_be_strings(self, benefit: Path, competition: Path) -> None:
        assert read_graphs(str(benefit), str(competition)) == read_graphs(benefit, competition)

    def test_headers_alone(self, tmp_path: Path) -> None:
        gives, rivals = read_graphs(
            written(tmp_path / "b.csv", "source,target,weight\n"),
            written(tmp_path / "c.csv", "a,b\n"),
        )
        assert gives == BenefitGraph([])
        assert rivals == CompetitionGraph([], 0)

    def test_exchanged_files(self, benefit: Path, competition: Path) -> None:
        with pytest.raises(
            GraphError,
            match=r"competition\.csv, line 1: expected the header source,target,weight, got 'a,b'$",
        ):
            read_graphs(competition, benefit)

    def test_errors_of_either_file_name_it(
        self, tmp_path: Path, benefit: Path, competition: Path
    ) -> None:
        with pytest.raises(GraphError, match=r"bad\.csv, line 2: the benefit of 'x' to 'y' is nan"):
            read_graphs(
                written(tmp_path / "bad.csv", "source,target,weight\nx,y,nan\n"), competition
            )
        with pytest.raises(GraphError, match=r"bad\.csv, line 3: 'x' cannot compete with itself"):
            read_graphs(benefit, written(tmp_path / "bad.csv", "a,b\nx,y\nx,x\n"))
        with pytest.raises(FedEgoistsError, match=r"none\.csv: no such file"):
            read_graphs(benefit, tmp_path / "none.csv")

    def test_too_many_participants_only_together(self, tmp_path: Path) -> None:
        rows = "".join(f"b{i},b{i + 1},1\n" for i in range(0, 6000, 2))
        pairs = "".join(f"c{i},c{i + 1}\n" for i in range(0, 6000, 2))
        with pytest.raises(
            GraphError, match=r"b\.csv and .*c\.csv: too many participants; at most 10,000 are"
        ):
            read_graphs(
                written(tmp_path / "b.csv", "source,target,weight\n" + rows),
                written(tmp_path / "c.csv", "a,b\n" + pairs),
            )

    @quick
    @given(benefit_graphs(), st.data())
    def test_round_trip_with_a_list_of_participants(
        self, tmp_path_factory: pytest.TempPathFactory, gives: BenefitGraph, data: st.DataObject
    ) -> None:
        names = gives.participants
        pairs = [p for p in itertools.combinations(names, 2) if data.draw(st.booleans())]
        rivals = CompetitionGraph(pairs, names)
        folder = tmp_path_factory.getbasetemp()
        (folder / "b.csv").write_bytes(gives.csv_bytes())
        (folder / "c.csv").write_bytes(rivals.csv_bytes())
        (folder / "p.txt").write_bytes("\n".join(["participant", *names]).encode())
        assert read_graphs(folder / "b.csv", folder / "c.csv", folder / "p.txt") == (gives, rivals)


class TestListOfParticipants:
    def test_it_fixes_who_and_in_which_order(
        self, tmp_path: Path, benefit: Path, competition: Path
    ) -> None:
        listed = written(tmp_path / "p.txt", "v10\nv3\nNew\nv2\nBank A\n")
        gives, rivals = read_graphs(benefit, competition, listed)
        assert gives.participants == rivals.participants == ("v10", "v3", "New", "v2", "Bank A")
        assert gives.benefit(0, 3) == 0.5
        assert rivals.competes(1, 3)

    def test_an_unknown_name_in_the_benefit_file(
        self, tmp_path: Path, benefit: Path, competition: Path
    ) -> None:
        listed = written(tmp_path / "p.txt", "v10\nv2\nv3\nBank B\n")
        with pytest.raises(
            GraphError,
            match=r"benefit\.csv, line 3: unknown participant 'Bank A'; did you mean 'Bank B'\?$",
        ):
            read_graphs(benefit, competition, listed)

    def test_an_unknown_name_in_the_competition_file(
        self, tmp_path: Path, benefit: Path, competition: Path
    ) -> None:
        listed = written(tmp_path / "p.txt", "v10\nv2\nBank A\n")
        with pytest.raises(GraphError, match=r"competition\.csv, line 2: unknown participant 'v3'"):
            read_graphs(benefit, competition, listed)

    def test_an_error_in_the_list_itself(
        self, tmp_path: Path, benefit: Path, competition: Path
    ) -> None:
        with pytest.raises(GraphError, match=r"p\.txt, line 2: the name 'a' is already on line 1"):
            read_graphs(benefit, competition, written(tmp_path / "p.txt", "a\na\n"))
        with pytest.raises(GraphError, match=r"p\.txt: the file is empty"):
            read_graphs(benefit, competition, written(tmp_path / "p.txt", ""))


class TestJson:
    GIVES = BenefitGraph([[0, 1, 0], [0, 0, 0], [0, 0, 0]], ["v3", "v2", "lonely"])
    RIVALS = CompetitionGraph([("v2", "lonely")], ["v3", "v2", "lonely"])

    def test_both_json(self, tmp_path: Path) -> None:
        gives = written(tmp_path / "b.json", self.GIVES.to_json())
        rivals = written(tmp_path / "c.JSON", "\ufeff" + self.RIVALS.to_json())
        assert read_graphs(gives, rivals) == (self.GIVES, self.RIVALS)

    def test_the_list_in_json_holds_for_the_csv_file(
        self, tmp_path: Path, competition: Path
    ) -> None:
        gives = written(tmp_path / "b.json", self.GIVES.to_json())
        assert read_graphs(gives, competition) == (
            self.GIVES,
            CompetitionGraph([("v3", "v2")], self.GIVES.participants),
        )

    def test_a_stranger_in_the_csv_file(self, tmp_path: Path, benefit: Path) -> None:
        rivals = written(tmp_path / "c.json", self.RIVALS.to_json())
        with pytest.raises(GraphError, match=r"benefit\.csv, line 2: unknown participant 'v10'"):
            read_graphs(benefit, rivals)

    def test_lists_that_differ(self, tmp_path: Path) -> None:
        gives = written(tmp_path / "b.json", self.GIVES.to_json())
        other = CompetitionGraph([], ["v3", "v2"])
        with pytest.raises(
            GraphError,
            match=r"c\.json: its participants are not those of .*b\.json: 'lonely' is in only one",
        ):
            read_graphs(gives, written(tmp_path / "c.json", other.to_json()))

    def test_lists_in_another_order(self, tmp_path: Path) -> None:
        gives = written(tmp_path / "b.json", self.GIVES.to_json())
        rivals = written(tmp_path / "c.json", self.RIVALS.to_json())
        with pytest.raises(
            GraphError, match=r"b\.json: its participants are not those of .*p\.txt: their order is"
        ):
            read_graphs(gives, rivals, written(tmp_path / "p.txt", "v2\nv3\nlonely\n"))

    def test_errors_name_the_file(self, tmp_path: Path, competition: Path) -> None:
        with pytest.raises(GraphError, match=r"b\.json: not JSON \(.*line 2 column 1"):
            read_graphs(written(tmp_path / "b.json", "{\n"), competition)
        text = '{"participants": ["v2", "v3"], "edges": [["v2", "v3", -1]]}'
        with pytest.raises(
            GraphError, match=r"b\.json, edge 0: the benefit of 'v2' to 'v3' is -1\.0; expected"
        ):
            read_graphs(written(tmp_path / "b.json", text), competition)

    @quick
    @given(competition_graphs())
    def test_round_trip_beside_an_empty_csv_file(
        self, tmp_path_factory: pytest.TempPathFactory, rivals: CompetitionGraph
    ) -> None:
        folder = tmp_path_factory.getbasetemp()
        empty = written(folder / "b.csv", "source,target,weight\n")
        gives, read = read_graphs(empty, written(folder / "c.json", rivals.to_json()))
        assert read == rivals
        assert gives.participants == rivals.participants
        assert not gives.weights.any()


class TestLargeFiles:
    def test_a_million_rows(self, tmp_path: Path) -> None:
        # Each of 1,001 benefits the thousand others, h0 by 1, h1 by 2, and so on.
        n = 1001
        rows = "".join(
            f"h{j},h{i},{j + 1}\n" for j, i in itertools.product(range(n), range(n)) if i != j
        )
        path = written(tmp_path / "b.csv", "source,target,weight\n" + rows)
        graph = BenefitGraph.from_csv(path)
        assert graph.participants == tuple(f"h{i}" for i in range(n))
        assert (graph.weights > 0).sum() == 1001 * 1000
        # Column 0 holds the weights 2 to 1001 of everybody but h0: 1001·1002/2 − 1.
        assert graph.weights[:, 0].sum() == 501_500
        assert graph.benefit("h1000", "h999") == 1001.0

    def test_a_million_participants_are_refused_early_and_in_little_memory(
        self, tmp_path: Path
    ) -> None:
        # Row k, on line k + 2, brings the names 2k and 2k + 1; the 10,001st is 10000 = 2·5000.
        rows = "".join(f"{k},{k + 1},1\n" for k in range(0, 1_000_000, 2))
        path = written(tmp_path / "b.csv", "source,target,weight\n" + rows)
        tracemalloc.start()
        try:
            with pytest.raises(
                GraphError, match=r"b\.csv, line 5002: too many participants; at most 10,000 are"
            ):
                BenefitGraph.from_csv(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The text in memory and read by lines, but not a matrix or a million names.
        assert peak < 8 * path.stat().st_size + 2**22
