"""The page of statistics shows the stored rates, which are as they must be; simulations made again agree with them."""

import json

import numpy as np
import pytest
from scipy import stats

from benign.stats.law import LineErrors
from tests.stats import rates, tables
from tests.stats.truths import BASE

OFTEN = 1e-4
"""chance at which a simulation made again fails although nothing broke"""


def stored() -> dict:
    return json.loads(rates.JSON.read_text())


def test_the_page_is_made_of_the_stored_rates():
    page = rates.PAGE.read_text()
    assert tables.render(page, stored()) == page
    assert all(f"<!-- rates: {group} -->" in page for group in stored())


def test_every_case_is_stored_and_as_it_must_be():
    found = stored()
    assert {(each.group, each.name) for each in rates.cases()} == {
        (group, name) for group, of in found.items() for name in of
    }
    assert [each.partition(":")[0] for each in tables.failures(found)] == KNOWN


KNOWN = ["uneven scatter"] * 2 + ["worst_of_runs, 5 seeds, log-normal, by logarithms"]
"""cases of which the stored rates show that something does not hold; the page says so"""


def again(name: str, count: int) -> dict:
    [place] = [n for n, each in enumerate(rates.cases()) if each.name == name]
    return rates.summary(rates.simulate(place, 0, count))


def misses(found: dict[str, float], nominal: float = 0.95) -> bool:
    """Return whether a coverage is too low to be the nominal one."""
    hits = round(found["mean"] * found["of"])
    return bool(hits < stats.binom.ppf(OFTEN, found["of"], nominal))


COVERING = [
    (BASE.name, ("slope", "constant", "free constant")),
    ("sharp: a quarter of a column", ("slope", "constant")),
    ("rows never cross, a third", ("slope", "constant")),
    ("Jiang, even columns, loss at 0.2", ("slope", "constant")),
    ("seeds agree: grid alone", ("slope", "constant")),
    ("seeds 0.4, rows never cross", ("shift",)),
    ("rises, sd 0.2, 5 seeds", ("interval", "low end")),
    ("slope_by_seed, 5 seeds that share a shift", ("interval",)),
    ("worst_of_runs, 5 seeds, normal", ("high end",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts"), COVERING, ids=[name for name, _ in COVERING])
def test_intervals_cover_again(name: str, parts: tuple[str, ...]):
    found = again(name, 120)
    assert not [part for part in parts if misses(found[part])]


@pytest.mark.slow
def test_a_halved_interval_is_caught(monkeypatch):
    squares = LineErrors.squares
    monkeypatch.setattr(LineErrors, "squares", lambda self, level: squares(self, level) / 4)
    found = again(BASE.name, 120)
    assert misses(found["slope"])
    assert misses(found["constant"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step of 0.6", "re-entrant, 10 seeds"])
def test_broken_truths_have_no_fit(name: str):
    assert again(name, 40)["found"]["mean"] > 0.9


@pytest.mark.slow
def test_the_test_of_fit_rarely_fails_where_the_law_holds():
    found = again("seeds 0.4, runs 0.2", 200)["no fit"]
    assert found["mean"] * found["of"] <= stats.binom.ppf(1 - OFTEN, found["of"], tables.ALARMS)


def test_bad_rates_are_caught():
    found = stored()
    slope = found["boundary"][BASE.name]["slope"]
    slope.update(mean=0.93, low=0.925, high=0.935)
    assert f"{BASE.name}: slope covers 93.0 [92.5, 93.5]" in tables.failures(found)
    wide = stored()
    wide["boundary"][BASE.name]["slope width"]["mean"] *= 2
    assert any("as wide" in each for each in tables.failures(wide))
    low = stored()
    of = low["bound"]["worst_of_runs, 5 seeds, normal"]["high end"]
    of.update(mean=0.9, low=0.89, high=0.91)
    assert any(each.startswith("worst_of_runs") for each in tables.failures(low))


def test_a_simulation_is_the_same_whatever_runs_beside_it():
    place = next(n for n, each in enumerate(rates.cases()) if each.group == "mean")
    both = rates.simulate(place, 0, 4)
    assert rates.simulate(place, 2, 2) == both[2:]
    assert rates.summary([{"x": 1.0}, {"x": 0.0}, {}])["x"]["of"] == 2
    assert np.isclose(rates.summary([{"a width": 2.0}])["a width"]["mean"], 2)
