"""The errata page shows one group at a time on request, and everything without scripts."""

import pytest

from results.claims import CLAIMS, GROUPS
from tests.site.visits import Visit

pytestmark = pytest.mark.site

SIZES = {name: sum(claim.group == name for claim in CLAIMS) for name in GROUPS}


def shown(page) -> list[str]:
    """Returns the visible groups."""
    return [one.get_attribute("data-group") for one in page.locator("section[data-group]").all() if one.is_visible()]


def pressed(page) -> str:
    """Returns the pressed button, of which there is always one."""
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
    page.locator("#errata-filter button[value=all]").click()
    assert shown(page) == list(GROUPS) and "#" not in page.url
    page = visit.open("errata.html#show=proof").page
    assert shown(page) == ["proof"] and pressed(page) == "proof"
