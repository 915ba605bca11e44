"""Imports point down only, so that each file can be read with nothing but those below it in mind."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEVELS = {
    0: ["command", "compiling", "errors", "registration", "types"],
    1: ["counter_rng", "graph", "kernels"],
    2: ["block_model"],
    3: ["samplers", "attention"],
    4: ["layers", "baselines"],
    5: ["models", "reference", "reference_fitted", "sparsification"],
    6: ["cost"],
    7: ["testing"],
    8: ["experiments"],
}
LEVEL_OF = {name: level for level, names in LEVELS.items() for name in names}
# Pairs (who, whom) that their levels would allow.
NEVER = {
    ("samplers", "attention"): "siblings",
    ("attention", "samplers"): "siblings",
    ("baselines", "layers"): "layers name the baselines, not the other way round",
}
HEAVY = ["matplotlib", "typer", "rich", "safetensors", "lightning", "pytorch_lightning"]
HEAVY += ["numba", "torch_geometric", "torch._dynamo"]


def imported(source: str, package: str) -> set[str]:
    """Dotted names of all that a source imports, wherever it does so; relative ones are resolved in ``package``.

    A plain ``import sbmt`` counts as what is then taken from it.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sbmt":
            found.add(f"sbmt.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found - {"sbmt"}


def violations(source: str, module: str, package: str) -> list[str]:
    """What a module of ``sbmt`` (or ``theory``) imports against the rules."""
    top, *rest = module.split(".")
    mine = rest[0] if rest else ""
    highest = 3 if top == "theory" else LEVEL_OF[mine]
    wrong = []
    for name in sorted(imported(source, package)):
        its_top, _, path = name.partition(".")
        its = path.split(".")[0]
        if its_top == "theory" and top == "sbmt":
            wrong.append(f"{module} imports {name}: nothing in sbmt knows the theory")
        if its_top != "sbmt" or its.startswith("__"):
            continue
        level = LEVEL_OF.get(its, 8)  # a name of sbmt itself stands on everything
        if level > highest or (mine, its) in NEVER:
            wrong.append(f"{module} imports {name}: {NEVER.get((mine, its), f'level {level} from level {highest}')}")
    return wrong


def module_files() -> list[Path]:
    return sorted(path for top in ("sbmt", "theory") for path in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("path", module_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = ".".join(parts[:-1])
    module = package if parts[-1] == "__init__" else ".".join(parts)
    if module == "sbmt":
        return  # it gathers the public names
    if module in ("sbmt.__main__", "theory.__main__", "theory.report"):
        return  # commands stand on everything
    assert parts[0] == "theory" or module.split(".")[1] in LEVEL_OF, f"{module} has no place in the table of levels"
    assert violations(path.read_text(), module, package) == []


@pytest.mark.parametrize(
    "module, source",
    [
        ("sbmt.errors", "import sbmt.types, sbmt.graph.edges"),
        ("sbmt.graph.edges", "from sbmt.samplers import sample_edges"),
        ("sbmt.graph.edges", "def later():\n    from sbmt.layers.registry import build_attention"),
        ("sbmt.samplers.exact", "from sbmt.attention import edge_attention"),
        ("sbmt.samplers.exact", "from ..attention import edge_attention"),
        ("sbmt.attention.dense", "if True:\n    import sbmt.samplers.streams as streams"),
        ("sbmt.baselines.full", "from sbmt import layers"),
        ("sbmt.layers.registry", "from sbmt.models.encoder import Encoder"),
        ("sbmt.models.encoder", "import importlib\nimportlib.import_module('sbmt.experiments.training.fit')"),
        ("sbmt.experiments.cli.train", "import theory"),
        ("theory.patterns", "from sbmt.layers import SBMAttention"),
    ],
)
def test_a_violation_is_seen(module, source):
    assert len(violations(source, module, module.rpartition(".")[0])) == 1


@pytest.mark.parametrize(
    "module, source",
    [
        ("sbmt.samplers.exact", "from sbmt.samplers.streams import within_row\nfrom .streams import row_address"),
        ("sbmt.layers.registry", "from sbmt.baselines.full import FullAttention\nimport torch"),
        ("sbmt.experiments.training.run", "from sbmt import __version__"),
        ("sbmt.experiments.training.run", "import sbmt\nprint(sbmt.__version__)"),
        ("sbmt.experiments.cli.train", "from sbmt import TokenTagger"),
        ("theory.patterns", "from sbmt.graph.edges import EdgeList\nfrom theory.sets import union"),
    ],
)
def test_what_is_allowed_passes(module, source):
    assert violations(source, module, module.rpartition(".")[0]) == []


def imported_modules(source: str, package: str, modules: set[str]) -> set[str]:
    """Those of ``modules`` that a source imports, late and type-checking imports included."""
    found = set()
    for name in imported(source, package):
        while name and name not in modules:  # a name taken from a module stands for the module
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "sbmt"}  # sbmt itself gathers the public names


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules each of which imports all others of its group, directly or not."""
    reaches = {name: set(graph[name]) for name in graph}
    for middle in graph:
        for name in graph:
            if middle in reaches[name]:
                reaches[name] |= reaches[middle]
    groups = {frozenset(b for b in reaches[a] if a in reaches[b]) for a in graph if a in reaches[a]}
    return sorted((set(group) for group in groups), key=sorted)


def test_no_module_imports_itself_by_way_of_others():
    """Not even late, inside a function: two files that need each other are one idea, or lack a third one."""
    named = {}
    for path in module_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (path.read_text(), ".".join(parts[:-1]))
    graph = {name: imported_modules(*of, set(named)) for name, of in named.items() if name != "sbmt"}
    assert cycles(graph) == []


def test_a_cycle_is_seen():
    modules = {"sbmt.graph.edges", "sbmt.graph.patterns", "sbmt.graph.padding"}
    late = "def loops():\n    from sbmt.graph.patterns import self_loops\nfrom sbmt.graph import padding"
    checked = "if TYPE_CHECKING:\n    from .edges import EdgeList"
    graph = {
        "sbmt.graph.edges": imported_modules(late, "sbmt.graph", modules),
        "sbmt.graph.patterns": imported_modules(checked, "sbmt.graph", modules),
        "sbmt.graph.padding": set(),
    }
    assert cycles(graph) == [{"sbmt.graph.edges", "sbmt.graph.patterns"}]


def test_importing_the_library_stays_light():
    """Plots, the command line, storage, compilers and PyTorch Geometric are imported where they are used."""
    code = f"import sys, sbmt; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
