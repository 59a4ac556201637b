"""The committed tables and pages are what the committed cells give."""

import csv
import re
from dataclasses import replace
from statistics import fmean

import pandas
import pytest
from scipy.stats import ttest_rel

from fedegoists.learning.datasets import load
from fedegoists.methods.method_registry import TUNED
from reproduction import RESULTS
from reproduction.benefit_graphs import Benefits
from reproduction.cell_packing import GROUPS, table_holding
from reproduction.cell_store import CellStore
from reproduction.cells import Cell, Plan, cell_from
from reproduction.default_decisions import decision_page, read_decisions
from reproduction.gains_study import COLUMNS, REPORTED_ON, Decided, Gain, StudyResult, gain_page
from reproduction.hospital_study import HOSPITALS, hospital_page
from reproduction.image_gains import committed_cells, image_page, read_image_gains
from reproduction.packed_lines import ENDING, read_packed
from reproduction.privacy_study import STUDIES, page
from reproduction.rate_choice import (
    at_chosen_rates,
    chosen_rates,
    chosen_settings,
    preferred_company,
)
from reproduction.readme_tables import README_TABLES, with_tables
from reproduction.real_data_commands import origins
from reproduction.repeated_runs import by_seed, corrected, mean_differences, ratio_of, read_rows
from reproduction.reproduced_tables import CORRECTED, DECIDING, TABLES
from reproduction.scenarios import Scenario
from reproduction.table_results import interval, lines_of, worst_cases
from reproduction.table_writing import FOLDER, table_contents
from reproduction.variants import OURS, OURS_AT_BEST, SCREENED, VARIANTS
from reproduction.yardstick_study import PRODUCT, TABLES_COMPARED, yardstick_page

COMMITTED = sorted(name for name in TABLES if (RESULTS / FOLDER / f"{name}.csv").exists())
PACKED = sorted(path for path in (RESULTS / "cells").iterdir() if path.name != GROUPS + ENDING)
MEASURED_GAINS = sorted(path.stem for path in (RESULTS / "gains").glob("*.md"))


@pytest.fixture(scope="module")
def store():
    return CellStore(RESULTS)


NOT_TRAINED = {f"table4{CORRECTED}", "pfllib-augmented"}
"""Tables that wait for a GPU."""


def test_all_tables_are_committed():
    assert set(COMMITTED) >= set(TABLES) - NOT_TRAINED


@pytest.mark.parametrize("name", COMMITTED)
def test_pages_say_whether_methods_were_corrected(name):
    text = (RESULTS / FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert ("Trained before corrections of some methods" in text) == (TABLES[name].revision == 1)


@pytest.mark.parametrize("name", COMMITTED)
def test_tables_are_derived_from_the_cells(name, store):
    files = table_contents(TABLES[name], Plan(), store)
    assert set(files) >= {f"{name}.csv", f"{name}.md"}
    for file, content in files.items():
        assert content == (RESULTS / FOLDER / file).read_bytes(), file


@pytest.mark.parametrize("number", range(1, 8))
def test_all_of_the_papers_tables_have_both_budgets(number):
    head, *lines = (
        (RESULTS / FOLDER / f"table{number}.csv").read_text(encoding="utf-8").splitlines()
    )
    assert "budget" in head
    for name in ("published", "converged"):
        assert any(f",{name}," in line for line in lines)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_pages_of_privacy_are_derived_from_their_rows(name):
    with (RESULTS / "privacy" / f"{name}.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    rows = [
        (line["data"], float(line["epsilon"]), line["method"], line["repetition"], "", line["test"])
        for line in found
    ]
    written = (RESULTS / "privacy" / f"{name}.md").read_text(encoding="utf-8")
    origin = written.splitlines()[-1]
    assert f"python -m reproduction.privacy_study {name} " in origin
    assert page(STUDIES[name], rows, origin) == written


@pytest.mark.parametrize(
    "path", sorted((RESULTS / "hospitals").glob("*.csv")), ids=lambda p: p.stem
)
def test_pages_of_hospitals_are_derived_from_their_rows(path):
    written = path.with_suffix(".md").read_text(encoding="utf-8")
    found = origins(written)
    assert found
    assert all(f"python -m reproduction hospitals {path.stem}" in one for one in found)
    page = hospital_page(HOSPITALS[path.stem], read_rows(path), "\n\n".join(found))
    assert page == written


@pytest.mark.parametrize("name", ["heart", "eicu-demo"])
def test_all_models_were_trained_on_hospitals(name):
    rows = read_rows(RESULTS / "hospitals" / f"{name}.csv")
    for one in HOSPITALS[name].models:
        own = {(row.method, row.seed) for row in rows if row.model == one.name}
        assert own == {(method, seed) for method in one.methods for seed in range(10)}, one.name


def test_the_page_of_yardsticks_is_derived_from_its_rows():
    written = (RESULTS / "yardsticks" / "yardsticks.md").read_text(encoding="utf-8")
    rows = read_rows(RESULTS / "yardsticks" / "yardsticks.csv")
    assert yardstick_page(rows, written.splitlines()[-1]) == written


def test_training_alone_is_as_strong_as_scikit_learn_on_the_same_samples():
    """No comparison with a model of the same training samples is lost beyond noise."""
    rows = read_rows(RESULTS / "yardsticks" / "yardsticks.csv")
    names = list(dict.fromkeys(row.data for row in rows))
    assert len(names) >= 4
    for name in names:
        own = [row for row in rows if row.data == name]
        sign = -1 if TABLES_COMPARED[name].metric == "mse" else 1
        alone = by_seed(own, PRODUCT, "local")
        for label in ("usual penalty", "chosen penalty"):
            gaps = mean_differences(alone, by_seed(own, label, "local"))
            gap = corrected([sign * one for one in gaps], ratio_of(own))
            assert gap.mean + gap.half > 0, (name, label, gap)


@pytest.mark.parametrize("name", MEASURED_GAINS)
def test_pages_of_gains_are_derived_from_their_rows(name):
    folder = RESULTS / "gains"
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        gains = [
            Gain(
                int(line["repetition"]),
                int(line["partition"]),
                line["participant"],
                int(line["members"]),
                *(float(line[column]) for column in COLUMNS[4:]),
            )
            for line in csv.DictReader(file)
        ]
    with (folder / f"{name}-decisions.csv").open(encoding="utf-8") as file:
        decisions = [
            Decided(
                line["choice"],
                int(line["repetition"]),
                tuple(
                    tuple(group.split(" + ")) for group in line["coalitions"].split("; ") if group
                ),
                float(line["gain"]),
            )
            for line in csv.DictReader(file)
        ]
    written = (folder / f"{name}.md").read_text(encoding="utf-8")
    origin = written.splitlines()[-1]
    first, last = re.search(
        rf"reproduction gains {name} --repetitions (\d+)-(\d+)[ `]", origin
    ).groups()
    repetitions = set(range(int(first), int(last) + 1))
    assert repetitions <= set(REPORTED_ON)
    assert {one.repetition for one in gains} == repetitions
    cost = float(re.search(r"cost of the evidence, in trainings alone \| (.+) \|", written)[1])
    assert cost <= 3
    assert gain_page(name, StudyResult(gains, decisions, cost), origin) == written
    assert (folder / f"{name}.png").exists()


def test_predicted_gains_of_the_readme_are_those_of_the_pages():
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[([\w-]+)\]\(results/gains/\1\.md\)[^|]*\| (.+) \|$", text, re.MULTILINE
    )
    assert sorted(name for name, _ in rows) == MEASURED_GAINS
    for name, numbers in rows:
        page = (RESULTS / "gains" / f"{name}.md").read_text(encoding="utf-8")
        shown = dict(re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE))
        assert numbers.replace("−", "-").replace(" %", "%").split(" | ") == [
            shown["members in company"],
            shown["rank agreement (Spearman)"],
            shown["mean gain, predicted"],
            shown["mean gain, realised"],
            shown["90% intervals with test noise cover"],
            shown["cost of the evidence, in trainings alone"],
        ]


def test_gains_by_labels_are_those_of_their_rows_and_of_the_readme():
    folder = RESULTS / "label-gains"
    written = (folder / "label-gains.md").read_text(encoding="utf-8")
    gains = read_image_gains(folder / "label-gains.csv")
    assert image_page(gains, written.splitlines()[-1]) == written
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = re.findall(r"^\| cifar\d+, .*\|$", written, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        assert row in text


def test_realised_gains_by_labels_are_those_of_the_cells():
    gains = read_image_gains(RESULTS / "label-gains" / "label-gains.csv")
    cells = [
        cell
        for cell in committed_cells(RESULTS / "cells")
        if (cell["budget"], cell["data"]) == ("converged", "cifar100")
        if cell["options"]["partition"] == "dirichlet"
    ]

    def tested(gain, variant, **about):
        """Return a participant's results, one for each learning rate."""
        about = {"variant": variant, "repetition": gain.repetition, **about}
        return [
            cell["test"][gain.participant]
            for cell in cells
            if all(cell[key] == value for key, value in about.items())
        ]

    own = [one for one in gains if (one.data, one.division) == ("cifar100", "dirichlet")]
    for gain in own[:20]:
        possible = [
            100 * (together - alone)
            for together in tested(gain, "egomix-wide", competition=gain.competition)
            for alone in tested(gain, "local")
        ]
        assert min(abs(gain.realised - one) for one in possible) < 1e-3


def test_the_page_of_decisions_is_derived_from_its_rows():
    folder = RESULTS / "decisions"
    written = (folder / "decisions.md").read_text(encoding="utf-8")
    decisions = read_decisions(folder / "decisions.csv")
    assert decision_page(decisions, "\n\n".join(origins(written))) == written
    assert {one.estimator for one in decisions} == {"curves"}


def test_every_cell_has_its_own_name_and_all_of_its_group(store):
    names = store.digests()
    assert len(names) == 25_231
    assert store.unpacked() == []
    for name in names:
        content = store.load(name)
        assert cell_from(content["settings"]).digest == name
        assert set(content["about"]["pass"]) <= names
        assert name in content["about"]["command"]


def test_every_cell_is_stored_once_in_the_file_of_its_table(store):
    found = {path.name.removesuffix(ENDING): read_packed(path) for path in PACKED}
    assert sum(map(len, found.values())) == len(store.digests())
    for name, records in found.items():
        cells = [cell_from(store.load(record["cell"])["settings"]) for record in records]
        assert {table_holding(cell) for cell in cells} == {name}


@pytest.mark.parametrize("path", PACKED, ids=lambda path: path.name)
def test_pandas_opens_a_file_of_cells(path):
    cells = pandas.read_json(path, lines=True)
    assert set(cells["budget"]) <= {"published", "converged", "plain", "pfllib"}
    assert cells["cell"].is_unique
    for record, test in zip(read_packed(path), cells["test"], strict=True):
        assert test == pytest.approx(record["test"], nan_ok=True)


def test_committed_graphs_are_found_by_their_settings():
    """Names of graphs depend on settings of learning: another default must not lose them."""
    benefits = Benefits(RESULTS)
    for kind in ("weak", "strong"):
        data = load(f"synthetic-{kind}", seed=0)
        cell = Cell(Scenario(f"synthetic-{kind}"), 0, VARIANTS["fedegoists"], "converged")
        graph = benefits.known(cell, data)
        assert graph is not None
        assert graph.participants == data.participants


CLAIM = re.compile(
    r"\| (?P<number>[-+][\d.]+) (?:points|error) \| (?P<low>\S+) to (?P<high>\S+) "
    r"\| (?P<n>\d+) \| \[[^]]+\]\(results/tables/(?P<table>[\w-]+)\.md\)(?:, (?P<part>[^:]+))?: "
    r"(?P<one>.+) minus (?P<other>.+) \|$"
)
WHOLE = "All columns, rows that all of them have"


def said_in_short(table, part):
    """What the page of a table says in short of all columns or of one, or of the only part."""
    page = (RESULTS / FOLDER / f"{table}.md").read_text(encoding="utf-8")
    # The last budget of a page is the converged one, or the only one.
    said = page.split("### In short")[-1].split("###")[0]
    if part is None:
        assert "**" not in said, table  # a claim names the part that it is about
        return said
    title = WHOLE if part == "all columns" else part
    return said.split(f"**{title}**")[1].split("\n**")[0]


def test_the_claims_of_the_readme_are_those_of_the_tables():
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    first = text.split("\n## ")[0].replace("−", "-").split("### What is withdrawn")[0]
    rows = [line for line in first.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for row in rows:
        claim = CLAIM.search(row)
        assert claim, row
        interval = f"95 % interval {claim['low']} to {claim['high']}"
        names = f"{claim['one']} minus {claim['other']}"
        number = f"- {names}: {claim['number']}, {interval} ({claim['n']} repetitions)."
        assert number in said_in_short(claim["table"], claim["part"]), row


def test_the_leaderboard_of_the_readme_is_that_of_the_cells(store):
    """Every method in the coalitions that validation data prefers, on both synthetic data sets."""
    expected: dict[str, list[tuple[float, str]]] = {}
    for number in (6, 7):
        table = TABLES[f"table{number}-corrected"]
        lines = lines_of(table, Plan(), store)
        means = {one.method: one.mean for one in lines if ("participant", "Avg") in one.key}
        (company,) = preferred_company(table, Plan(), store).values()
        best = {"local": ("local", "alone"), "fedegoists": ("fedegoists", "learned")}
        for name, one in company.items():
            best[name] = (one.preferred, "learned" if one.preferred == name else "widest")
        for name, (row, where) in best.items():
            expected.setdefault(name, []).append((means[row], where))
    order = sorted(expected, key=lambda name: sum(mean for mean, _ in expected[name]))
    cells = (" | ".join(f"{mean:.3f}, {where}" for mean, where in expected[m]) for m in order)
    shown = [f"| {m} | {numbers} |" for m, numbers in zip(order, cells, strict=True)]
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert "\n".join(shown) in text


def test_tables_of_the_readme_are_those_of_the_cells(store):
    """`python -m reproduction readme` writes them."""
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert with_tables(text, store) == text
    assert set(re.findall("<!-- table: (.+) -->", text)) == set(README_TABLES)


def choice_score(cell, store):
    """The validation metric by which the rate and the settings of a cell were chosen."""
    found = []
    for variant in (cell.variant, cell.variant.followed(TUNED)):
        alike = [replace(cell, variant=variant, repetition=one) for one in DECIDING]
        results = [store.get(one) for one in alike]
        if all(results):
            found.append(fmean(one.mean_validation for one in results))
    return max(found)


def test_rows_are_screened_by_validation_data(store):
    """Rows at all levels are those that validation data does not put behind Local, and FedAvg."""
    scores: dict[str, list[float]] = {}
    for number in (1, 2):
        table = TABLES[f"table{number}-corrected"]
        deciding = tuple((key, one) for key, one in table.scenarios if one == one.deciding)
        part = replace(table, scenarios=deciding)
        for _, cell, rated in at_chosen_rates(part, Plan(), store):
            if rated is not None and not cell.variant.tuned and cell.repetition == 0:
                scores.setdefault(cell.variant.name, []).append(choice_score(rated, store))
    means = {name: fmean(own) for name, own in scores.items() if len(own) == 4}
    passed = {name for name, mean in means.items() if mean >= means["local"]}
    assert passed | {"fedavg-wide"} == set(SCREENED)
    assert len(means) == 20


def test_thresholds_and_budgets_of_the_readme_are_those_of_the_cells(store):
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    part = text.split("Along learned benefits, with ε")[1].split("### Before the corrections")[0]
    shown = dict(re.findall(r"^\| ([a-z].+?) \| (0.+) \|$", part, re.MULTILINE))
    assert len(shown) == 11
    means: dict[str, list[str]] = {name: [] for name in shown}
    for number in (6, 7):
        for line in lines_of(TABLES[f"table{number}-corrected"], Plan(), store):
            if ("participant", "Avg") in line.key and line.method in means:
                means[line.method].append(f"{line.mean:.3f}")
    assert {name: " | ".join(own) for name, own in means.items()} == shown


def test_the_lead_on_fresh_repetitions_is_that_of_the_cells(store):
    """EgoMix's parts were chosen with test numbers of repetitions 0 to 4 in view."""
    text = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    for data, number in (("CIFAR-10", 1), ("CIFAR-100", 2)):
        values = {
            line.method: line.values
            for line in lines_of(TABLES[f"table{number}-corrected"], Plan(), store)
            if dict(line.key) == {"alpha": 0.2, "distribution": "dirichlet"}
        }
        ours, theirs = values["egomix-0.8-wide+wise"], values["fedavgm-kept-wide+wise"]
        mean, low, high = interval([ours[one] - theirs[one] for one in range(5, 10)])
        assert f"+{mean:.1f} on {data} ({low:.1f} to {high:.1f})".replace("-", "−") in text.replace(
            "-", "−"
        )


def test_the_worst_cases_of_the_readme_are_those_of_the_cells(store):
    cases = worst_cases(TABLES["table3-corrected"], Plan(), store)
    ours = [case.value < 0 for case in cases if case.method == OURS_AT_BEST]
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert f"EgoMix is ahead in {sum(ours)} of {len(ours)} columns" in text


def levels(number, store, **wanted):
    """The lines of some columns of a corrected table, by all of their key, and by row."""
    found = {}
    for line in lines_of(TABLES[f"table{number}-corrected"], Plan(), store):
        if wanted.items() <= dict(line.key).items():
            found.setdefault(line.key, {})[line.method] = line
    return found


def gap(one, other):
    """The paired difference of two lines with its interval."""
    return interval([one.values[k] - other.values[k] for k in range(10)])


def readme():
    """The text of the laboratory's README, with minus signs and line ends alike."""
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    return " ".join(text.replace("−", "-").split())


def best_other(own):
    """The line of the best other row of a column."""
    others = [line for name, line in own.items() if not name.startswith(OURS)]
    return max(others, key=lambda line: line.mean)


def test_what_is_said_of_columns_by_competition_is_that_of_the_cells(store):
    text, costs, chances = readme(), [], []
    for distribution in ("dirichlet", "pathological"):
        columns = levels(2, store, distribution=distribution)
        by_alpha = {dict(key)["alpha"]: own for key, own in columns.items()}
        mean, low, high = gap(by_alpha[0.05][OURS_AT_BEST], by_alpha[0.4][OURS_AT_BEST])
        costs.append(f"{mean:.1f}{' points' * (not costs)} ({low:.1f} to {high:.1f})")
        pairs = [(own[OURS_AT_BEST], best_other(own)) for own in columns.values()]
        leads = [gap(*pair)[0] for pair in pairs]
        chances += [ttest_rel(*([line.values[k] for k in range(10)] for line in pair)).pvalue
                    for pair in pairs]  # fmt: skip
        order = (max, min) if distribution == "dirichlet" else (min, max)
        assert f"by {order[0](leads):.1f} to {order[1](leads):.1f}" in text
        assert min(leads) > 0
        numbers = {len({name.split("+")[0] for name in own}) - 1 for own in columns.values()}
        assert numbers == {11 - 1, 20 - 1}
    assert "first in all ten columns, eight of which have eleven methods and two twenty" in text
    assert f"it loses {' and '.join(costs)}" in text
    held = 0
    for number, chance in enumerate(sorted(chances)):
        if chance > 0.05 / (len(chances) - number):
            break
        held += 1
    assert held == 7
    assert "ten comparisons (Holm) seven of these leads hold" in text


def test_what_is_said_of_columns_by_beta_is_that_of_the_cells(store):
    text, columns = readme(), levels(5, store)
    leads = [gap(own[OURS_AT_BEST], best_other(own))[0] for own in columns.values()]
    said = f"the best other row of each by {min(leads):.1f} to {max(leads):.1f}."
    assert f"first in all six columns, ahead of {said}" in text
    for data, name in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        ((_, own),) = levels(5, store, dataset=data, beta=0.01).items()
        mean, low, high = gap(own[OURS_AT_BEST], own["local"])
        lead = re.escape(f"{mean:+.1f} ") + f"(over Local )?on {name}"
        assert re.search(lead + re.escape(f" ({low:.1f} to {high:.1f})"), text)
        better = {name.split("-wide")[0] for name, line in own.items()
                  if name != "local" and gap(line, own["local"])[1] > 0}  # fmt: skip
        assert better == {"egomix-0.8"}
    # Local at the rate of another β is a finished cell, too.
    table = TABLES["table5-corrected"]
    ((key, own),) = levels(5, store, dataset="cifar10", beta=0.01).items()
    cells = [(cell, rated) for k, cell, rated in at_chosen_rates(table, Plan(), store)
             if k == dict(key) and cell.variant.name == "local"]  # fmt: skip
    usual = chosen_rates(table, Plan(), store)["cifar10 dirichlet"]["local"]
    before = [store.get(replace(rated, factor=usual)) for _, rated in cells]
    means = [100 * one.mean for one in before]
    mean, low, high = interval(
        [own[OURS_AT_BEST].values[number] - value for number, value in enumerate(means)]
    )
    assert f"has {fmean(means):.1f}; EgoMix is ahead of that by {mean:.1f} ({low:.1f} to" in text
    assert sum(one.about["failures"] > 0 for one in before) == 3


def test_who_chose_again_at_another_beta_is_said(store):
    rates = chosen_rates(TABLES["table5-corrected"], Plan(), store)
    settings = chosen_settings(TABLES["table5-corrected"], Plan(), store)
    found = {}
    for where in rates:
        data, _, beta = where.partition(" β = ")
        bases = [name for name in rates[where] if name in SCREENED]
        found[data.split()[0], beta or "0.5"] = {
            name for name in bases
            if rates[where][name] != rates[data][name]
            or settings.get(where, {}).get(name) != settings.get(data, {}).get(name)
        }  # fmt: skip
    assert found["cifar10", "0.01"] == set(SCREENED)
    named = {"egomix-0.8", "fedavgm", "fedavgm-kept", "slowmo", "pfedgraph"}
    assert found["cifar10", "0.1"] == {f"{name}-wide" for name in named}
    assert not found["cifar100", "0.01"] | found["cifar100", "0.1"]
    text = readme()
    assert "all eleven methods chose again at β = 0.01" in text
    assert "At 0.1 five did: EgoMix, three averages with momentum, and pFedGraph" in text


def test_the_leads_in_pfllibs_settings_are_those_of_the_cells(store):
    by_column = {}
    for line in lines_of(TABLES["pfllib"], Plan(), store):
        by_column.setdefault(line.key, {})[line.method] = line
    leads = {
        dict(key)["distribution"]: own[OURS_AT_BEST].mean - best_other(own).mean
        for key, own in by_column.items() if dict(key)["dataset"] == "cifar10"
    } | {
        f"100 {dict(key)['distribution']}": own[OURS_AT_BEST].mean - best_other(own).mean
        for key, own in by_column.items() if dict(key)["dataset"] == "cifar100"
    }  # fmt: skip
    behind = [-lead for name, lead in leads.items() if "pathological" not in name]
    assert all(lead > 0 for name, lead in leads.items() if "pathological" in name)
    assert f"behind the best by {min(behind):.1f} to {max(behind):.1f} in the Dirichlet" in readme()


FAILING = ("| Local three; FedAvg, pFedGraph, FedFomo, APFL, pFedHN two; FedALA, FedPer, SCAFFOLD, "
           "FedDisco, FedBABU, FedAvgM one. |")  # fmt: skip


def test_who_fails_on_pathological_cifar10_is_said(store):
    ((_, own),) = levels(1, store, alpha=0.2, distribution="pathological").items()
    failing: dict[str, int] = {}
    for name, line in own.items():
        count = sum(one.about["failures"] > 0 for one in line.results)
        base = name.split("+")[0].removesuffix("-wide")
        failing[base] = max(failing.get(base, 0), count)
    words = {3: "three", 2: "two", 1: "one"}
    said = {
        name.strip().lower(): number
        for part in FAILING.strip("|. ").split(";")
        for *names, number in [part.replace(",", " ").split()]
        for name in names
    }
    assert said == {name: words[count] for name, count in failing.items() if count}
    assert FAILING.strip("| ") in readme()


def test_how_many_methods_are_better_than_local_on_table_7_is_that_of_the_cells(store):
    means = {
        line.method: line.mean
        for line in lines_of(TABLES["table7-corrected"], Plan(), store)
        if ("participant", "Avg") in line.key
    }
    others = [n for n in means if f"{n}-wide" in means and not n.startswith("egomix")]
    learned = sum(means[name] < means["local"] for name in others)
    widest = sum(means[f"{name}-wide"] < means["local"] for name in others)
    text = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"Of {len(others)} other methods with both rows, {learned} are better than Local along "
        f"learned benefits, and {widest} in the widest coalitions" in text
    )
