"""Compares the arithmetic of the playground with the library."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import sbmt
from sbmt.cost import count_operations
from tests.statistics import binomial_p_values, joint_p_values, pair_p_values

pytestmark = pytest.mark.site

SCRIPTS = Path(__file__).parents[2] / "docs" / "assets" / "playground"
RULES = [
    {"link": link, "law": law, "exploration": exploration}
    for link in ("bilinear", "poisson")
    for law in ("exact", "algorithm1")
    for exploration in (0.0, 0.3)
]


@pytest.fixture(scope="module")
def run(browser):
    """Evaluates an expression in a page that contains only the arithmetic; keywords bind names."""
    page = browser.new_page()
    for name in ("random", "model", "cost"):
        page.add_script_tag(path=str(SCRIPTS / f"{name}.js"))

    def evaluate(expression, **values):
        names = ", ".join(values)
        body = f"({{{names}}}) => {{ const {{ model, random, cost }} = window.sbmtPlayground; {expression} }}"
        return page.evaluate(body, values)

    yield evaluate
    page.close()


def sample_points(scale, is_shared, seed=0):
    """Returns seven queries, five keys and four clusters, all different, as leaves."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"queries": 7, "keys": 5, "clusters": 4}
    points = {
        name: (scale * torch.randn(n, 2, generator=generator, dtype=torch.float64)).requires_grad_()
        for name, n in sizes.items()
    }
    return {**points, "keys": None} if is_shared else points


def to_json(points):
    return {name: None if x is None else x.tolist() for name, x in points.items()}


def library_model(points, link):
    """Returns the block model of the library's own layer, whose MLP is the identity."""
    layer = sbmt.SBMAttention(2, 1, 4, link=link).double()
    layer.node_mlp = torch.nn.Identity()
    del layer.clusters
    layer.clusters = points["clusters"][None]
    keys = points["queries"] if points["keys"] is None else points["keys"]
    return layer.block_model(points["queries"][None, None], keys[None, None])


def expected_mask(model, rule):
    """Returns edge probabilities. Algorithm 1 has those of the Poisson link, for any rates."""
    if rule["law"] == "algorithm1":
        model = sbmt.BlockModel(model.query_membership, model.block_matrix, model.key_membership, link="poisson")
    return model.expected_mask(rule["exploration"])[0, 0]


def assert_close(found, expected):
    assert torch.allclose(torch.tensor(found, dtype=torch.float64), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("is_shared", "causal"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("scale", [0.7, 2.5])
@pytest.mark.parametrize("rule", RULES)
def test_block_model_and_gradient_are_those_of_the_library(run, rule, scale, is_shared, causal):
    points = sample_points(scale, is_shared)
    given = {"points": to_json(points), "rule": rule | {"causal": causal}}
    found = run("return model.describe(points, rule);", **given)
    model = library_model(points, rule["link"])
    mask = expected_mask(model, rule)
    mask = mask.tril() if causal else mask
    density = mask.sum() / found["nPairs"]
    assert found["nPairs"] == (28 if causal else mask.numel())
    assert_close(found["queryMembership"], model.query_membership[0, 0])
    assert_close(found["keyMembership"], model.key_membership[0, 0])
    assert_close(found["blockMatrix"], model.block_matrix[0])
    assert_close(found["probability"], mask)
    assert_close(found["expectedDensity"], density)

    density.backward()
    slope = run("return model.gradient(points, rule);", **given)
    for name, leaf in points.items():
        if leaf is None:
            assert slope[name] is None
        else:
            assert scale > 1 or leaf.grad.abs().max() > 1e-3  # far from the origin, slopes underflow
            assert_close(slope[name], leaf.grad)


def test_a_causal_mask_is_the_earlier_part_of_the_same_draw(run):
    draw = """const { rates } = model.describe(points, rule);
        return model.sampleMask(rates, rule, random.uniforms(1, 0, 7, 7)).mask;"""
    points = to_json(sample_points(0.7, True))
    causal, free = (np.array(run(draw, points=points, rule=RULES[1] | {"causal": x})) for x in (True, False))
    assert np.array_equal(causal, np.tril(free)) and (free != causal).any()


@pytest.mark.parametrize(("n", "k", "density"), [(24, 3, 0.25), (48, 1, 1.0), (1024, 128, 0.0117)])
@pytest.mark.parametrize("rule", RULES[::2])
def test_cost_is_what_the_library_counts(run, rule, n, k, density):
    sampler = {"exact": "exact", "algorithm1": "fastrg"}[rule["law"]]
    layer = sbmt.build_attention("sbm", d_head=32, n_heads=1, n_clusters=k, sampler=sampler, link=rule["link"])
    rows = count_operations(layer, n, density=density).rows
    sizes = {"n": n, "k": k, "d": 32, "m": round(density * n**2)}
    found = run("return cost.sbmAttention(sizes, rule);", sizes=sizes, rule=rule)

    def flops(*starts):
        return sum(row.n_flops for row in rows if row.part.startswith(starts))

    assert found["edges"] == flops("scores", "softmax", "weights")
    assert found["memberships"] == flops("memberships")
    assert found["blocks"] == flops("block matrix", "sampling")
    assert found["density"] == flops("sum of all rates", "rates per edge")
    assert run("return cost.total(parts);", parts=found) == sum(row.n_flops for row in rows)
    full = count_operations(sbmt.build_attention("full", d_head=32, n_heads=1), n)
    assert run("return cost.fullAttention(n, 32);", n=n) == full.n_flops


N_DRAWS = 8000
RATES = [[0.0, 1.0, 0.1], [0.45, 0.8, 0.03]]


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("rule", [RULES[0], RULES[1], RULES[2], RULES[4]], ids=lambda rule: json.dumps(rule))
def test_masks_follow_their_law(run, rule, judge):
    """Tests draws per cell, per pair of cells, and from one draw to the next."""
    masks = run(
        """return Array.from({ length: nDraws }, (_, draw) =>
            model.sampleMask(rates, rule, random.uniforms(7, draw, 2, 3)).mask.flat().map(Number).join(""));""",
        rates=RATES, rule=rule, nDraws=N_DRAWS,
    )  # fmt: skip
    masks = np.array([list(mask) for mask in masks]) == "1"
    rate = np.array(RATES).ravel() + rule["exploration"]
    is_poisson = rule["link"] == "poisson" or rule["law"] == "algorithm1"
    p = -np.expm1(-rate) if is_poisson else np.minimum(rate, 1)
    next_one = joint_p_values(masks[:-1:2], masks[1::2], p, p)
    judge(binomial_p_values(masks.sum(0), N_DRAWS, p), pair_p_values(masks, p), next_one)
