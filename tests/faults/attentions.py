"""Attention along given edges, every attention by name, and the models, on any numbers and any padding."""

import math

import torch

from sbmt import (
    DualEncoder,
    EdgeList,
    Encoder,
    ExtraKeys,
    MaskedLM,
    MultiHeadAttention,
    SbmtError,
    SentenceClassifier,
    SequenceClassifier,
    TokenTagger,
    available_backends,
    build_attention,
    density_penalty,
    edge_attention,
)
from tests.faults.cases import (
    DTYPES,
    LAYOUTS,
    PADDING,
    SIZES,
    gradients,
    is_finite,
    laid_out,
    normal,
    padding,
    real,
    real_pairs,
    refused,
    seeded,
)
from tests.faults.rounding import Exact

SCALES = (1.0, 0.0, 1e-30, 100.0, 1e4, 1e-4, 1e18)
VOCABULARY, LABELS, LONGEST = 11, 3, 130  # positions of the attentions that have a table of them
SETTINGS = {
    "n_clusters": (1, 2, 3, 9),
    "sampler": ("exact", "bernoulli", "fastrg"),
    "gate_rule": ("score", "weight"),
    "exploration": (0.01, 0.0, 0.999999, ExtraKeys(1), ExtraKeys(1e-9), ExtraKeys(1e9)),
    "link": ("bilinear", "poisson"),
    "self_loops": (False, True),
    "window": (None, 0, 1, 2, 10**9),
    "dropout": (0.0, 0.99, 0.2),
    "backend": ("auto", *available_backends()),
    "n_positions": (LONGEST,),
    "n_projected": (1, 2, 9),
    "n_chunk": (1, 2, 9),
    "n_hashes": (1, 2, 3),
    "n_centroids": (1, 2, 9),
    "n_features": (1, 2, 9),
    "n_landmarks": (1, 2, 9),
    "n_iterations": (6, 1, 20),
    "is_log_scaled": (False, True),
    "mask_density": (0.25, 0.0, 1.0, 1e-30, 0.01),
}
"""What the settings of attentions may be."""
SBM = ("n_clusters", "sampler", "gate_rule", "exploration", "link", "self_loops", "window", "backend")
ATTENTIONS = {
    "sbm": SBM,
    "sbm_static": (*SBM, "n_positions"),
    "full": ("is_log_scaled",),
    "linear": (),
    "linformer": ("n_positions", "n_projected"),
    "reformer": ("n_chunk", "n_hashes"),
    "routing": ("n_centroids", "backend"),
    "performer": ("n_features",),
    "nystromformer": ("n_landmarks", "n_iterations"),
    "random_mask": ("mask_density", "window", "backend"),
}
"""The settings of each attention, besides dropout."""


def pick_attention(case):
    """An attention's name and its settings."""
    name = case.pick("attention", tuple(ATTENTIONS))
    return name, {setting: case.pick(setting, SETTINGS[setting]) for setting in (*ATTENTIONS[name], "dropout")}


def check_edge_attention(case):
    """Zeros where nothing is attended, and from every backend what float64 gives, up to rounding."""
    shape, d, d_value = case.shape(), case.pick("d", SIZES), case.pick("d_value", SIZES)
    batch, heads, n_queries, n_keys = shape
    sizes = (batch, heads, n_queries, d), (batch, heads, n_keys, d), (batch, heads, n_keys, d_value)
    if 0 in (*shape, d, d_value):
        with refused("none of them 0|at least one example, head, query and key"):
            edges = EdgeList.from_dense(torch.zeros(shape, dtype=torch.bool))
            edge_attention(*(torch.zeros(size) for size in sizes), edges)
        return "refused"
    masks, dtype, layout = case.masks(shape), case.pick("dtype", DTYPES), case.pick("layout", LAYOUTS)
    mask = _pattern(case, shape) & real_pairs(masks, shape)
    edges = EdgeList.from_dense(mask, *masks)
    scales = [case.pick(f"scale of {name}", SCALES) for name in ("query", "key", "value")]
    leaves = _tokens(case, sizes, dtype, scales, (masks[0], masks[1], masks[1]), layout)
    size_of_gate = case.pick("gate", (1.0, None, 1e-30, 1e30))
    gate = torch.rand(edges.n_edges, generator=case.generator(), dtype=torch.float64) + 0.5
    gate = gate * size_of_gate if size_of_gate else torch.ones_like(gate)
    leaves.append(gate.to(torch.promote_types(dtype, torch.float32)).requires_grad_(True))
    settings = {"gate_rule": case.pick("gate rule", ("score", "weight"))}
    settings["dropout"] = case.pick("dropout", (0.0, 0.3, 0.99))
    incoming = normal((*shape[:3], d_value), case.seed + 9, dtype)
    tensors = [laid_out(x, layout, batch) for x in leaves[:3]]
    exact = Exact(tensors, leaves[3], edges, incoming, **settings, generator=case.generator())
    is_out_in_range, are_all_in_range = exact.is_in_range(dtype)
    n_compared = 5 if are_all_in_range else 1 if is_out_in_range else 0
    accumulator = torch.promote_types(dtype, torch.float32)  # compiled code computes in it whatever it is given
    margins = {kind: exact.margins(kind)[:n_compared] for kind in {dtype, accumulator}}
    limits, gates = torch.finfo(dtype), None if size_of_gate is None else leaves[3]
    for backend in (*available_backends(), "auto"):
        out = edge_attention(*tensors, edges, gates, backend=backend, **settings, generator=case.generator())
        found = [out, *gradients((out * incoming).sum(), leaves)]
        assert out.shape == incoming.shape and out.dtype == dtype
        assert (out[~mask.any(-1)] == 0).all()
        assert all((x is None) == (i == 4 and size_of_gate is None) for i, x in enumerate(found))
        if are_all_in_range:
            _check_unread(mask, found[1:4], layout)
        allowed = margins[accumulator if backend == "cpu" else dtype]
        for mine, theirs, margin in zip(found, exact.results, allowed, strict=False):
            if mine is not None:
                # Results of examples that share their tokens are rounded, then summed; dropout's scale is rounded too.
                margin = margin + (batch + 2) * limits.eps / 2 * (theirs.abs() + limits.tiny)
                error = (mine.detach().double() - theirs.sum_to_size(mine.shape)).abs()
                assert (error <= margin.sum_to_size(mine.shape)).all()
    return "answered"


def _pattern(case, shape):
    """Edges of a kind, as a dense mask."""
    kind = case.pick("edges", ("random", "nothing", "everything", "one edge", "one row", "one column", "diagonal"))
    dense = torch.zeros(shape, dtype=torch.bool)
    b, h, i, j = ((case.seed // 97**axis) % n for axis, n in enumerate(shape))
    where = {"one edge": (b, h, i, j), "one row": (b, h, i), "one column": (..., j), "everything": ()}
    if kind in where:
        dense[where[kind]] = True
    elif kind == "diagonal":
        dense |= torch.eye(*shape[2:], dtype=torch.bool)
    elif kind == "random":
        dense = torch.rand(shape, generator=case.generator()) < 0.3
    return dense


def _tokens(case, sizes, dtype, scales, masks, layout):
    """Query, key and value as leaves, with junk at padding."""
    junk, leaves = case.junk(), []
    for i, (size, scale, mask) in enumerate(zip(sizes, scales, masks, strict=True)):
        x = normal(size, case.seed + i, dtype, scale)
        if mask is not None:
            is_real = mask.any(0, keepdim=True) if layout == "expanded" else mask  # there all share one example
            x = x.masked_fill(~is_real[:, None, :, None], junk if abs(junk) < torch.finfo(dtype).max else math.inf)
        leaves.append((x[:1] if layout == "expanded" else x).requires_grad_(True))
    return leaves


def _check_unread(mask, grads, layout):
    """No gradient to what nothing attends or is attended by nothing."""
    for axis, gradient in zip((-1, -2, -2), grads, strict=True):
        is_read = mask.any(axis)
        is_read = is_read.any(0, keepdim=True) if layout == "expanded" else is_read
        assert gradient is None or (gradient[~is_read] == 0).all()


def check_attention_by_name(case):
    """Shapes, types, finite numbers, zeros where nothing is attended, one seed one answer, nothing read at padding."""
    shape, d, (name, settings) = case.shape(), case.pick("d", SIZES), pick_attention(case)
    batch, heads, n_queries, n_keys = shape
    dtype, layout, scale = case.pick("dtype", DTYPES), case.pick("layout", LAYOUTS), case.pick("scale", SCALES)
    sizes = [(batch, heads, n, d) for n in (n_queries, n_keys, n_keys)]
    torch.manual_seed(case.seed)
    if 0 in (*shape, d):
        with refused("≥ 1|none of them 0"):
            build_attention(name, d_head=d, n_heads=heads, **settings)(*map(torch.zeros, sizes))
        return "refused"
    masks = case.masks(shape)
    if n_queries == n_keys and case.flag("one mask"):
        masks[1] = masks[0]
    leaves = _tokens(case, sizes, dtype, [scale] * 3, (masks[0], masks[1], masks[1]), layout)
    layer = build_attention(name, d_head=d, n_heads=heads, **settings).to(dtype).train(case.flag("training"))

    def attend(tensors):
        torch.manual_seed(case.seed)  # some drop out by PyTorch's global generator
        tensors = (laid_out(x, layout, batch) for x in tensors)
        own = {"query_mask": masks[0], "key_mask": masks[1], "return_edges": True}
        return layer(*tensors, **own, generator=case.generator())

    is_safe = scale <= (1 if dtype == torch.float16 else 1e4)
    is_one_sequence = settings.get("window") is not None or settings.get("self_loops")
    is_alike = n_queries == n_keys
    if name in ("reformer", "routing"):
        is_one_sequence = True
        is_alike = is_alike and torch.equal(*(real(mask, batch, n_keys) for mask in masks))
    if is_one_sequence and not is_alike:
        with refused("as many|alike"):
            attend(leaves)
        return "refused"
    try:
        out = attend(leaves)
    except SbmtError as error:  # of numbers that overflowed on the way, or of Algorithm 1's many repeats
        assert "edges to draw" in str(error) or ("membership in" in str(error) and not is_safe)
        return "refused"
    _check_output(out, shape, d, dtype, masks, is_safe)
    weights = normal(out.values.shape, case.seed + 9, dtype)
    for i, loss in enumerate(((out.values * weights).sum(), out.density.sum(), out.expected_density.sum())):
        found = gradients(loss, [*leaves, *layer.parameters()])
        assert not is_safe or is_finite(*found)
        if is_safe and i == 0:
            _check_unread(out.edges.to_dense(), found[:3], layout)
    again = attend(leaves)
    assert torch.equal(again.values.nan_to_num(), out.values.nan_to_num())
    assert torch.equal(again.edges.keys, out.edges.keys)
    if is_safe:
        torch.testing.assert_close(attend(_without_junk(leaves, masks)).values, out.values)
        if layout != "expanded" and batch > 1:
            _check_spoilt(case, attend, leaves, out)
    if is_alike and dtype == torch.float32:
        _check_projected(case, name, settings, shape, d, masks[0])
    return "answered"


def _without_junk(leaves, masks):
    pairs = zip(leaves, (masks[0], masks[1], masks[1]), strict=True)
    return [x if mask is None else x.masked_fill(~mask[:, None, :, None], 0.0) for x, mask in pairs]


def _check_output(out, shape, d, dtype, masks, is_safe):
    mask, is_pair = out.edges.to_dense(), real_pairs(masks, shape)
    assert out.values.shape == (*shape[:3], d) and out.values.dtype == dtype
    assert mask.shape == shape and not (mask & ~is_pair).any()
    assert (out.values[~mask.any(-1)] == 0).all() and (is_finite(out.values) or not is_safe)
    for density in (out.density, out.expected_density):
        assert ((density >= 0) & (density <= 1)).all() and (density[~is_pair.any((2, 3))] == 0).all()
    counted = mask.sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1)
    torch.testing.assert_close(out.density.double(), counted.double(), rtol=2e-3, atol=1e-6)


def _check_spoilt(case, attend, leaves, out):
    """NaN or infinity at a token is refused, or stays within its example."""
    spoilt = [x.detach().clone() for x in leaves]
    which = spoilt[case.seed % 3]
    which[-1, 0, case.seed % which.shape[2]] = (math.nan, math.inf)[case.seed // 3 % 2]
    try:
        found = attend(spoilt)
    except SbmtError as error:
        assert "membership in" in str(error)
        return
    torch.testing.assert_close(found.values[:-1], out.values.detach()[:-1])


def _check_projected(case, name, settings, shape, d, mask):
    """Behind projections, queries that attend to nothing get the last one's bias."""
    width = shape[1] * d
    layer = MultiHeadAttention(width, shape[1], attention=name, **settings)
    x = normal((shape[0], shape[2], width), case.seed)
    padded = None if mask is None else ~mask
    output, attended = layer(x, x, x, padded, generator=seeded(0))
    nothing = (attended.values == 0).all(-1).all(1)  # batch n
    torch.testing.assert_close(output[nothing], layer.out_proj.bias.expand_as(output)[nothing])
    assert is_finite(output, *gradients(output.sum(), list(layer.parameters())))


NETWORKS = {
    "encoder": lambda encoder: encoder,
    "tagger": lambda encoder: TokenTagger(encoder, LABELS),
    "classifier": lambda encoder: SequenceClassifier(encoder, LABELS, 4),
    "classifier, padded mean": lambda encoder: SequenceClassifier(encoder, LABELS, 4, is_padded_mean=True),
    "sentence, mean": lambda encoder: SentenceClassifier(encoder, LABELS, dropout=0.2),
    "sentence, first": lambda encoder: SentenceClassifier(encoder, LABELS, pooling="first"),
    "pair, products": lambda encoder: DualEncoder(encoder, LABELS, 4),
    "pair, concatenation": lambda encoder: DualEncoder(encoder, LABELS, 1, pair_features="concatenation"),
    "masked LM": MaskedLM,
}


def check_model(case):
    """Finite logits and gradients, whatever is padded; what stands at padding is not read; one seed, one answer."""
    network, (name, settings) = case.pick("network", tuple(NETWORKS)), pick_attention(case)
    batch, n, heads = case.pick("batch", SIZES), case.pick("n", (*SIZES, 9, 66, 131)), case.pick("heads", (1, 2))
    max_length = case.pick("longest", (LONGEST, None))
    sizes = {"d_model": heads * case.pick("d_head", (1, 2, 4)), "d_hidden": 5, "n_heads": heads, "n_layers": 2}
    dropouts = {"dropout": case.pick("embedding's dropout", (0.0, 0.2)), "attention_dropout": settings.pop("dropout")}
    spread = case.pick("embedding_std", (0.02, 1e-30, 1.0, 100.0))
    dtype = case.pick("dtype", (torch.float32, torch.float64, torch.bfloat16))
    torch.manual_seed(case.seed)
    encoder = Encoder(VOCABULARY, max_length, **sizes, **dropouts, embedding_std=spread, attention=name, **settings)
    model = NETWORKS[network](encoder).to(dtype).train(case.flag("training"))
    shape = (batch, 2, n) if network.startswith("pair") else (batch, n)
    is_bounded = max_length is not None or "n_positions" in settings
    if 0 in shape or (is_bounded and n > LONGEST):
        with refused("n ≥ 1|at most 130"):
            model(torch.zeros(shape, dtype=torch.int64))
        return "refused"
    tokens, others = (torch.randint(VOCABULARY, shape, generator=case.generator(i)) for i in range(2))
    mask = padding(case.pick("padding", PADDING), math.prod(shape[:-1]), n, case.seed)
    is_real = real(mask, math.prod(shape[:-1]), n).reshape(shape)
    share = case.pick("selected", (None, 0.0, 0.5, 1.0)) if network == "masked LM" else None
    own = {} if share is None else {"selected": is_real & (torch.rand(shape, generator=case.generator()) < share)}

    def read(ids):
        torch.manual_seed(case.seed)
        return model(ids, None if mask is None else is_real, generator=case.generator(), **own)

    out = read(tokens)
    assert is_finite(out.values) and out.values.dtype == dtype and len(out.attention) == 2
    assert all(((attended.density >= 0) & (attended.density <= 1)).all() for attended in out.attention)
    penalties = (density_penalty(out.attention, kind) for kind in ("sampled", "expected"))
    for loss in (out.values.square().sum(), *penalties):
        assert is_finite(loss, *gradients(loss, list(model.parameters())))
    values, unread = out.values, read(torch.where(is_real, tokens, others)).values
    if network in ("encoder", "tagger", "masked LM") and not own:
        values, unread = values[is_real], unread[is_real]  # at padding they belong to the tokens there
    torch.testing.assert_close(unread, values)
    return "answered"
