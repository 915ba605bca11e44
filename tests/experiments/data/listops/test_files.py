"""Long Range Arena's files, as they should be and as they should not."""

import csv
import hashlib
import random

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops.expressions import encode_expression
from sbmt.experiments.data.listops.files import listops_files
from sbmt.experiments.data.listops.random_expressions import TreeLaw
from tests.experiments.data.layouts import documents_of, same_examples
from tests.experiments.data.listops import twin

FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = "Source\tTarget\r\n"
DRAW, LAW = random.Random(0), TreeLaw(max_depth=5, max_args=5, digit_share=0.5)
TREES = {split: [twin.generate_tree(DRAW, LAW) for _ in range(n)] for split, n in zip(FILES, (20, 7, 5), strict=True)}


@pytest.fixture
def folder(tmp_path):
    """The three files, by the csv module, as the originals were written."""
    for split, file in FILES.items():
        with (tmp_path / file).open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t")
            writer.writerow(["Source", "Target"])
            writer.writerows([twin.written(tree), twin.value_of(tree)] for tree in TREES[split])
    return tmp_path


def train(folder, content):
    """Reads a training file of this content."""
    (folder / FILES["train"]).write_bytes(content.encode() if isinstance(content, str) else content)
    return listops_files(folder).shards[0].make()


def test_every_split_is_its_file(folder):
    source = listops_files(folder)
    assert [shard.split for shard in source.shards] == list(TREES)
    for shard, trees in zip(source.shards, TREES.values(), strict=True):
        examples = shard.make()
        assert documents_of(examples) == [encode_expression(twin.written(tree)) for tree in trees]
        assert examples.labels.tolist() == [twin.value_of(tree) for tree in trees]
        assert examples.extras["depth"].tolist() == [twin.depth_of(tree) for tree in trees]
        assert examples.extras["n_operators"].tolist() == [twin.n_operators_of(tree) for tree in trees]
    sums = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in FILES.values()}
    assert source.settings["sha256"] == sums


def test_what_editors_do_to_files_changes_nothing(folder):
    crlf = (folder / FILES["train"]).read_bytes()
    assert b"\r\n" in crlf
    plain = train(folder, crlf)
    for content in (crlf.replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + crlf):
        assert same_examples(train(folder, content), plain)


def test_repeated_rows_and_single_digits_stay(folder):
    examples = train(folder, HEADER + "7\t7\r\n( ( ( [SM 8 ) 3 ) ] )\t1\r\n7\t7\r\n")
    assert documents_of(examples) == [b"\r", bytes([4, 14, 9, 5]), b"\r"] and examples.labels.tolist() == [7, 1, 7]


def test_a_missing_file_is_named(folder):
    (folder / FILES["dev"]).unlink()
    with pytest.raises(SbmtError, match="got only basic_test.tsv, basic_train.tsv: unpack .*lra_release.gz"):
        listops_files(folder)


ROW = "( ( ( [MAX 2 ) 9 ) ] )\t9\r\n"


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "a header and rows in .*basic_train.tsv, got none"),
        (HEADER, "a header and rows in .*basic_train.tsv, got none"),
        ("Target\tSource\r\n" + ROW, "the header Source, Target in line 1"),
        (HEADER + "\ufeff" + ROW, "tokens among .* in line 2"),  # it belongs at the start of the file
        (HEADER + ROW + "[MAX 1 2 ]\t7\r\n", "the label 2, the value of the expression, in line 3 of .*, got 7"),
        (HEADER + "[MAX 1 2\t2\r\n", "one whole expression in line 2 of .*basic_train.tsv, got an operator left open"),
        (HEADER + ROW + "( ( [MAX 2 ) ] )\r\n", "2 columns in line 3 of .*basic_train.tsv, got 1"),
        (HEADER + ROW + ROW[:-2] + "\t1\r\n", "2 columns in line 3 of .*basic_train.tsv, got 3"),
        (HEADER + '"' + ROW + ROW[:-4] + '"\t9\r\n', "in line 2 of .*, got '\"'"),  # no quote spans two rows
        (HEADER + ROW + ROW.replace("9\r\n", "10\r\n"), "a label 0 … 9 in line 3 of .*basic_train.tsv, got '10'"),
        (HEADER + ROW.replace("9\r\n", "²\r\n"), "a label 0 … 9 in line 2 of .*, got '²'"),
        (HEADER + ROW + ROW[:-1], "a line feed after line 3 of .*basic_train.tsv"),
        (HEADER.encode() + b"\xff\xfe\t9\r\n", "tokens among .* in line 2 of .*basic_train.tsv"),
    ],
)
def test_damage_is_named_with_its_line(folder, content, words):
    with pytest.raises(SbmtError, match=words):
        train(folder, content)
