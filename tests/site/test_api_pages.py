"""Nothing public without a place on the API pages."""

import importlib
import re
from dataclasses import fields
from html import unescape
from inspect import get_annotations
from pathlib import Path

import pytest

from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.tasks import GlueConfig, LongRangeConfig, MlmConfig, SequenceConfig
from tests.site.visits import ROOT

pytestmark = pytest.mark.site


def test_every_public_name_is_documented(site: Path) -> None:
    """Whatever is in an ``__all__`` stands on an API page, under one of the names by which it can be imported."""
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
    assert missing == [] and n_names > 100


@pytest.mark.parametrize("settings", [TrainingConfig, SequenceConfig, MlmConfig, GlueConfig, LongRangeConfig])
def test_settings_are_listed_with_help_and_default(site: Path, settings: type) -> None:
    page = (site / "api" / "training.html").read_text(encoding="utf-8")
    after = page.split(f'id="{settings.__module__}.{settings.__name__}"', 1)[1]
    signature, _, rest = (part for part in after.partition('class="doc doc-contents'))
    assert "option" not in signature and "fields" in signature
    text = unescape(re.sub(r"<[^>]*>", "", rest.split('class="doc doc-object doc-class', 1)[0]))
    own = [field for field in fields(settings) if field.name in get_annotations(settings)]
    assert len(own) >= 3
    for field in own:
        assert re.search(rf"\b{field.name}\b[^–]*– *{re.escape(field.metadata['help'])}", " ".join(text.split()))
        assert f"{field.metadata['help']}. Default: {field.default!r}" in " ".join(text.split())
