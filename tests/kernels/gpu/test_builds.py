"""Kernels can be built for GPUs that are not here, and fit into their shared memory. Takes Triton, but no GPU."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sbmt.kernels.gpu import is_interpreted
from tests.kernels.gpu.builds import build
from tests.kernels.gpu.launches import crossed_launches, draw_launches, row_launches, tile_launches

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or is_interpreted() or torch.cuda.is_available(),
    reason="needs Triton and neither its interpreter nor a GPU, where kernels are built anyway",
)
ROOT = Path(__file__).parents[3]
SHARED = {80: 166912, 89: 101376, 90: 232448}  # bytes that a block may have, by compute capability
SPILLED = 1500  # bytes of stack: a few numbers that do not fit into registers, not whole tiles


def assert_they_build(launches, capability, n_kernels):
    built = {launch.name: build(launch, capability) for launch in launches}
    assert len(built) == n_kernels
    for name, needs in built.items():
        assert needs.shared <= SHARED[capability], (name, needs)
        assert needs.spilled <= SPILLED and 0 < needs.registers <= 255, (name, needs)


@pytest.mark.parametrize(
    ("capability", "dtype", "d", "n_clusters", "options"),
    [
        (80, torch.bfloat16, 32, 128, dict(is_padded=True)),
        (89, torch.bfloat16, 64, 128, dict(is_poisson=True, window=8, dropout=0.1)),
        (80, torch.float32, 64, 100, dict(dropout=0.1)),
        (89, torch.float32, 128, 256, {}),
        (90, torch.float16, 128, 256, dict(is_poisson=True)),
    ],
)
def test_tiles(capability, dtype, d, n_clusters, options):
    assert_they_build(tile_launches(dtype, d, n_clusters, **options), capability, n_kernels=3)


def test_counts_of_one():
    """Triton builds such numbers into kernels, which must not treat them as numbers that come at run time."""
    tiles = tile_launches(torch.bfloat16, 8, 1, window=1, dropout=0.5, heads=1, n=1)
    rows = row_launches(torch.bfloat16, 8, 1, is_dropped=True, has_terms=True, n_rows=1, n=1)
    crossed = crossed_launches(torch.float32, 1, n_active=1, n=1)
    for launch in [*tiles, *rows, *draw_launches(1, is_poisson=True, n=1), *crossed]:
        build(launch, 90)


@pytest.mark.parametrize(
    ("capability", "dtype", "d", "options"),
    [
        (80, torch.bfloat16, 64, dict(is_dropped=True, has_terms=True)),
        (89, torch.float32, 200, dict(is_gated=False)),
        (90, torch.float64, 32, dict(has_terms=True)),
    ],
)
def test_rows(capability, dtype, d, options):
    assert_they_build(row_launches(dtype, d, 128, **options), capability, n_kernels=8)


@pytest.mark.parametrize("is_poisson", [True, False])
def test_drawing(is_poisson):
    launches = draw_launches(128, is_padded=is_poisson, is_poisson=is_poisson)
    assert [launch.arguments["IS_COUNT"] for launch in launches] == [True, False]
    assert_they_build(launches, 80, n_kernels=1)


@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float32), (90, torch.float64)])
def test_crossed(capability, dtype):
    assert_they_build(crossed_launches(dtype, is_padded=capability == 80), capability, n_kernels=8)


def test_the_published_registers_are_those_of_the_kernels():
    triton = pytest.importorskip("triton")
    from results.measure.gpu_builds import build_kernels

    published = json.loads((ROOT / "results" / "gpu_builds.json").read_text("utf-8"))
    if published["triton"] != triton.__version__:
        pytest.skip(f"they were built with triton {published['triton']}")
    assert build_kernels() == published["kernels"]
