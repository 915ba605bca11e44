"""Nothing public without a place on the API pages."""

import ast
import importlib
import re
from dataclasses import fields
from html import unescape
from inspect import get_annotations
from pathlib import Path

import pytest

from sbmt.experiments.training.config import AttentionConfig
from sbmt.experiments.training.language import GlueConfig, MlmConfig
from sbmt.experiments.training.long_range import LongRangeConfig
from sbmt.experiments.training.sequence import SequenceConfig
from tests.site.visits import ROOT

pytestmark = pytest.mark.site

PARTS = ["counter_rng", "graph/patterns", "block_model/pair_products", "cost"]
PARTS += [f"experiments/{part}" for part in ("data", "plots", "studies", "training")]
# Helpers that several files of one part share: public to their neighbours, not to users.
INTERNAL = {
    "sbmt.experiments.plots.masks",
    "sbmt.experiments.plots.style",
    "sbmt.experiments.data.pathfinder.snakes",
    "sbmt.experiments.data.pathfinder.geometry",
    "sbmt.kernels.gpu.rows.launch",
}


@pytest.fixture(scope="module")
def anchors(site: Path) -> set[str]:
    """Every name that has an entry on an API page."""
    pages = (page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    return {anchor for page in pages for anchor in re.findall(r'id="((?:sbmt|theory)\.[\w.]+)"', page)}


def public_modules(*tops: str) -> list[str]:
    """Dotted names of the modules under packages or files of the source tree, without internal ones."""
    paths = [path for top in tops for path in [*(ROOT / top).rglob("*.py"), (ROOT / top).with_suffix(".py")]]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths if path.exists()]
    return sorted({name.removesuffix(".__init__") for name in names} - INTERNAL)


def names_of(module: str) -> list[str] | None:
    """What a module lists as its public names; None if it lists nothing."""
    path = ROOT.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return importlib.import_module(module).__all__ if re.search(r"^__all__ =", text, re.MULTILINE) else None


@pytest.mark.parametrize("module", [name for name in public_modules("sbmt", "theory") if names_of(name) is not None])
def test_every_public_name_is_documented(anchors: set[str], module: str) -> None:
    missing = []
    for name in names_of(module):
        thing = getattr(importlib.import_module(module), name)
        home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
        constants = {anchor for anchor in anchors if anchor.startswith(f"{module}.") and anchor.endswith(f".{name}")}
        if not ({f"{module}.{name}", f"sbmt.{name}", home} & anchors or constants):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("module", public_modules(*(f"sbmt/{part}" for part in PARTS)))
def test_what_a_part_defines_is_documented(anchors: set[str], module: str) -> None:
    path = ROOT.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = {f"{module}.{name}" for name in defined if not name.startswith("_")}
    above = {f"{module.rpartition('.')[0]}.{name}" for name in defined}  # documented where it is imported from
    missing = {name for name in public if name not in anchors and name.rpartition(".")[2] not in ends(anchors & above)}
    assert missing == set()


@pytest.mark.parametrize("settings", [AttentionConfig, SequenceConfig, MlmConfig, GlueConfig, LongRangeConfig])
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


def ends(names: set[str]) -> set[str]:
    """The last parts of dotted names."""
    return {name.rpartition(".")[2] for name in names}
