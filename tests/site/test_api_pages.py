"""Nothing public without a place on the API pages."""

import ast
import importlib
import re
from dataclasses import fields
from html import unescape
from inspect import get_annotations
from pathlib import Path

import pytest

from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.tasks.language import GlueConfig, MlmConfig
from sbmt.experiments.training.tasks.long_range import LongRangeConfig
from sbmt.experiments.training.tasks.sequence import SequenceConfig
from tests.site.visits import ROOT

pytestmark = pytest.mark.site

# Of these every public class and function counts, listed in ``__all__`` or not.
PARTS = ("sbmt.counter_rng", "sbmt.graph.patterns", "sbmt.block_model.model", "sbmt.cost")
PARTS += tuple(f"sbmt.experiments.{part}" for part in ("data", "plots", "studies", "training"))
# Helpers that several files of one part share: public to their neighbours, not to users.
INTERNAL = {
    "sbmt.experiments.plots.masks",
    "sbmt.experiments.plots.style",
}


def public_names() -> dict[str, set[str]]:
    """The public names of each module, internal ones left out."""
    found = {}
    for path in [*(ROOT / "sbmt").rglob("*.py"), *(ROOT / "theory").rglob("*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text, names = path.read_text("utf-8"), set()
        if module in INTERNAL:
            continue
        if re.search(r"^__all__ =", text, re.MULTILINE):
            names |= set(importlib.import_module(module).__all__)
        if f"{module}.".startswith(tuple(f"{part}." for part in PARTS)):
            nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
            names |= {node.name for node in nodes if not node.name.startswith("_")}
        if names:
            found[module] = names
    return found


def test_every_public_name_is_documented(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in (site / "api").glob("*.html")]
    anchors = {anchor for page in pages for anchor in re.findall(r'id="((?:sbmt|theory)\.[\w.]+)"', page)}
    missing, public = [], public_names()
    for module, names in public.items():
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
            above = f"{module.rpartition('.')[0]}.{name}"  # documented where it is imported from
            below = any(anchor.startswith(f"{module}.") and anchor.endswith(f".{name}") for anchor in anchors)
            if not ({f"{module}.{name}", f"sbmt.{name}", home, above} & anchors or below):
                missing.append(f"{module}.{name}")
    assert missing == [] and len(public) > 40


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
