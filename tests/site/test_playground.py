"""Tests the playground: controls work by mouse, touch and keyboard, and there is a picture without scripts."""

from types import SimpleNamespace

import pytest

from tests.site.visits import Visit

pytestmark = pytest.mark.site

STATE = """() => {
    const { session } = window.sbmtPlayground;
    const { points, model, sample, tally, law, nDraws, selected, placed, isMoved } = session;
    const within = [], across = [];
    const group = session.groups.queries;
    model.probability.forEach((row, i) => row.forEach((p, j) =>
        (group[i] === group[j] ? within : across).push(p)));
    const mean = (x) => x.reduce((a, b) => a + b, 0) / x.length;
    return { points, density: model.expectedDensity, edges: sample.nEdges, nDraws, selected, placed, isMoved,
        frequency: tally[law].hits / nDraws, within: mean(within), across: mean(across),
        kinds: session.kinds.flat() };
}"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
PLACE = """(place) => {
    const canvas = document.querySelector("[data-part=plane]");
    const box = canvas.getBoundingClientRect();
    const [left, top] = window.sbmtPlayground.plane.frame(canvas.clientWidth).toCanvas(place);
    return [box.left + left, box.top + top];
}"""
"""Maps a point of the plane to its position in the window."""


@pytest.fixture
def page(visit: Visit) -> object:
    """Returns the playground, fully visible, once its fonts have loaded."""
    page = visit.open("playground.html").page
    page.set_viewport_size({"width": 1280, "height": 1400})
    page.evaluate("document.fonts.ready")
    return page


def state(page):
    """Returns the state of the session, once the page shows it."""
    page.evaluate(FRAME)
    return SimpleNamespace(**page.evaluate(STATE))


def text(page, part):
    page.evaluate(FRAME)
    return page.locator(f"[data-part={part}]").inner_text()


def picture(page, part):
    page.evaluate(FRAME)
    return page.evaluate(f"document.querySelector('[data-part={part}]').toDataURL()")


def set_up(page, index):
    page.locator("[data-setup]").nth(index).click()
    return state(page)


def test_the_first_picture_says_something(page):
    now = state(page)
    assert now.placed == "separated" and now.nDraws == 40 and not now.isMoved
    assert now.within == pytest.approx(1 / 3, abs=1e-3) and now.across < 0.01
    assert text(page, "expected") == f"{now.density:.3f}"
    assert text(page, "drawn-edges") == f"{now.edges} edges"
    assert page.locator("#pg-still").is_hidden()
    assert "24 tokens and 3 clusters" in text(page, "summary")
    nameless = """nodes => nodes.filter((node) => !(node.ariaLabel || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML)"""
    fields = page.locator(".pg :is(input, select, button, canvas)")
    assert fields.count() > 25 and fields.evaluate_all(nameless) == []


def test_a_certain_edge_is_found_in_63_per_cent_of_algorithm_1s_draws(page):
    set_up(page, 3)
    for _ in range(10):
        page.locator("[data-part=redraws]").click()
    found = state(page)
    assert found.nDraws == 1001
    assert found.frequency == pytest.approx(0.632, abs=0.05)  # 3.3 standard deviations; the seed is fixed
    assert text(page, "says-algorithm1") == "63.2 %" and text(page, "says-exact") == "100.0 %"
    page.locator("[name=law][value=exact]").check()
    exact = state(page)
    assert exact.nDraws == 1001 and exact.frequency == 1.0 and exact.edges == 576


def test_the_causal_switch_takes_later_keys_away_and_nothing_else(page):
    free, n = state(page), 24
    page.locator("[name=causal]").check()
    found = state(page)
    expected = [kind if i % n <= i // n else 0 for i, kind in enumerate(free.kinds)]
    assert found.kinds == expected != free.kinds and found.nDraws == 1
    assert text(page, "expected-edges").endswith("of 300 pairs")
    page.locator("[name=causal]").uncheck()
    assert state(page).kinds == free.kinds
    assert set_up(page, 6).kinds.count(0) >= 276


def test_a_cluster_is_dragged_with_the_mouse(page):
    before, mask = state(page), picture(page, "mask")
    page.mouse.move(*page.evaluate(PLACE, before.points["clusters"][0]))
    page.mouse.down()
    page.mouse.move(*page.evaluate(PLACE, [0.0, 4.5]), steps=3)
    page.mouse.up()
    after = state(page)
    assert after.points["clusters"][0] == pytest.approx([0.0, 4.5], abs=0.05)
    assert after.points["clusters"][1:] == before.points["clusters"][1:]
    assert after.isMoved and text(page, "expected") == f"{after.density:.3f}" != f"{before.density:.3f}"
    assert picture(page, "mask") != mask


def test_points_are_moved_by_keyboard(page):
    page.locator("[data-place=certain]").focus()
    page.keyboard.press("Tab")
    plane = page.locator("[data-part=plane]")
    assert plane.evaluate("node => node === document.activeElement && node.matches(':focus-visible')")
    before = state(page)
    for key in ("]", "PageDown", "[", "ArrowLeft", "Shift+ArrowUp"):
        page.keyboard.press(key)
    after = state(page)
    assert after.selected == {"kind": "clusters", "index": 1}
    x, y = before.points["clusters"][1]
    assert after.points["clusters"][1] == pytest.approx([x - 0.1, y + 0.5])
    page.keyboard.press("r")
    assert state(page).nDraws == 2
    page.keyboard.press("t")
    page.wait_for_function("document.querySelector('[data-part=summary]').textContent.includes('Token 1 is at')")
    assert page.locator("[data-part=summary]").get_attribute("aria-live") == "polite"


def test_without_javascript_there_is_a_picture(browser, address):
    with Visit(browser, address, java_script_enabled=False) as visit:
        page = visit.open("playground.html").page
        assert page.locator("#pg-still img").is_visible() and page.locator("#pg-still figcaption").is_visible()
        assert page.locator("#pg").is_hidden() and page.locator("[data-setup]").first.is_hidden()
