"""Checks that files are whole, whatever happened to the process that wrote them."""

import csv
import json

import numpy as np
import torch
from safetensors import safe_open

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


def read_whole(path):
    """Reads a file of any known kind to its end."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".png":
        assert content.startswith(PNG_START) and content.endswith(PNG_END), path
    elif path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            assert all(file.get_tensor(name) is not None for name in file.keys())
    elif path.suffix == ".ckpt":
        assert torch.load(path, weights_only=True)["global_step"] > 0
    elif path.suffix in (".csv", ".tsv"):
        assert content.endswith(b"\n"), path
        rows = list(csv.reader(content.decode().splitlines(), delimiter="\t" if path.suffix == ".tsv" else ","))
        assert len({len(row) for row in rows}) == 1, path
    elif path.suffix in (".npy", ".npz"):
        loaded = np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            assert all(loaded[name] is not None for name in loaded.files)
            loaded.close()
    else:
        assert path.suffix == ".bin", f"{path} is of no known kind"
    return content


def files_below(folder):
    """The contents of all files but the user's own, by path; each is checked to be whole."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {str(path.relative_to(folder)): path for path in paths}
    return {name: read_whole(path) for name, path in names.items() if not name.startswith("data/")}
