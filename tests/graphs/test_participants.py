"""Names: which are allowed, in which order they come, and how a list of them is read."""

import enum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import MAX_PARTICIPANTS, read_participants
from fedegoists.graphs import participants as participants_module
from fedegoists.graphs.participants import (
    default_names,
    index_of,
    natural_order,
    shown,
    unknown_name,
    validated_name,
    validated_names,
)
from tests.graphs.graph_strategies import AWKWARD_NAMES, names, participant_lists, quick


def _too_slow(*_: object, **__: object) -> list[str]:
    raise AssertionError("comparing all of them would take minutes")


class TestOneName:
    @quick
    @given(names)
    def test_ordinary_and_awkward_names_stay_as_they_are(self, name: str) -> None:
        assert validated_name(name) == name

    def test_both_ways_to_write_an_accent_are_one_name(self) -> None:
        assert validated_name("Zu\u0308rich") == "Z\u00fcrich"

    def test_numpy_strings_become_plain_ones(self) -> None:
        assert type(validated_name(np.array(["North"])[0])) is str

    def test_an_enum_of_strings_stands_for_its_value(self) -> None:
        class Bank(str, enum.Enum):  # noqa: UP042 - older code has such enums
            NORTH = "North"

        assert validated_name(Bank.NORTH) == "North"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (7, "^file, line 3: 7 is not a name; participants are named by strings$"),
            (None, "^file, line 3: None is not a name"),
            (b"North", "^file, line 3: b'North' is not a name"),
            (10**5000, "^file, line 3: a value of type int is not a name"),
            ("", "^file, line 3: a participant's name is empty$"),
            (" \t", "^file, line 3: a participant's name is empty$"),
            (" North", "^file, line 3: the name ' North' starts or ends with a space; remove it$"),
            ("North\u00a0", r"^file, line 3: the name 'North\\xa0' starts or ends with a space"),
            ("No\nrth", r"^file, line 3: the name 'No\\nrth' contains a control character"),
            ("No\0rth", r"the name 'No\\x00rth' contains a control character"),
            ("No\x7frth", r"the name 'No\\x7frth' contains a control character"),
            ("\u202ehtroN", r"the name '\\u202ehtroN' contains a control character"),
            ("No\u2028rth", r"the name 'No\\u2028rth' contains a control character"),
            ("No\ud800rth", r"the name 'No\\ud800rth' contains a control character"),
            ("x" * 201, r"the name 'x{30}'… has 201 characters; at most 200 are allowed$"),
            (" " + "x" * 10**6, "has 1000001 characters; at most 200 are allowed$"),
        ],
        ids=lambda value: None if isinstance(value, str) and len(value) < 40 else "",
    )
    def test_what_is_no_name(self, name: object, message: str) -> None:
        with pytest.raises(GraphError, match=message):
            validated_name(name, "file, line 3")

    def test_the_longest_name(self) -> None:
        assert validated_name("x" * 200) == "x" * 200


class TestSeveralNames:
    @quick
    @given(participant_lists)
    def test_order_is_kept(self, participants: list[str]) -> None:
        assert validated_names(iter(participants)) == tuple(participants)

    def test_nobody(self) -> None:
        assert validated_names([]) == ()

    def test_a_name_twice(self) -> None:
        with pytest.raises(
            GraphError, match=r"^graph: the name 'b' is listed twice \(positions 1 and 3\)"
        ):
            validated_names(["a", "b", "c", "b"], "graph")

    def test_a_name_twice_with_its_accent_written_in_two_ways(self) -> None:
        with pytest.raises(GraphError, match="the name 'Zürich' is listed twice"):
            validated_names(["Z\u00fcrich", "Zu\u0308rich"])

    def test_the_same_letters_in_another_case_are_another_name(self) -> None:
        assert validated_names(["a", "A"]) == ("a", "A")

    @pytest.mark.parametrize(
        ("given_names", "message"),
        [
            ("North", "^graph: expected a list of names, not the single string 'North'$"),
            (3, "^graph: expected a list of names, got 3$"),
            (None, "^graph: expected a list of names, got None$"),
            (True, "^graph: expected a list of names, got True$"),
            ({"a", "b"}, "^graph: a set of names has no order; give the names in a list$"),
            (frozenset("ab"), "^graph: a set of names has no order"),
            (["a", 1], "^graph: 1 is not a name"),
        ],
    )
    def test_what_is_no_list_of_names(self, given_names: object, message: str) -> None:
        with pytest.raises(GraphError, match=message):
            validated_names(given_names, "graph")  # type: ignore[arg-type]

    def test_as_many_as_allowed_and_one_more(self) -> None:
        assert len(validated_names(default_names(MAX_PARTICIPANTS))) == 10_000
        with pytest.raises(GraphError, match=r"^graph: too many participants; at most 10,000 are"):
            validated_names(default_names(MAX_PARTICIPANTS + 1), "graph")

    def test_an_endless_list_is_refused(self) -> None:
        with pytest.raises(GraphError, match="too many participants"):
            validated_names(f"v{i}" for i in iter(int, 1) for i in range(10**9))

    def test_default_names(self) -> None:
        assert default_names(0) == ()
        assert default_names(11)[9:] == ("v9", "v10")


class TestReference:
    PARTICIPANTS = ("North", "South", "Zürich")

    @pytest.mark.parametrize(
        ("reference", "position"),
        [
            ("North", 0),
            (0, 0),
            ("Zu\u0308rich", 2),
            (1, 1),
            (np.int64(2), 2),
            (np.uint8(1), 1),
            (np.str_("South"), 1),
        ],
    )
    def test_names_and_positions(self, reference: object, position: int) -> None:
        assert index_of(reference, self.PARTICIPANTS, "pair 4") == position

    @pytest.mark.parametrize(
        ("reference", "written"),
        [
            (-1, "-1"),
            (3, "3"),
            (np.int64(-1), r"np\.int64\(-1\)"),
            (True, "True"),
            (False, "False"),
            (np.True_, r"np\.True_"),
            (1.0, r"1\.0"),
            (None, "None"),
            ((0, 1), r"\(0, 1\)"),
            (10**30, "10{30}"),
            (10**5000, "a value of type int"),
        ],
        ids=lambda value: "" if isinstance(value, int) and value > 9 else None,
    )
    def test_what_is_no_reference(self, reference: object, written: str) -> None:
        with pytest.raises(
            GraphError,
            match=f"^pair 4: {written} is not a participant; expected a name or a position from 0 "
            "to 2$",
        ):
            index_of(reference, self.PARTICIPANTS, "pair 4")

    def test_a_position_among_nobody(self) -> None:
        with pytest.raises(GraphError, match=r"^pair 4: 0 is not a participant; the list of part"):
            index_of(0, (), "pair 4")

    def test_a_name_among_nobody(self) -> None:
        with pytest.raises(
            GraphError,
            match=r"^pair 4: unknown participant 'a'; the list of participants is empty$",
        ):
            index_of("a", (), "pair 4")

    def test_a_misspelt_name_gets_the_right_one(self) -> None:
        with pytest.raises(
            GraphError, match=r"^pair 4: unknown participant 'Zurich'; did you mean 'Zürich'\?$"
        ):
            index_of("Zurich", self.PARTICIPANTS, "pair 4")

    def test_a_name_unlike_any_other_gets_the_first_few(self) -> None:
        with pytest.raises(
            GraphError,
            match=r"^pair 4: unknown participant 'Ostrava'; known are 'v0', 'v1', 'v2', 'v3', "
            r"'v4', 'v5', 'v6', 'v7' and 3 more$",
        ):
            index_of("Ostrava", default_names(11), "pair 4")

    @pytest.mark.parametrize(
        ("n", "end"), [(7, "'v5', 'v6'$"), (8, "'v6', 'v7'$"), (9, "'v6', 'v7' and 1 more$")]
    )
    def test_how_many_are_left_out(self, n: int, end: str) -> None:
        with pytest.raises(GraphError, match=end):
            index_of("Ostrava", default_names(n), "pair 4")

    def test_no_more_than_three_names_are_proposed(self) -> None:
        with pytest.raises(GraphError, match=r"did you mean 'Bank .', 'Bank .', 'Bank .'\?$"):
            index_of("Bank X", ["Bank A", "Bank B", "Bank C", "Bank D"], "pair 4")

    def test_long_names_are_not_compared_with_thousands_of_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(participants_module.difflib, "get_close_matches", _too_slow)
        alike = ["x" * 150 + f"{i:04}" * 12 for i in range(5000)]
        error = unknown_name("x" * 150 + "00q0" * 12, alike, "pair 4")
        assert str(error).startswith("pair 4: unknown participant 'xxx")

    def test_a_huge_name_is_cut(self) -> None:
        assert len(str(unknown_name("x" * 10**6, ["a"], "pair 4"))) < 300


class TestShown:
    def test_short_values_are_shown_whole(self) -> None:
        assert shown("a'b") == '"a\'b"'
        assert shown([1, "x"]) == "[1, 'x']"
        assert shown("x" * 58) == "'" + "x" * 58 + "'"  # 60 characters

    def test_long_values_are_cut(self) -> None:
        assert shown([0] * 100, 9) == "[0, 0, 0,…"

    def test_lists_nested_without_end(self) -> None:
        nested: list[object] = []
        for _ in range(100_000):
            nested = [nested]
        assert shown(nested) == "a value of type list"


class TestNaturalOrder:
    def test_numbers_by_value(self) -> None:
        assert natural_order(["v10", "v9", "v2", "v1"]) == ("v1", "v2", "v9", "v10")

    def test_letters_regardless_of_case_and_numbers_in_the_middle(self) -> None:
        assert natural_order(["b", "A 10 x", "a 9 x", "C"]) == ("a 9 x", "A 10 x", "b", "C")

    def test_numbers_before_letters(self) -> None:
        assert natural_order(["va", "v1", "a", "7", "v"]) == ("7", "a", "v", "v1", "va")

    def test_equal_numbers_written_differently(self) -> None:
        assert natural_order(["v1", "v01", "v001"]) == ("v001", "v01", "v1")

    def test_numbers_of_many_digits(self) -> None:
        assert natural_order(["v1" + "0" * 190, "v9"]) == ("v9", "v1" + "0" * 190)

    def test_digits_of_other_scripts_are_letters(self) -> None:
        assert natural_order(["v²", "v٣", "v1"]) == ("v1", "v²", "v٣")

    @quick
    @given(participant_lists.flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
    def test_the_order_of_the_input_does_not_matter(
        self, both: tuple[list[str], list[str]]
    ) -> None:
        one, other = both
        assert natural_order(one) == natural_order(other)
        assert sorted(natural_order(one)) == sorted(one)


class TestReadParticipants:
    @staticmethod
    def read(tmp_path: Path, content: str | bytes) -> tuple[str, ...]:
        path = tmp_path / "p.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_participants(path)

    def test_one_name_a_line_in_their_order(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "v10\nv2\n\n  Bank, Inc. \n#1") == (
            "v10",
            "v2",
            "Bank, Inc.",
            "#1",
        )

    @pytest.mark.parametrize("header", ["participant", "Participants", " PARTICIPANT "])
    def test_a_header_is_passed_over(self, tmp_path: Path, header: str) -> None:
        assert self.read(tmp_path, f"\n{header}\na\nb\n") == ("a", "b")

    def test_only_the_first_line_is_a_header(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "a\nparticipant\n") == ("a", "participant")
        assert self.read(tmp_path, "participant\nparticipant\n") == ("participant",)

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_line_ends_of_any_system(self, tmp_path: Path, end: str) -> None:
        assert self.read(tmp_path, f"a{end}{end}b{end}") == ("a", "b")

    def test_byte_order_mark(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, b"\xef\xbb\xbfparticipant\na\n") == ("a",)

    def test_awkward_names(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "\n".join(AWKWARD_NAMES)) == AWKWARD_NAMES

    def test_nobody_and_one(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "participant\n") == ()
        assert self.read(tmp_path, "a") == ("a",)

    @pytest.mark.parametrize("content", ["", "\n \r\n", "\ufeff"])
    def test_empty(self, tmp_path: Path, content: str) -> None:
        with pytest.raises(
            GraphError, match=r"p\.txt: the file is empty; write one name per line$"
        ):
            self.read(tmp_path, content)

    def test_a_name_twice_with_both_lines(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match=r"p\.txt, line 5: the name 'b' is already on line 3"):
            self.read(tmp_path, "participant\na\nb\n\nb\n")

    @pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
    def test_a_rare_separator_does_not_make_two_names_of_one(
        self, tmp_path: Path, separator: str
    ) -> None:
        with pytest.raises(GraphError, match=r"p\.txt, line 2: the name 'b.*c' contains a control"):
            self.read(tmp_path, f"a\nb{separator}c\n")

    def test_a_name_too_long_with_its_line(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match=r"p\.txt, line 2: the name 'x+'… has 300 characters"):
            self.read(tmp_path, "a\n" + "x" * 300)

    def test_a_million_names_are_refused_at_the_first_too_many(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match=r"p\.txt, line 10001: too many participants; at most"):
            self.read(tmp_path, "\n".join(map(str, range(1_000_000))))

    def test_missing_folder_and_binary(self, tmp_path: Path) -> None:
        with pytest.raises(FedEgoistsError, match=r"none\.txt: no such file"):
            read_participants(tmp_path / "none.txt")
        with pytest.raises(FedEgoistsError, match="is a folder"):
            read_participants(tmp_path)
        with pytest.raises(FedEgoistsError, match=r"p\.txt, line 1: byte 0 is not UTF-8"):
            self.read(tmp_path, b"\x89PNG\r\n\x1a\n")

    @quick
    @given(participant_lists)
    def test_round_trip(
        self, tmp_path_factory: pytest.TempPathFactory, participants: list[str]
    ) -> None:
        content = "\n".join(["participant", *participants])
        assert self.read(tmp_path_factory.getbasetemp(), content) == tuple(participants)

    @quick
    @given(st.binary(max_size=100) | st.text(max_size=100).map(lambda text: text.encode("utf-16")))
    def test_any_bytes_are_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, content: bytes
    ) -> None:
        try:
            found = self.read(tmp_path_factory.getbasetemp(), content)
        except FedEgoistsError:
            return
        assert validated_names(found) == found
