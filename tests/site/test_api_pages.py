"""Every public name is on the API pages."""

import importlib
import re
from pathlib import Path

import pytest

from tests.site.visits import ROOT

pytestmark = pytest.mark.site


def test_every_public_name_is_documented(site: Path) -> None:
    """Everything in an ``__all__`` is on an API page, under one of the names by which it can be imported."""
    pages = [page.read_text("utf-8") for page in (site / "api").glob("*.html")]
    anchors = {anchor for page in pages for anchor in re.findall(r'id="((?:sbmt|theory)\.[\w.]+)"', page)}
    missing, n_names = [], 0
    for path in [*(ROOT / "sbmt").rglob("*.py"), *(ROOT / "theory").rglob("*.py")]:
        if not re.search(r"^__all__ =", path.read_text("utf-8"), re.MULTILINE):
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for public in module.__all__:
            thing, above = getattr(module, public), name.rpartition(".")[0]
            home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
            below = any(anchor.startswith(f"{name}.") and anchor.endswith(f".{public}") for anchor in anchors)
            if not ({f"{name}.{public}", f"sbmt.{public}", f"{above}.{public}", home} & anchors or below):
                missing.append(f"{name}.{public}")
            n_names += 1
    assert missing == [] and n_names > 50
