"""Tests reading Long Range Arena's own files of ListOps and Pathfinder."""

import numpy as np
import pytest
from PIL import Image

from sbmt import SbmtError
from sbmt.experiments.data.listops import decode_expression
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.release import listops_files, pathfinder_files

ROWS = ["( ( ( [MAX 2 ) 9 ) ] )\t9", "( ( ( ( [SM 4 ) 7 ) 3 ) ] )\t4", "5\t5"]


def write_listops(folder, rows=ROWS, end="\n"):
    folder.mkdir(parents=True)
    for name, first in (("train", []), ("val", ["7\t7"]), ("test", ["8\t8"])):
        (folder / f"basic_{name}.tsv").write_text("\n".join(["Source\tTarget", *first, *rows]) + end)
    return folder


def write_pathfinder(folder, n=20, line="imgs/0 sample_{0}.png {0} {1} 0 rest"):
    (folder / "imgs" / "0").mkdir(parents=True)
    (folder / "metadata").mkdir()
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (n, 32, 32), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / "imgs" / "0" / f"sample_{i}.png")
    (folder / "metadata" / "0.npy").write_text("".join(f"{line.format(i, i % 2)}\n" for i in range(n)))
    return pictures


def test_listops_is_read_and_checked(tmp_path):
    write_listops(tmp_path / "lra_release" / "listops-1000")
    split = prepare(listops_files(tmp_path), tmp_path / "prepared").splits["train"]
    assert [decode_expression(split.documents(i)[0].tolist()) for i in range(3)] == ["[MAX 2 9 ]", "[SM 4 7 3 ]", "5"]
    assert split.labels.tolist() == [9, 4, 5]


def test_pathfinder_is_read_in_order_without_empty_files(tmp_path):
    pictures = write_pathfinder(tmp_path / "curv_contour_length_14")
    (tmp_path / "curv_contour_length_14" / "imgs" / "0" / "sample_7.png").write_bytes(b"")
    ((_, examples),) = pathfinder_files(tmp_path).parts()
    kept = np.delete(np.arange(20), 7)
    assert np.array_equal(examples.symbols.reshape(-1, 32, 32), pictures[kept])
    assert np.array_equal(examples.labels, kept % 2)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("read", "write", "changes", "words"),
    [
        (listops_files, write_listops, {"rows": [*ROWS, "[MAX 2 9 ]\t8"]}, "line 5"),
        (listops_files, write_listops, {"rows": [*ROWS, "[MAX 2 9 ]\t9"], "end": ""}, "line feed"),
        (listops_files, write_listops, {"rows": ["[MAX 2 [AVG 9 ] ]\t9"]}, "line 2"),
        (listops_files, write_listops, {"rows": ["[MAX 2\t2"]}, "line 2"),
        (pathfinder_files, write_pathfinder, {"line": "../imgs sample_{0}.png {0} {1}"}, "label 0 or 1 in"),
        (pathfinder_files, write_pathfinder, {"line": "imgs/0 sample_{0}.png {0} 2"}, "label 0 or 1 in"),
        (pathfinder_files, write_pathfinder, {"line": "imgs/0 missing.png {0} {1}"}, "cannot read"),
        (pathfinder_files, write_pathfinder, {"line": "metadata 0.npy {0} {1}"}, "an intact PNG file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, read, write, changes, words):
    write(tmp_path / "task", **changes)
    with pytest.raises(SbmtError, match=words):
        list(read(tmp_path / "task").parts())


@pytest.mark.bad_input
@pytest.mark.parametrize("method", ["iterdir", "is_dir"])
def test_folders_that_may_not_be_read_are_not_taken_for_empty_ones(tmp_path, monkeypatch, method):
    def fail(path):
        raise PermissionError(13, "Permission denied", str(path))

    write_pathfinder(tmp_path, n=2)
    monkeypatch.setattr(type(tmp_path), method, fail)
    with pytest.raises(SbmtError, match="Permission denied"):
        pathfinder_files(tmp_path)
