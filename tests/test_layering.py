"""Tests that imports only point down, so that each file can be read knowing only those below it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEVELS = [  # a module imports none of the modules after it
    ["errors", "interrupt"],
    ["command", "types"],
    ["counter_rng", "graph", "kernels"],
    ["block_model"],
    ["samplers", "attention"],
    ["baselines", "theory"],
    ["layers"],
    ["models", "reference", "reference_fitted", "sparsification"],
    ["cost"],
    ["testing"],
    ["experiments"],  # and names of sbmt itself
]
SIBLINGS = {"samplers", "attention"}  # these may not import each other


def imported(source: str) -> set[str]:
    """Returns the dotted names of everything that a source imports, anywhere; ``import sbmt`` gives the names used."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sbmt":
            found.add(f"sbmt.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "import by the full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found - {"sbmt"}


def level(folder: str) -> int:
    return next((number for number, folders in enumerate(LEVELS) if folder in folders), len(LEVELS) - 1)


def violations(source: str, module: str) -> list[str]:
    """Returns the imports of a module of ``sbmt`` or ``theory`` that break the rules; ``sbmt`` never imports theory."""
    mine, *_ = module.removeprefix("sbmt.").split(".")
    wrong = []
    for name in sorted(imported(source)):
        top, _, path = name.partition(".")
        its = path.split(".")[0] if top == "sbmt" else top
        is_ours = top in ("sbmt", "theory") and its != mine and not its.startswith("__")
        if is_ours and (top == "theory" or level(its) > level(mine) or {its, mine} == SIBLINGS):
            wrong.append(f"{module} imports {name}")
    return wrong


def modules(*tops: str) -> dict[str, str]:
    """Returns the sources of the modules of these packages by name, except ``sbmt``, which gathers public names."""
    paths = [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths)
    return {name: path.read_text("utf-8") for name, path in zip(names, paths, strict=True) if name != "sbmt"}


def test_imports_point_down():
    wrong = []
    for module, source in modules("sbmt", "theory").items():
        if module not in ("sbmt.__main__", "theory.__main__", "theory.report"):  # commands may import everything
            wrong += violations(source, module)
    assert wrong == []


def imported_modules(source: str, modules: set[str]) -> set[str]:
    """Returns those of ``modules`` that a source imports, including late and type-checking imports."""
    found = set()
    for name in imported(source):
        while name and name not in modules:  # a name imported from a module counts as the module
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {""}


def test_no_module_imports_itself_by_way_of_others():
    """Late imports inside functions count, too: two files that need each other are one idea, or lack a third."""
    named = modules("sbmt", "theory", "results")
    TopologicalSorter({name: imported_modules(source, set(named)) for name, source in named.items()}).prepare()
