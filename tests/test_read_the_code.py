"""The page that walks through the code names files that exist, in the order in which one should read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "read-the-code.md").read_text("utf-8")
ORDER = [
    "sbmt/reference.py",
    "sbmt/graph/edges.py",
    "sbmt/block_model/model.py",
    "sbmt/samplers/exact.py",
    "sbmt/attention/dense.py",
    "sbmt/layers/sbm.py",
    "sbmt/layers/functional.py",
    "sbmt/kernels/operators.py",
    "sbmt/kernels/loops/draw.cpp",
    "sbmt/kernels/loops/attend.cpp",
    "sbmt/kernels/loops/fit.cpp",
    "sbmt/models/encoder.py",
    "sbmt/experiments/training/fit.py",
]
WITHOUT_PAPER = "sbmt/kernels/"
LINK = re.compile(r"\[`([\w/]+\.(?:py|cpp))`\]\(\.\./([\w/]+\.(?:py|cpp))\)")


def section(title):
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(title):
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_link_names_the_file_that_it_leads_to():
    links = LINK.findall(PAGE)
    assert len(links) == PAGE.count("](../") > len(ORDER)
    assert all(name == target and (ROOT / target).is_file() for name, target in links)


def test_the_order_is_that_of_the_layers_and_every_step_has_its_place_in_the_paper():
    steps = rows("Eleven steps")
    assert [target for step in steps for _, target in LINK.findall(step[1])] == ORDER
    assert [step[0] for step in steps] == [str(number) for number in range(1, 12)]
    assert all(re.match(r"–" if WITHOUT_PAPER in step[1] else r"sections? \d", step[3]) for step in steps)
    paragraphs = re.findall(r"^\*\*(\d+)\. ", section("Eleven steps"), re.MULTILINE)
    assert paragraphs == [step[0] for step in steps]


def test_every_folder_has_its_line():
    named = set(re.findall(r"`((?:sbmt|theory|results)/[\w/.]*)`", section("Where does a change belong?")))
    assert all((ROOT / name).exists() for name in named)
    parts = {path for path in (ROOT / "sbmt").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    folders = {f"sbmt/{path.name}/" for path in parts - {ROOT / "sbmt" / "experiments"}}
    laboratory = ROOT / "sbmt" / "experiments"
    folders |= {f"sbmt/experiments/{path.name}/" for path in laboratory.iterdir() if (path / "__init__.py").exists()}
    assert folders <= named
