"""The playground under mouse, finger and keyboard, in both themes, on paper, on a phone, and without scripts."""

import pytest

from tests.site.playground_page import FRAME, choose, colours, on_screen, picture, state, text
from tests.site.visits import NARROW, Visit

pytestmark = pytest.mark.site


def test_every_field_has_a_name(page):
    nameless = """nodes => nodes.filter((node) => !(node.ariaLabel || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML)"""
    fields = page.locator(".pg :is(input, select, button, canvas)")
    assert fields.count() > 25 and fields.evaluate_all(nameless) == []


def test_a_cluster_is_dragged_with_the_mouse(page):
    before, mask = state(page), picture(page, "mask")
    page.mouse.move(*on_screen(page, before.points["clusters"][0]))
    page.mouse.down()
    page.mouse.move(*on_screen(page, [2.0, 1.0]), steps=3)
    moving = state(page)  # at once, not only after letting go
    page.mouse.move(*on_screen(page, [0.0, 4.5]), steps=2)
    page.mouse.up()
    page.mouse.move(*on_screen(page, [-3.0, 3.0]))
    after = state(page)
    assert moving.points["clusters"][0] == pytest.approx([2.0, 1.0], abs=0.05)
    assert after.points["clusters"][0] == pytest.approx([0.0, 4.5], abs=0.05)
    assert after.points["clusters"][1:] == before.points["clusters"][1:]
    assert after.isMoved and text(page, "expected") == f"{after.density:.3f}" != f"{before.density:.3f}"
    assert picture(page, "mask") != mask
    assert page.locator("[data-place][aria-pressed=true]").count() == 0


def test_a_group_moves_together_and_none_leaves_the_plane(page):
    choose(page, "moves", "group")
    page.locator("[name=selected]").select_option("token 1")
    before = state(page).points["queries"]
    page.locator("[data-part=plane]").press("ArrowRight")
    moved = state(page).points["queries"]
    shift = [b[0] - a[0] for a, b in zip(before, moved, strict=True)]
    assert shift == pytest.approx([0.1] * 8 + [0.0] * 16)
    page.locator("[name=x]").fill("4.9")
    far = state(page).points["queries"]
    assert max(x for x, _ in far) == pytest.approx(5.0)
    spread = [[a[0] - group[0][0] for a in group[:8]] for group in (moved, far)]
    assert spread[0] == pytest.approx(spread[1])


def test_points_are_moved_by_keyboard(page):
    page.locator("[data-place=certain]").focus()
    page.keyboard.press("Tab")
    plane = page.locator("[data-part=plane]")
    assert plane.evaluate("node => node === document.activeElement && node.matches(':focus-visible')")
    assert plane.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    before = state(page)
    for key in ("]", "PageDown", "[", "ArrowLeft", "Shift+ArrowUp"):
        page.keyboard.press(key)
    after = state(page)
    assert after.selected == {"kind": "clusters", "index": 1}
    x, y = before.points["clusters"][1]
    assert after.points["clusters"][1] == pytest.approx([x - 0.1, y + 0.5])
    assert page.locator("[name=selected]").input_value() == "cluster B"
    page.keyboard.press("t")
    assert state(page).selected == {"kind": "queries", "index": 0}
    page.keyboard.press("r")
    assert state(page).nDraws == 2
    page.wait_for_function("document.querySelector('[data-part=summary]').textContent.includes('Token 1 is at')")
    assert page.locator("[data-part=summary]").get_attribute("aria-live") == "polite"


def test_a_finger_drags_a_point_and_scrolls_elsewhere(browser, address):
    with Visit(browser, address, has_touch=True, is_mobile=True) as visit:
        page = visit.open("playground.html").page
        page.set_viewport_size(NARROW)
        fingers = page.context.new_cdp_session(page)

        def swipe(start, end):
            for kind, places in (("touchStart", [start]), ("touchMove", [end]), ("touchMove", [end]), ("touchEnd", [])):
                points = [{"x": x, "y": y} for x, y in places]
                fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            return state(page)

        now = swipe(on_screen(page, [0.0, 3.5]), on_screen(page, [2.0, -2.0]))
        assert now.points["clusters"][0] == pytest.approx([2.0, -2.0], abs=0.1)
        assert page.evaluate("scrollY") == 0
        still = swipe(on_screen(page, [-3.0, 2.0]), on_screen(page, [-3.0, 4.5]))
        assert still.points == now.points and page.evaluate("scrollY") > 0


def test_a_cell_can_be_watched(page):
    mask = page.locator("[data-part=probabilities]")
    mask.hover()  # waits until the page stands still
    box = mask.bounding_box()
    mask.click(position={"x": box["width"] - 3, "y": box["height"] - 3})
    assert [page.locator(f"[name=watch-{name}]").input_value() for name in ("query", "key")] == ["24", "24"]
    page.locator("[name=watch-key]").fill("1")
    assert state(page).nDraws == 1 and float(text(page, "says-exact").rstrip(" %")) < 5


def test_colours_follow_the_theme_and_paper_is_light(page, visit):
    def pictures():
        return [picture(page, part) for part in ("plane", "probabilities", "mask", "chart")]

    light = pictures()
    visit.toggle_colours()
    dark = pictures()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    paper = pictures()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert pictures() == dark
    assert all(a != b for a, b in zip(dark, light, strict=True)) and paper == light


def test_motion_is_for_those_who_like_it(browser, address):
    with Visit(browser, address, reduced_motion="no-preference") as visit:
        page = visit.open("playground.html").page
        page.locator("[data-part=redraws]").click()
        page.wait_for_function("window.sbmtPlayground.session.nDraws > 42")
        assert state(page).nDraws < 140  # on its way
        page.locator("[data-place=fresh]").click()
        page.evaluate(FRAME)
        assert state(page).nDraws == 1  # what is pressed ends it
        assert visit.complaints == []


def test_without_javascript_there_is_a_picture(browser, address):
    with Visit(browser, address, java_script_enabled=False) as visit:
        page = visit.open("playground.html").page
        assert page.locator("#pg-still img").is_visible() and page.locator("#pg-still figcaption").is_visible()
        assert page.locator("#pg").is_hidden() and page.locator("[data-setup]").first.is_hidden()
        assert page.locator("#pg-still img").bounding_box()["width"] > 500


def test_it_works_from_disk_and_on_a_phone(browser, site):
    with Visit(browser, f"{site.as_uri()}/") as visit:
        page = visit.open("learning-path.html").page
        page.locator(".md-sidebar--primary a[href$='playground.html']").click()
        page.locator("[data-part=redraw]").click()
        assert state(page).nDraws == 41
        page.set_viewport_size(NARROW)
        assert page.evaluate("document.querySelector('[data-part=plane]').clientWidth") > 330
        assert colours(page, "plane") > 5 and visit.complaints == []
