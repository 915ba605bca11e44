"""Every attention by name, alone and behind projections, on any tokens and any padding."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from sbmt import MultiHeadAttention, SbmtError, build_attention
from tests.faults.attention_settings import SETTINGS
from tests.faults.ingredients import (
    DTYPES,
    JUNK,
    LAYOUTS,
    PADDING,
    SIZES,
    gradients,
    is_finite,
    laid_out,
    normal,
    padding,
    real,
    refused,
    seeded,
    tokens,
)

SCALES = (1.0, 0.0, 1e-30, 1e4, 1e-4, 100.0, 1e15)


@dataclass(frozen=True)
class AttentionCase:
    """An attention and its input."""

    name: str
    settings: dict
    batch: int
    heads: int
    n_queries: int
    n_keys: int
    d: int
    query_padding: str
    key_padding: str
    scale: float
    junk: float
    dtype: torch.dtype
    layout: str
    is_leaf: bool
    is_training: bool
    is_projected: bool
    seed: int

    @property
    def is_self_attention(self):
        """Whether it needs a token to be query and key at once."""
        windowed = self.settings.get("window") is not None or self.settings.get("self_loops", False)
        return windowed or self.name == "reformer" or self.settings.get("n_conv") is not None

    @property
    def is_safe(self):
        """Whether numbers are so small that nothing on the way overflows."""
        return self.scale <= 1 if self.dtype == torch.float16 else self.scale <= 1e4

    def build(self):
        torch.manual_seed(self.seed)
        shape = dict(d_head=self.d, n_heads=self.heads)
        return build_attention(self.name, **shape, **self.settings).to(self.dtype).train(self.is_training)


def attention_cases():
    """Any attention and any input, be it one that it refuses."""
    size = st.sampled_from(SIZES)
    named = st.sampled_from(list(SETTINGS)).flatmap(lambda name: st.tuples(st.just(name), SETTINGS[name]))

    def make(named, lengths, **rest):
        return AttentionCase(*named, n_queries=lengths[0], n_keys=lengths[1], **rest)

    length = size | st.sampled_from([9, 66])
    return st.builds(
        make,
        named=named,
        lengths=length.map(lambda n: (n, n)) | st.tuples(length, length),
        batch=size,
        heads=size,
        d=size,
        query_padding=st.sampled_from(PADDING),
        key_padding=st.sampled_from(["as queries", *PADDING]),
        scale=st.sampled_from(SCALES),
        junk=st.sampled_from(JUNK),
        dtype=st.sampled_from(DTYPES),
        layout=st.sampled_from(LAYOUTS),
        is_leaf=st.booleans(),
        is_training=st.booleans(),
        is_projected=st.booleans(),
        seed=st.integers(0, 1 << 32),
    )


def check_attention_case(case):
    """What :func:`_check_attention` says; Algorithm 1 may refuse rates whose repeats no memory would hold."""
    try:
        return _check_attention(case)
    except SbmtError as error:
        if case.settings.get("sampler") != "fastrg" or "edges to draw, repeats included" not in str(error):
            raise
        return "refused"


def _check_attention(case):
    """Shapes, types, finite numbers, zeros and no gradient where nothing is attended, one seed one answer."""
    if 0 in (case.batch, case.heads, case.d, case.n_queries, case.n_keys):
        with refused("≥ 1|none of them 0"):
            shapes = ((case.batch, case.heads, n, case.d) for n in (case.n_queries, case.n_keys, case.n_keys))
            case.build()(*(torch.zeros(shape, dtype=case.dtype) for shape in shapes))
        return "refused"
    masks = _masks(case)
    leaves = _leaves(case, masks)
    module = case.build()
    if case.is_projected:
        _check_projected(case, masks)
    is_same = case.n_queries == case.n_keys
    if case.name == "reformer":
        is_same = is_same and torch.equal(*(real(m, case.batch, case.n_queries) for m in masks))
    if case.is_self_attention and not is_same:
        with refused("as many|alike"):
            _attend(case, module, leaves, masks)
        return "refused"
    try:
        out = _attend(case, module, leaves, masks)
    except SbmtError as error:
        if "membership in" not in str(error):
            raise
        assert not case.is_safe  # what overflowed on the way is refused
        return "refused"
    _check_output(case, out, masks)
    _check_gradients(case, module, out, leaves)
    with torch.set_grad_enabled(torch.finfo(case.dtype).bits == 16):  # where the gate's 32 bits help the scores
        again = _attend(case, module, leaves, masks)
    assert torch.equal(again.values.nan_to_num(), out.values.nan_to_num())
    assert torch.equal(again.edges.keys, out.edges.keys) and torch.equal(again.density, out.density)
    if case.is_safe:
        _check_not_finite(case, module, leaves, masks, out)
        clean = [x if m is None else x.masked_fill(~m[:, None, :, None], 0.0) for x, m in _with_masks(leaves, masks)]
        unread = _attend(case, module, [*clean], masks)
        torch.testing.assert_close(unread.values, out.values)  # what stands at padding changes nothing
    return "answered"


def _check_not_finite(case, module, leaves, masks, out):
    """NaN or infinity at a real token is refused, or stays within its example."""
    if case.layout == "expanded" or case.batch == 1:
        return
    spoilt = [x.detach().clone() for x in leaves]
    which = case.seed % 3
    spoilt[which][-1, 0, case.seed % spoilt[which].shape[2]] = (math.nan, math.inf)[case.seed // 3 % 2]
    try:
        found = _attend(case, module, spoilt, masks)
    except SbmtError as error:
        assert "membership in" in str(error)
        return
    torch.testing.assert_close(found.values[:-1], out.values.detach()[:-1])
    torch.testing.assert_close(found.density[:-1], out.density.detach()[:-1])


def _with_masks(leaves, masks):
    return zip(leaves, (masks[0], masks[1], masks[1]), strict=True)


def _masks(case):
    query = padding(case.query_padding, case.batch, case.n_queries, case.seed)
    if case.key_padding == "as queries":
        return query, query if case.n_queries == case.n_keys else None
    return query, padding(case.key_padding, case.batch, case.n_keys, case.seed + 1)


def _leaves(case, masks):
    made = []
    for i, (n, mask) in enumerate(((case.n_queries, masks[0]), (case.n_keys, masks[1]), (case.n_keys, masks[1]))):
        shape, is_shared = (case.batch, case.heads, n, case.d), case.layout == "expanded"
        mask = None if mask is None else mask.expand(case.batch, -1)
        made.append(tokens(shape, case.seed + i, case.dtype, case.scale, mask, case.junk, is_shared))
    return [x.requires_grad_(case.is_leaf) for x in made]


def _attend(case, module, leaves, masks):
    tensors = (laid_out(x, case.layout, case.batch) for x in leaves)
    torch.manual_seed(case.seed)  # some drop out by PyTorch's global generator
    masks = {"query_mask": masks[0], "key_mask": masks[1]}
    return module(*tensors, **masks, generator=seeded(case.seed), return_edges=True)


def _check_output(case, out, masks):
    shape = (case.batch, case.heads, case.n_queries, case.n_keys)
    assert out.values.shape == (*shape[:3], case.d) and out.values.dtype == case.dtype
    mask = out.edges.to_dense()
    is_query, is_key = (real(m, case.batch, n) for m, n in zip(masks, shape[2:], strict=True))
    is_pair = is_query[:, None, :, None] & is_key[:, None, None, :]
    assert mask.shape == shape and not (mask & ~is_pair).any()
    assert (out.values[~mask.any(-1)] == 0).all()
    if case.is_safe:
        assert is_finite(out.values)
    for density in (out.density, out.expected_density):
        assert density.shape == shape[:2] and density.is_floating_point()
        assert ((density >= 0) & (density <= 1)).all() and (density[~is_pair.any((1, 2, 3))] == 0).all()
    counted = mask.sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1)
    torch.testing.assert_close(out.density.double(), counted.double(), rtol=2e-3, atol=1e-6)


def _check_gradients(case, module, out, leaves):
    parameters = list(module.parameters())
    weights = normal(out.values.shape, case.seed + 9, case.dtype)
    for loss in ((out.values * weights).sum(), out.density.sum(), out.expected_density.sum()):
        if not loss.requires_grad:
            continue
        found = gradients(loss, [*(x for x in leaves if case.is_leaf), *parameters])
        if case.is_safe:
            assert is_finite(*found)
    if case.is_leaf and case.is_safe:
        mask = out.edges.to_dense()
        found = gradients((out.values * weights).sum(), leaves)
        for axis, gradient in zip((-1, -2, -2), found, strict=True):
            is_read = mask.any(axis)
            is_read = is_read.any(0, keepdim=True) if case.layout == "expanded" else is_read
            assert gradient is None or (gradient[~is_read] == 0).all()


def _check_projected(case, masks):
    """Behind projections, padded queries get the last one's bias."""
    if case.is_self_attention and case.n_queries != case.n_keys:
        return
    torch.manual_seed(case.seed)
    width = case.heads * case.d
    layer = MultiHeadAttention(width, case.heads, attention=case.name, **case.settings).to(case.dtype)
    layer.train(case.is_training)
    query = normal((case.batch, case.n_queries, width), case.seed, case.dtype)
    key = query if case.n_queries == case.n_keys else normal((case.batch, case.n_keys, width), case.seed, case.dtype)
    padded = [None if m is None else ~m for m in masks]
    if key is query:
        padded[1] = padded[0]
    output, attended = layer(query, key, key, padded[1], query_padding_mask=padded[0], generator=seeded(0))
    assert output.shape == query.shape and output.dtype == case.dtype and is_finite(output)
    nothing = (attended.values == 0).all(-1).all(1)  # batch n
    torch.testing.assert_close(output[nothing], layer.out_proj.bias.expand_as(output)[nothing])
    assert is_finite(*gradients(output.sum(), list(layer.parameters())))
