"""Reading graphs from CSV files: many ways to write them, and clear errors."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from tests.graphs.graph_strategies import (
    BENEFIT_HEADER,
    COMPETITION_HEADER,
    benefit_graphs,
    quick,
    read_benefit,
    read_competition,
)


class TestBenefitFromCsv:
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
        assert read_benefit(tmp_path, content) == BenefitGraph([[0, 0.5], [0, 0]], ["a", "b"])

    def test_the_header_alone_is_nobody(self, tmp_path: Path) -> None:
        assert read_benefit(tmp_path, BENEFIT_HEADER) == BenefitGraph([])
        assert read_benefit(tmp_path, BENEFIT_HEADER, ["a"]) == BenefitGraph([[0]], ["a"])

    def test_participants_in_natural_order(self, tmp_path: Path) -> None:
        graph = read_benefit(tmp_path, BENEFIT_HEADER + "v10,v9,1\nv2,v10,1\n")
        assert graph.participants == ("v2", "v9", "v10")
        assert list(graph.edges()) == [("v2", "v10", 1.0), ("v10", "v9", 1.0)]

    def test_participants_given_fix_list_and_order(self, tmp_path: Path) -> None:
        graph = read_benefit(tmp_path, BENEFIT_HEADER + "v10,v9,1\n", ["v10", "x", "v9"])
        assert graph == BenefitGraph([[0, 0, 1], [0, 0, 0], [0, 0, 0]], ["v10", "x", "v9"])

    def test_an_accent_written_in_two_ways_is_one_name(self, tmp_path: Path) -> None:
        graph = read_benefit(tmp_path, BENEFIT_HEADER + "Z\u00fcrich,a,1\na,Zu\u0308rich,2\n")
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
            ("x,y,1", "line 3: the edge from 'x' to 'y' is listed twice; keep one"),
            ("y,x,1\n x,y ,2", "line 4: the edge from 'x' to 'y' is listed twice; keep one"),
            ("source,target,weight", "line 3: the weight 'weight' of 'source' for 'target' is no"),
        ],
        ids=lambda value: "" if len(value) > 200 else None,
    )
    def test_wrong_rows(self, tmp_path: Path, rows: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"benefit\.csv, {message}"):
            read_benefit(tmp_path, f"{BENEFIT_HEADER}x,y,0.5\n{rows}\n")

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
            read_benefit(tmp_path, content)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ((BENEFIT_HEADER + "a,b,1\n").encode("utf-16"), "line 1: byte 0 is not UTF-8 text"),
            ((BENEFIT_HEADER + "a,b,1\n").encode("utf-16-be"), "line 1: contains a NUL character"),
            ((BENEFIT_HEADER + "é,b,1\n").encode("latin-1"), "line 2: byte 21 is not UTF-8 text"),
            (b"\x1f\x8b\x08\x00\x00", "line 1: byte 1 is not UTF-8 text"),
            (BENEFIT_HEADER.encode() + b"a,b,1\na,\0,1\n", "line 3: contains a NUL character"),
        ],
    )
    def test_what_is_no_text(self, tmp_path: Path, content: bytes, message: str) -> None:
        with pytest.raises(FedEgoistsError, match=rf"benefit\.csv, {message}"):
            read_benefit(tmp_path, content)

    def test_unknown_names_with_file_and_line(self, tmp_path: Path) -> None:
        with pytest.raises(
            GraphError,
            match=r"benefit\.csv, line 3: unknown participant 'Nort'; did you mean 'North'\?$",
        ):
            read_benefit(
                tmp_path, BENEFIT_HEADER + "North,East,1\nEast,Nort,1\n", ["East", "North"]
            )
        with pytest.raises(GraphError, match=r"benefit\.csv, line 2: unknown participant 'Nort'"):
            read_benefit(tmp_path, BENEFIT_HEADER + "Nort,East,1\n", ["East", "North"])
        with pytest.raises(GraphError, match=r"benefit\.csv, line 2: unknown participant 'a'; the"):
            read_benefit(tmp_path, BENEFIT_HEADER + "a,b,1\n", [])

    def test_participants_given_twice(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match=r"^participants: the name 'a' is listed twice"):
            read_benefit(tmp_path, BENEFIT_HEADER, ["a", "a"])

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
        for start in (b"", BENEFIT_HEADER.encode()):
            try:
                graph = read_benefit(folder, start + content)
            except FedEgoistsError:
                continue
            assert read_benefit(folder, graph.csv_bytes(), graph.participants) == graph

    @quick
    @given(benefit_graphs(), st.data())
    def test_a_file_cut_off_is_refused_or_lacks_its_end(
        self, tmp_path_factory: pytest.TempPathFactory, graph: BenefitGraph, data: st.DataObject
    ) -> None:
        whole = graph.csv_bytes()
        cut = whole[: data.draw(st.integers(0, len(whole)))]
        try:
            read = read_benefit(tmp_path_factory.getbasetemp(), cut)
        except FedEgoistsError:
            return
        # Nothing can tell a last weight that lost digits; all rows before it are right.
        complete = list(graph.edges())[: max(0, cut.count(b"\n") - 1)]
        assert set(complete) <= set(read.edges())
        assert len(list(read.edges())) <= len(complete) + 1


class TestCompetitionFromCsv:
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
        assert read_competition(tmp_path, content) == CompetitionGraph([("x", "y")], ["x", "y"])

    def test_the_header_alone_is_nobody(self, tmp_path: Path) -> None:
        assert read_competition(tmp_path, COMPETITION_HEADER) == CompetitionGraph([], 0)

    def test_participants_in_natural_order_or_as_given(self, tmp_path: Path) -> None:
        content = COMPETITION_HEADER + "v10,v9\nv10,v2\n"
        assert read_competition(tmp_path, content).participants == ("v2", "v9", "v10")
        given_names = ["v10", "x", "v9", "v2"]
        assert read_competition(tmp_path, content, given_names) == CompetitionGraph(
            [(0, 2), (0, 3)], given_names
        )

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ("v,v", "line 3: 'v' cannot compete with itself; remove the pair$"),
            ("x,y", "line 3: the pair of 'x' and 'y' is listed twice; keep one$"),
            (
                "\ny, x",
                "line 4: the pair of 'y' and 'x' is listed twice; keep one$",
            ),
            ("x,y,1", r"line 3: 3 values where 2 are expected \(a,b\); is the file cut off"),
            ("x", r"line 3: 1 values where 2 are expected \(a,b\); is the file cut off"),
            ('x,"y', r"line 3: not valid CSV \(unexpected end of data\); is the file cut off"),
            ("x,", "line 3: a participant's name is empty$"),
            ('"x\ny",z', r"line 4: the name 'x\\ny' contains a control character"),
        ],
    )
    def test_wrong_rows(self, tmp_path: Path, rows: str, message: str) -> None:
        with pytest.raises(GraphError, match=rf"competition\.csv, {message}"):
            read_competition(tmp_path, f"{COMPETITION_HEADER}x,y\n{rows}\n")

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
            read_competition(tmp_path, content)

    def test_unknown_names_with_file_and_line(self, tmp_path: Path) -> None:
        with pytest.raises(
            GraphError, match=r"competition\.csv, line 3: unknown participant 'Nort'; did you mean"
        ):
            read_competition(
                tmp_path, COMPETITION_HEADER + "North,East\nEast,Nort\n", ["North", "East"]
            )

    def test_latin_1(self, tmp_path: Path) -> None:
        with pytest.raises(FedEgoistsError, match=r"competition\.csv, line 2: byte 5 is not UTF-8"):
            read_competition(tmp_path, (COMPETITION_HEADER + "Zürich,Genf\n").encode("latin-1"))

    @quick
    @given(
        st.binary(max_size=80) | st.text(alphabet='xy,;"\n\r #é\x85\0', max_size=60).map(str.encode)
    )
    def test_any_bytes_are_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes
    ) -> None:
        folder = tmp_path_factory.getbasetemp()
        for start in (b"", COMPETITION_HEADER.encode()):
            try:
                graph = read_competition(folder, start + content)
            except FedEgoistsError:
                continue
            assert read_competition(folder, graph.csv_bytes(), graph.participants) == graph
