"""Participants: names and repetitions, never glued together."""

from fedegoists.federation import Participant


def test_a_participant_is_a_value():
    assert Participant("North") == Participant("North", None) != Participant("North", 0)
    assert len({Participant("North", 0), Participant("North", 0), Participant("South", 0)}) == 2
    # A name with a slash is still another participant, though its text is the same.
    assert Participant("0/North") != Participant("North", 0)
    assert str(Participant("0/North")) == str(Participant("North", 0)) == "0/North"


def test_participants_are_ordered_by_their_text_also_with_and_without_repetitions():
    some = [Participant("b"), Participant("a", 1), Participant("a"), Participant("c", 0)]
    assert list(map(str, sorted(some))) == ["0/c", "1/a", "a", "b"]


def test_coalitions_of_names_become_coalitions_of_one_repetition():
    groups = Participant.groups([["a", "b"], ["c"]], 3)
    assert groups == [
        (Participant("a", 3), Participant("b", 3)),
        (Participant("c", 3),),
    ]
