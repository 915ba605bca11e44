"""Edge lists and block models of any sizes, entries, types and padding."""

from dataclasses import replace

import torch

from sbmt import BlockModel, EdgeList, SbmtError, sample_edges
from sbmt.counter_rng import draw_seed
from sbmt.graph.patterns import sliding_window
from sbmt.samplers.fastrg import MOST_DRAWS
from tests.faults.cases import DTYPES, LAYOUTS, SIZES, gradients, is_finite, laid_out, real_pairs, refused

MANY = 1e4  # draws that a test should not make
DAMAGES = (*["none"] * 9, "row_ptr starts late", "row_ptr falls", "row_ptr ends early", "a key too large",
           "a negative key", "keys that repeat", "keys that fall", "int32", "a row too few")  # fmt: skip


def check_edge_list(case):
    """Whatever is done with edges is what is done with the dense mask; what is not an edge list is refused."""
    shape = case.shape()
    if 0 in shape:
        with refused("at least one example, head, query and key"):
            EdgeList.from_dense(torch.zeros(shape, dtype=torch.bool))
        return "refused"
    masks = case.masks(shape)
    is_pair = real_pairs(masks, shape)
    density = case.pick("density", (0.5, 0.0, 1.0, 0.1))
    dense, other = ((torch.rand(shape, generator=case.generator(i)) < density) & is_pair for i in range(2))
    edges = EdgeList.from_dense(laid_out(dense, case.pick("layout", LAYOUTS[:-1])), *masks)
    source, target = edges.to_edge_index()
    window = case.pick("window", (0, 1, 2, 3, 10**9, 1 << 62))
    assert torch.equal(target * shape[3] + source - target // shape[2] * shape[3], edges.cells())
    assert (edges.to_scipy(shape[0] - 1, shape[1] - 1).toarray() == dense[-1, -1].numpy()).all()
    torch.testing.assert_close(edges.density(), dense.sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1))
    made = [
        (edges, dense),
        (edges.union(EdgeList.from_dense(other, *masks)), dense | other),
    ]
    if shape[2] == shape[3]:
        place = torch.arange(shape[2])
        distance = (place[:, None] - place).abs()
        made.append((sliding_window(shape, window, *masks), (distance <= window // 2) & is_pair))
        made.append((edges.with_self_loops(), dense | ((distance == 0) & is_pair)))
    else:
        for call in (edges.with_self_loops, lambda: sliding_window(shape, window, *masks)):
            with refused("as many queries as keys"):
                call()
    for found, expected in made:
        replace(found, check=True)
        assert torch.equal(found.to_dense(), expected)
    return _check_damage(case.pick("damage", DAMAGES), edges)


def _check_damage(damage, edges):
    row_ptr, keys = edges.row_ptr.clone(), edges.keys.clone()
    twice = ((keys.diff() > 0) & (edges.rows().diff() == 0)).nonzero().flatten()  # neighbours in one row
    if damage == "row_ptr starts late":
        row_ptr[0] = 1
    elif damage == "row_ptr falls" and row_ptr.numel() > 2:
        row_ptr[1] = row_ptr[-1] + 1
    elif damage == "row_ptr ends early":
        row_ptr[-1] -= 1
    elif damage in ("a key too large", "a negative key") and keys.numel():
        keys[0] = -1 if damage == "a negative key" else edges.shape[3]
    elif damage.startswith("keys that") and len(twice):
        first = int(twice[0])
        keys[first : first + 2] = keys[first] if damage == "keys that repeat" else keys[first : first + 2].flip(0)
    elif damage == "int32":
        row_ptr = row_ptr.int()
    elif damage == "a row too few":
        row_ptr = row_ptr[1:]
    else:
        return "answered"
    with refused():
        EdgeList(row_ptr, keys, edges.shape, edges.query_mask, edges.key_mask, check=True)
    return "refused"


def check_block_model(case):
    """Probabilities in [0, 1] as written down, the closed form, edges where they may be, the same from one seed."""
    shape, n_clusters = case.shape(), case.pick("clusters", SIZES)
    batch, heads, n_queries, n_keys = shape
    dtype, link = case.pick("dtype", DTYPES), case.pick("link", ("bilinear", "poisson"))
    shapes = (batch, heads, n_queries, n_clusters), (heads, n_clusters, n_clusters), (batch, heads, n_keys, n_clusters)
    if 0 in (*shape, n_clusters):
        with refused("at least one example, head, query, key and cluster"):
            BlockModel(*(torch.zeros(sizes) for sizes in shapes))
        return "refused"
    names = ("query membership", "block matrix", "key membership")
    leaves = [case.shares(name, sizes, dtype, i) for i, (name, sizes) in enumerate(zip(names, shapes, strict=True))]
    rate = case.pick("rate", (1.0, 30.0, 1e-30, 1e3, 1e9, 1e30, 3e38)) if link == "poisson" else 1.0
    leaves[1] = leaves[1] * min(rate, torch.finfo(dtype).max)
    leaves = [leaf.requires_grad_(True) for leaf in leaves]
    layout, masks = case.pick("layout", LAYOUTS), case.masks(shape)
    try:
        parts = [leaf[:1] if layout == "expanded" else leaf for leaf in leaves]
        model = BlockModel(*map(laid_out, parts, [layout] * 3, map(len, leaves)), *masks, link)
    except SbmtError as error:
        assert rate >= 1e30 and "block_matrix in" in str(error)
        return "refused"
    delta = case.pick("exploration", (0.0, 0.01, 1e-12, 0.5, 0.999999))
    rates, p = _check_probabilities(model, delta, real_pairs(masks, shape))
    draw = {"sampler": case.pick("sampler", ("exact", "bernoulli", "fastrg")), "exploration": delta}
    edges = _check_draw(case, model, rates, p, draw)
    is_summable = rate * n_queries * n_keys * n_clusters * heads < torch.finfo(dtype).max
    if edges is not None and is_summable:  # gradients to memberships are sums of rates
        _check_gradients(model, edges, delta, leaves)
    return "answered"


def _check_probabilities(model, delta, is_pair):
    """The expected mask and its mean, in float64 and by definition."""
    parts = (model.query_membership, model.block_matrix, model.key_membership)
    query, block, key = (part.detach().double() for part in parts)
    rates = torch.where(is_pair, query @ block @ key.mT + delta, 0.0)
    p = -torch.expm1(-rates) if model.link == "poisson" else rates.clamp(max=1.0)
    found = model.expected_mask(delta)
    assert is_finite(found) and ((found >= 0) & (found <= 1)).all() and (found[~is_pair] == 0).all()
    torch.testing.assert_close(found.double(), p, rtol=1e-5, atol=1e-7)
    density, mean = model.expected_density(delta).double(), p.sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1)
    assert ((density >= 0) & (density <= 1 + 1e-6)).all()
    if delta == 0 or model.link == "poisson":
        torch.testing.assert_close(density, mean, rtol=1e-5, atol=1e-6)
    else:  # documented as min(mean p + δ, 1): the mean of min(p + δ, 1) may be less
        assert (density >= mean - 1e-6).all()
    return rates, p


def _check_draw(case, model, rates, p, draw):
    generator, twin = case.generator(), case.generator()
    total = float(rates.sum())
    if draw["sampler"] == "fastrg" and total > MANY:
        if total > 2 * MOST_DRAWS:
            with refused("edges to draw"):
                sample_edges(model, **draw, generator=generator)
        return None
    edges = sample_edges(model, **draw, generator=generator)
    draw_seed(twin)
    assert torch.equal(generator.get_state(), twin.get_state())  # one int64, whatever was drawn
    replace(edges, check=True)
    mask = edges.to_dense()
    assert not mask[p < 1e-12].any()
    if draw["sampler"] != "fastrg" and model.link == "bilinear":
        assert mask[rates > 1.1].all()
    again = sample_edges(model, **draw, generator=case.generator())
    assert torch.equal(again.keys, edges.keys) and torch.equal(again.row_ptr, edges.row_ptr)
    masks = (None if m is None else m[-1:] for m in (model.query_mask, model.key_mask))
    memberships = model.query_membership[-1:], model.block_matrix, model.key_membership[-1:]
    alone = BlockModel(*memberships, *masks, link=model.link)
    drawn = sample_edges(alone, **draw, generator=case.generator(), first_example=len(mask) - 1)
    assert torch.equal(drawn.to_dense(), mask[-1:])
    return edges


def _check_gradients(model, edges, delta, leaves):
    on_edges, gate = model.edge_probability(edges, delta), model.gate(edges)
    expected = model.expected_mask(delta)
    torch.testing.assert_close(on_edges, expected.flatten()[edges.cells()], rtol=1e-5, atol=1e-7)
    assert gate.shape == (edges.n_edges,) and (gate == 1).all()
    for loss in (gate.sum(), on_edges.sum(), expected.sum(), model.expected_density(delta).sum()):
        assert is_finite(*gradients(loss, leaves))
