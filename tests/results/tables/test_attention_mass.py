"""The tables of attention that masks see, from results that are made up."""

import json

import pytest

from results.tables.attention_mass import attention_mass_page
from results.tables.files import Files
from results.tables.numbers import seen


def network(mass, keys):
    def kind(name, share):
        numbers = {"attention_mass": mass * share, "error": 2 * share, "lost": 0.1 * share, "lost_error": 0.0123}
        return {"kind": name, **numbers}

    levels = [[kind(name, share) for name in ("fitted", "oracle")] for share in (0.05, 0.5)]
    return {"shares": [0.05, 0.5], "mean_keys": keys, "full": {"accuracy": 0.75}, "levels": levels}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "results").mkdir()
    assert attention_mass_page(Files(tmp_path)) == {}
    networks = {"Text": network(4.0, 255.4), "Image": network(2.0, 256)}
    networks["Image"]["tuned"] = network(3.0, 256) | {"full": {"accuracy": 0.8}}
    (tmp_path / "results" / "attention_mass.json").write_text(json.dumps({"networks": networks}), "utf-8")
    return Files(tmp_path)


def test_tables_show_a_twentieth_of_the_pairs(files):
    tables = attention_mass_page(files)
    assert tables["attention-seen"].split("\n") == [
        "| | Text | Image |",
        "|---|---|---|",
        "| fitted | 20 % | 10 % |",
        "| oracle | 20 % | 10 % |",
    ]
    assert tables["attention-error"].split("\n")[2] == "| fitted | 0.10 | 0.10 |"
    assert tables["attention-lost"].split("\n")[2:] == [
        "| tokens | 255 | 256 |",
        "| full attention's accuracy | 0.750 | 0.750 |",
        "| fitted | 0.5 ± 1.2 | 0.5 ± 1.2 |",
        "| oracle | 0.5 ± 1.2 | 0.5 ± 1.2 |",
    ]
    assert tables["attention-tuned"].split("\n")[3] == "| full attention's accuracy | 0.800 |"


def test_single_numbers(files):
    assert seen(files, "Image", "oracle", "attention_mass") == 0.1
    assert seen(files, "Image", "oracle", "attention_mass", 0.5) == 1.0
