"""Learning curves and exchange rates: hand-derived gains, properties, files."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, GraphError, SettingsError
from fedegoists.graphs import CoalitionValues, CurveValues, coalition_values, read_values
from fedegoists.graphs.coalition_values import pair_bounds, pair_graph
from fedegoists.graphs.values_files import values_from_dict
from tests.coalitions.value_instances import plain_error, plain_gain, random_values
from tests.graphs.graph_strategies import participant_lists, quick


def two(**more):
    return CurveValues([100, 300], [0.02, 0.01], [[0, 0.9], [0.5, 0]], ["N", "S"], **more)


def curve(power: float, x: float) -> float:
    values = CurveValues([1, 1], [1.0, 0.0], [[0, 0], [x, 0]], powers=[power, 0])
    return float(values.gains([[True, True]])[0, 0])


def test_gains_by_hand():
    # North: x = 0.5 · 300 / 100 = 1.5; South: x = 0.9 · 100 / 300 = 0.3.
    gains = two().gains([[True, True], [True, False]])
    assert gains == pytest.approx(
        np.array([[0.02 * math.log2(2.5), 0.01 * math.log2(1.3)], [0.0, 0.0]])
    )


def test_doubling_the_data_brings_the_slope():
    assert curve(0.0, 1.0) == pytest.approx(1.0)
    assert curve(0.0, 3.0) == pytest.approx(2.0)


def test_errors_by_hand():
    values = two(slope_errors=[0.004, 0], rate_errors=[[0, 0], [0.1, 0]])
    errors = values.standard_errors([[True, True]])[0]
    by_slope = 0.004 * math.log2(2.5)
    by_rate = 0.02 / (2.5 * math.log(2)) * 3 * 0.1
    assert errors[0] == pytest.approx(math.hypot(by_slope, by_rate))
    assert errors[1] == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_vectorised_gains_and_errors_are_those_of_the_definition(seed):
    values = random_values(5, seed)
    group = (0, 2, 4)
    row = [[True, False, True, False, True]]
    gains, errors = values.gains(row)[0], values.standard_errors(row)[0]
    for i in group:
        assert gains[i] == pytest.approx(plain_gain(values, i, group), abs=1e-12)
        assert errors[i] == pytest.approx(plain_error(values, i, group), rel=1e-4, abs=1e-10)
    assert gains[1] == gains[3] == errors[1] == errors[3] == 0.0


powers = st.floats(-10, 1)
worths = st.floats(-3, 50)


@quick
@given(powers, worths, worths)
def test_curves_are_increasing(power, a, b):
    low, high = min(a, b), max(a, b)
    assert curve(power, low) <= curve(power, high) + 1e-9 * abs(curve(power, low))


@quick
@given(powers, worths, worths)
def test_curves_are_concave(power, a, b):
    middle = curve(power, (a + b) / 2)
    ends = curve(power, a), curve(power, b)
    assert middle >= sum(ends) / 2 - 1e-9 * (1 + max(map(abs, ends)))


@quick
@given(powers)
def test_nothing_from_nobody(power):
    assert curve(power, 0.0) == 0.0


def test_the_tangent_goes_on_below_minus_one_half():
    # f(−1/2) = −1 doubling; the slope there is 2 / ln 2 doublings per unit.
    assert curve(0.0, -0.5) == pytest.approx(-1.0)
    assert curve(0.0, -1.5) == pytest.approx(-1.0 - 2 / math.log(2))


@pytest.mark.parametrize("seed", range(10))
def test_a_worthless_member_never_raises_a_gain(seed):
    values = random_values(4, seed)
    rates = values.rates.copy()
    rates[3] = -np.abs(rates[3])  # worth nothing, or harmful, to everybody
    worse = CurveValues(values.samples, values.slopes, rates, powers=values.powers)
    before = worse.gains([[True, True, True, False]])[0, :3]
    after = worse.gains([[True, True, True, True]])[0, :3]
    assert (after <= before + 1e-15).all()


def test_a_member_without_data_is_worth_nothing():
    rates = np.full((3, 3), 0.8) - 0.8 * np.eye(3)
    values = CurveValues([100, 100, 0], [0.02, 0.02, 0], rates)
    with_it, without = values.gains([[True, True, True], [True, True, False]])
    assert with_it.tolist() == without.tolist()
    assert with_it[2] == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_bounds_keep_their_promises(seed):
    values = random_values(6, seed)
    sets = np.array([[mask >> i & 1 for i in range(6)] for mask in range(64)], dtype=bool)
    gains, upper = values.gains(sets), values.upper_gains(sets)
    pairs = pair_bounds(values)
    slack = 1e-12
    assert (gains <= upper + slack).all()
    assert (upper <= np.where(sets, sets @ pairs, 0.0) + slack).all()
    for k, touching in enumerate(sets):
        constants, weights = values.linear_bounds(np.repeat(touching[None], 6, axis=0))
        assert (constants >= 0).all()
        bound = constants + sets @ weights
        assert (gains <= np.where(sets, bound, 0.0) + slack).all()
        assert np.where(touching, bound[k], 0.0) == pytest.approx(gains[k], abs=slack)


def test_pairs_show_what_the_two_would_gain_alone():
    graph = pair_graph(two())
    assert graph.benefit("S", "N") == pytest.approx(0.02 * math.log2(2.5))
    harmful = CurveValues([1, 1], [1, 1], [[0, -0.3], [0.5, 0]])
    assert pair_graph(harmful).benefit("v0", "v1") == 0.0


def test_values_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        two().rates[0, 1] = 2.0


def test_restriction_keeps_the_gains_of_those_who_stay():
    values = random_values(5, 3)
    part = values.restricted_to(["v4", "v1"])
    assert part.participants == ("v4", "v1")
    whole = values.gains([[False, True, False, False, True]])[0]
    assert part.gains([[True, True]])[0] == pytest.approx(whole[[4, 1]])
    with pytest.raises(GraphError, match="unknown participant"):
        values.restricted_to(["v9"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": [100, -1]}, "the samples of 'S' is -1.0; expected a number from 0"),
        ({"slopes": [0.02, -0.1]}, "the slope of 'S' is -0.1"),
        ({"slopes": [0.02, math.nan]}, "the slope of 'S' is nan"),
        ({"rates": [[0, math.inf], [0, 0]]}, "the exchange rate of 'N' for 'S' is inf"),
        ({"rates": [[1, 0], [0, 0]]}, "'N' has an exchange rate"),
        ({"rates": [[0, 1]]}, "expected a square matrix"),
        ({"powers": [0, 1.5]}, "the power of 'S' is 1.5; expected a number from -10 to 1"),
        ({"slope_errors": [0, -1]}, "the slope error of 'S' is -1.0"),
        ({"rate_errors": [[0, -1], [0, 0]]}, "the exchange rate's error of 'N' for 'S' is -1.0"),
        ({"samples": [0, 300]}, "'N' has 0 samples, so it has no learning curve"),
        ({"samples": [1, 2, 3]}, "samples: expected 2 numbers, got shape"),
        ({"samples": ["a", "b"]}, "samples: expected 2 numbers, got values of type"),
        ({"samples": [1e-5, 1e12], "slopes": [0, 0]}, None),
        ({"samples": [1, 1e12], "rates": [[0, 0], [1e3, 0]]}, "worth more than 1e\\+12 times"),
        ({"unit": 3}, "the unit 3 is no text"),
        ({"unit": "A\ud800"}, "is no text"),
        ({"participants": ["N", "N"]}, "N"),
    ],
)
def test_what_means_nothing_is_refused(change, message):
    given_values = {
        "samples": [100, 300],
        "slopes": [0.02, 0.01],
        "rates": [[0, 0.9], [0.5, 0]],
        "participants": ["N", "S"],
        **change,
    }
    if message is None:
        CurveValues(**given_values)
        return
    with pytest.raises(GraphError, match=message):
        CurveValues(**given_values)


# Files -----------------------------------------------------------------------------------------

numbers = st.floats(0, 1e6)


@st.composite
def curve_values(draw):
    names = draw(participant_lists)
    n = len(names)

    def matrix(entries):
        return [[0.0 if i == j else draw(entries) for i in range(n)] for j in range(n)]

    return CurveValues(
        [draw(st.floats(1, 1e5)) for _ in names],
        [draw(numbers) for _ in names],
        matrix(st.floats(-1e3, 1e3)) or [],
        names,
        slope_errors=[draw(numbers) for _ in names],
        rate_errors=matrix(numbers) or [],
        powers=[draw(st.floats(-10, 1)) for _ in names],
        unit=draw(st.text(max_size=5)),
    )


@quick
@given(curve_values())
def test_json_reads_back_exactly(values):
    assert CurveValues.from_json(values.to_json()) == values
    assert values_from_dict(values.to_dict()).sha256 == values.sha256


@quick
@given(curve_values())
def test_csv_reads_back_exactly(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("values")
    for name, content in zip(("curves.csv", "rates.csv"), values.csv_files(), strict=True):
        (folder / name).write_bytes(content)
    again = read_values(folder / "curves.csv", folder / "rates.csv", unit=values.unit)
    assert again == values


@quick
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kind", "participants", "samples", "slopes", "rates", "x"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_any_other_json_is_an_error_and_no_crash(data):
    for content in (data, {"kind": "curves", **data} if isinstance(data, dict) else data):
        try:
            values = values_from_dict(content)
        except FedEgoistsError:
            continue
        assert isinstance(values, CoalitionValues)


@pytest.mark.parametrize(
    ("curves", "rates", "message"),
    [
        ("a,10,0.1,0,0\na,10,0.1,0,0", "", "curves.csv, line 3: 'a' is listed twice"),
        ("a,ten,0.1,0,0", "", "curves.csv, line 2: 'ten' is not a number"),
        ("a,10,0.1,0,0", "b,a,1,0", "rates.csv, line 2: unknown participant 'b'"),
        ("a,10,0.1,0,0\nb,10,0,0,0", "b,a,1,0\nb,a,2,0", "rates.csv, line 3: the rate of 'b'"),
        ("a,10,0.1,0,0\nb,10,0,0,0", "b,a,1_0,0", "rates.csv, line 2: '1_0' is not a number"),
    ],
)
def test_errors_in_files_name_the_line(tmp_path, curves, rates, message):
    first, second = tmp_path / "curves.csv", tmp_path / "rates.csv"
    first.write_text("participant,samples,slope,slope_error,power\n" + curves)
    second.write_text("source,target,rate,rate_error\n" + rates)
    with pytest.raises(GraphError, match=message):
        read_values(first, second)


def test_csv_needs_rates_and_json_has_its_own(tmp_path):
    with pytest.raises(SettingsError, match="need a second CSV file of exchange rates"):
        read_values(tmp_path / "curves.csv")
    with pytest.raises(SettingsError, match="has exchange rates of its own"):
        read_values(tmp_path / "values.json", tmp_path / "rates.csv")


def test_json_of_another_kind_names_the_known_ones():
    with pytest.raises(GraphError, match="one of 'curves', 'uncertain benefits'; got 'trees'"):
        values_from_dict({"kind": "trees"}, "values.json")


def test_frames_have_a_row_per_participant_and_per_rate():
    values = two()
    assert values.to_frame()["slope"].tolist() == [0.02, 0.01]
    assert values.rates_to_frame().values.tolist() == [["N", "S", 0.9, 0.0], ["S", "N", 0.5, 0.0]]


def test_bounds_of_pairs_do_not_depend_on_how_many_are_asked_at_once(monkeypatch):
    rng = np.random.default_rng(2)
    rates = rng.random((6, 6)) * (1 - np.eye(6))
    values = CurveValues(rng.integers(50, 500, 6), rng.random(6) / 20, rates, list("abcdef"))
    at_once = pair_bounds(values)
    assert (at_once > 0).any()
    for entries in (1, 24, 90):  # one, four and all fifteen pairs of six participants
        monkeypatch.setattr(coalition_values, "ENTRIES_AT_A_TIME", entries)
        assert np.array_equal(pair_bounds(values), at_once)
