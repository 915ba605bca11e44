"""The errata page shows one group at a time if asked to, and everything where no script runs."""

import re

import pytest

from results.tables.claims import GROUPS, read_claims
from tests.site.visits import NARROW, ROOT, Visit

pytestmark = pytest.mark.site

CLAIMS = read_claims(ROOT)
SIZES = {name: sum(claim.group == name for claim in CLAIMS) for name in GROUPS}


def shown(page) -> list[str]:
    """The groups in sight."""
    return [one.get_attribute("data-group") for one in page.locator("section[data-group]").all() if one.is_visible()]


def pressed(page) -> str:
    """The button that is pressed: there is always one."""
    [button] = page.locator("#errata-filter button[aria-pressed=true]").all()
    return button.get_attribute("value")


def test_each_button_shows_its_group_and_counts_it(visit: Visit) -> None:
    page = visit.open("errata.html").page
    assert shown(page) == list(GROUPS) and pressed(page) == "all"
    for name, size in SIZES.items():
        button = page.locator(f"#errata-filter button[value={name}]")
        assert button.inner_text().endswith(f" {size}")
        button.focus()
        page.keyboard.press("Enter")
        assert shown(page) == [name] and pressed(page) == name
        told = page.locator("#errata-filter [role=status]").inner_text()
        assert told == f"{size} of {len(CLAIMS)} entries are shown."
        assert page.url.endswith(f"#show={name}")
        contents = [link.inner_text() for link in page.locator(".md-nav--secondary li:visible > a").all()]
        assert GROUPS[name][0] in contents and len(contents) == (1 if name == "slip" else size + 1)
    page.locator("#errata-filter button[value=all]").click()
    assert shown(page) == list(GROUPS) and "#" not in page.url
    page.set_viewport_size(NARROW)
    assert all(button.bounding_box()["height"] >= 24 for button in page.locator("#errata-filter button").all())


def test_the_address_keeps_the_choice_and_a_link_to_an_entry_overrides_it(visit: Visit) -> None:
    page = visit.open("errata.html#show=proof").page
    assert shown(page) == ["proof"] and pressed(page) == "proof"
    page.evaluate("location.hash = 'self-loops'")  # in another group
    page.wait_for_function("document.querySelectorAll('section[data-group][hidden]').length === 0")
    assert pressed(page) == "all"
    assert page.locator("#self-loops").is_visible()
    page.evaluate("location.hash = 'show=no-such-group'")
    assert shown(page) == list(GROUPS)


def test_without_a_script_everything_is_shown(browser, address: str) -> None:
    with Visit(browser, address, java_script_enabled=False) as visit:
        page = visit.open("errata.html").page
        assert shown(page) == list(GROUPS)
        assert page.locator("#errata-filter button").count() == 0
        links = page.locator("article table").first.locator("a")
        assert [re.sub(r".*#", "", link.get_attribute("href")) for link in links.all()] == [
            section.get_attribute("id") for section in page.locator("section[data-group] h2").all()
        ]
