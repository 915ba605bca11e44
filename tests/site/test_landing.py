"""The landing page: what a new visitor sees first."""

import re
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from results.claims import n_claims
from sbmt import __version__
from tests.site.visits import DOCS

pytestmark = pytest.mark.site


def test_what_it_says_is_so(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<!--.*?-->|<[^>]*>", "", html, flags=re.DOTALL).split())
    said = r"checked (\d+) of its claims: (\d+) hold, (\d+) conclusions and (\d+) arguments are wrong, and (\d+)"
    groups = ("all", "reproduced", "conclusion", "proof", "open")
    assert [int(n) for n in re.search(said, text).groups()] == [n_claims(group) for group in groups]


def test_its_first_command_installs_what_the_site_offers(site: Path) -> None:
    """It installs the wheel that the site offers, without a copy of the repository."""
    text = (DOCS / "index.md").read_text("utf-8")
    wheel = re.search(r'```console\npip install "(.+?\.whl)\[train,plots\]"\nsbmt demo\n```', text)[1]
    assert f"](downloads/{wheel})" in text
    with ZipFile(site / "downloads" / wheel) as archive:
        assert {"sbmt/__init__.py", "sbmt/kernels/loops/draw_exact.cpp"} <= set(archive.namelist())
    with tarfile.open(site / "downloads" / f"sbmt-{__version__}.tar.gz") as archive:
        assert f"sbmt-{__version__}/Makefile" in archive.getnames()
