"""What several test files share."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

from sbmt import BlockModel
from tests.statistics import Judge

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is first imported

# Modules that register a backend or a sampler, which then go through the tests of ours: see docs/how-to.
for module in os.environ.get("SBMT_TEST_WITH", "").split():
    importlib.import_module(module)

CHROMIUM = Path("/usr/bin/chromium")

# The same examples on every machine, and no deadline: it would be an assertion about time.
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def no_shape_checks_on_bad_input(request):
    """Tests marked ``bad_input`` meet the library's own errors, not those of the shape checker."""
    is_bad = request.node.get_closest_marker("bad_input") is not None
    jaxtyping.config.update("jaxtyping_disable", is_bad)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def same_seed_for_every_test():
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture
def judge(request):
    """Judges a statistical test within the share of false alarms that its mark claims."""
    return Judge(request.node.get_closest_marker("statistical").kwargs["share"])


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A headless Chromium."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # GPU and shared memory are off, since containers often have neither.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def make_block_model():
    """Makes a random block model; padding masks on both sides where ``is_padded``."""

    def make(
        batch=2, heads=3, n_queries=5, n_keys=7, n_clusters=4, *, seed=0, link="bilinear", scale=1.0, is_padded=False,
        dtype=torch.float64,
    ):  # fmt: skip
        generator = torch.Generator().manual_seed(seed)
        shapes = (
            (batch, heads, n_queries, n_clusters),
            (heads, n_clusters, n_clusters),
            (batch, heads, n_keys, n_clusters),
        )
        query, block, key = (torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes)
        if link == "bilinear" and scale == 1.0:
            block = block / block.sum((1, 2), keepdim=True)  # like the softmax of equation 5
        block = block * scale
        masks = (padding_mask(batch, n) if is_padded else None for n in (n_queries, n_keys))
        return BlockModel(query, block, key, *masks, link=link)

    return make


def padding_mask(batch, n):
    """True for real tokens: example b has its last ``b % n`` tokens padded."""
    return torch.arange(n) < n - (torch.arange(batch) % n)[:, None]
