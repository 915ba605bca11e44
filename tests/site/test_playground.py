"""The playground: what is pressed changes what is shown, and experiments show what they say."""

import pytest

from tests.site.playground_page import choose, colours, picture, set_up, slide, state, text

pytestmark = pytest.mark.site


def test_the_first_picture_says_something(page):
    now = state(page)
    assert now.placed == "separated" and now.nDraws == 40 and not now.isMoved
    assert now.within == pytest.approx(1 / 3, abs=1e-3) and now.across < 0.01
    assert text(page, "expected") == f"{now.density:.3f}"
    assert text(page, "drawn-edges") == f"{now.edges} edges"
    for part in ("plane", "probabilities", "mask", "chart"):
        assert colours(page, part) > 5
    assert page.locator("#pg-still").is_hidden()
    assert "24 tokens and 3 clusters" in text(page, "summary")


def test_a_certain_edge_is_found_in_63_per_cent_of_algorithm_1s_draws(page):
    set_up(page, 3)
    for _ in range(10):
        page.locator("[data-part=redraws]").click()
    found = state(page)
    assert found.nDraws == 1001
    assert found.frequency == pytest.approx(0.632, abs=0.05)  # 3.3 standard deviations; the seed is fixed
    assert text(page, "says-algorithm1") == "63.2 %" and text(page, "says-exact") == "100.0 %"
    assert found.density == pytest.approx(0.632, abs=1e-3) and 3 in found.kinds
    choose(page, "law", "exact")
    exact = state(page)
    assert exact.nDraws == 1001 and exact.frequency == 1.0 and exact.edges == 576
    choose(page, "link", "poisson")
    choose(page, "law", "algorithm1")
    assert state(page).nDraws == 1 and page.locator("[data-part=legend-lost]").is_hidden()


def test_experiments_show_what_they_say(page):
    one = set_up(page, 0)
    move = """(place) => {
        const { session } = window.sbmtPlayground;
        session.points.clusters[0] = place;
        session.set({ link: "bilinear" });
    }"""
    for place, low, high in (([5, 5], 0.999, 1), ([3, -3], 0.2, 0.3), ([1, -1], 0.2, 0.3), ([-1.5, -1.5], 0, 0.01)):
        page.evaluate(move, place)
        assert low <= state(page).density <= high
    assert len(one.points["clusters"]) == 1 and one.density > 0.99

    budget = set_up(page, 1)
    assert budget.within == pytest.approx(1 / 3, abs=1e-3)
    page.evaluate(move, [0, 4.5])
    block = page.evaluate("[0, 9, 17].map((i) => sbmtPlayground.session.model.probability[i][i + 1])")
    assert block[0] > 0.99 and max(block[1:]) < 0.01

    rates = set_up(page, 2)
    assert rates.within > 0.97 and rates.across < 0.2
    choose(page, "link", "bilinear")
    assert state(page).within < 0.34

    floor = set_up(page, 4)
    assert floor.density == pytest.approx(0.0578, abs=1e-3)
    assert floor.kinds.count(2) > floor.kinds.count(1)

    price = set_up(page, 5)
    assert price.density > 0.999
    page.locator("[data-part=steps]").click()
    closed = state(page)
    assert closed.density < 0.01
    assert all(x + y < 0 for x, y in closed.points["clusters"])


def test_exploration_and_price_react(page):
    before, plane = state(page), picture(page, "plane")
    assert page.locator("[data-part=step]").is_disabled() and page.locator("[data-part=legend-explored]").is_hidden()
    slide(page, "exploration", 6)
    explored = state(page)
    assert text(page, "exploration") == "0.1" and page.locator("[data-part=legend-explored]").is_visible()
    assert explored.density == pytest.approx(before.density + 0.1) and 2 in explored.kinds
    page.locator("[name=density-weight]").select_option("0.01")
    assert text(page, "price") == "2.1 × 10⁻³"
    assert picture(page, "plane") != plane  # arrows
    page.locator("[data-part=step]").click()
    assert state(page).density < explored.density


def test_cases_and_numbers_of_points(page):
    found = {}
    for name in ("collapsed", "separated", "distant", "fresh", "certain"):
        page.locator(f"[data-place={name}]").click()
        found[name] = state(page).density
        assert page.locator(f"[data-place={name}]").get_attribute("aria-pressed") == "true"
    expected = {"collapsed": 1.0, "separated": 1 / 9, "distant": 0.01, "fresh": 0.25, "certain": 1.0}
    assert found == pytest.approx(expected, abs=0.01)
    slide(page, "tokens", 48)
    slide(page, "clusters", 8)
    page.locator("[name=apart]").check()
    points = state(page).points
    assert [len(points[name]) for name in ("queries", "keys", "clusters")] == [48, 48, 8]
    assert page.locator("[name=selected] option").count() == 104
    slide(page, "tokens", 3)
    page.locator("[name=apart]").uncheck()
    assert state(page).points["keys"] is None and len(state(page).kinds) == 9


def test_a_seed_brings_back_its_masks(page):
    first = state(page)
    page.locator("[data-part=redraw]").click()
    assert state(page).kinds != first.kinds
    page.locator("[name=seed]").fill("12")
    other = state(page).kinds
    page.locator("[name=seed]").fill("0")
    page.locator("[data-place=separated]").click()
    again = state(page).kinds
    page.locator("[name=seed]").fill("12")
    assert state(page).kinds == other != again


def test_cost_is_shown_at_several_sizes(page):
    shown = {}
    for size in ("drawn", "1024", "4096", "16384"):
        page.locator("[name=cost-at]").select_option(size)
        shown[size] = float(text(page, "cost-total").rstrip(" %"))
    assert shown["drawn"] > 200 > shown["1024"] > shown["4096"] > shown["16384"] > 11.3
