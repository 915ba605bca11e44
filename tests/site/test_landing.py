"""The landing page: what a stranger sees in the first ten seconds."""

import re
from pathlib import Path

import pytest

from results.claims import n_claims
from tests.site.visits import DOCS, ROOT

pytestmark = pytest.mark.site


def test_what_it_says_is_so(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<!--.*?-->|<[^>]*>", "", html, flags=re.DOTALL).split())
    said = r"checked (\d+) of its claims: (\d+) hold, (\d+) conclusions and (\d+) arguments fall, and (\d+)"
    groups = ("all", "reproduced", "conclusion", "proof", "open")
    assert [int(n) for n in re.search(said, text).groups()] == [n_claims(group) for group in groups]
    command = re.search(r"```console\nmake (.*)\n", (DOCS / "index.md").read_text("utf-8"))[1]
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
