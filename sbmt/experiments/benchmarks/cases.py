"""Inputs of known density: SBM attention layers with one number that is set to meet the density."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.data.repeated_tokens import sample_fresh_values
from sbmt.experiments.training.run import SHIPPED_FITTED, load_run
from sbmt.layers import SBMAttention
from sbmt.layers.registry import PRESETS

Inputs = tuple[SBMAttention, Tensor, Tensor]  # a layer, and its queries and keys
LOG_RATES = -30.0, 11.0  # bounds of log_start, between which a bisection never meets 0, which means that it is not set
_TOKENS_TO_MEASURE = 1024  # tokens are alike, so the pairs of some have the density of all


@dataclass(frozen=True)
class Setting:
    """An input of a kind in :data:`KINDS`: n queries and keys, the expected share of edges among pairs, and sizes."""

    n: int
    density: float
    kind: str
    n_clusters: int = 128
    n_heads: int = 4
    d_head: int = 32

    def __post_init__(self) -> None:
        check_sizes(n=self.n, n_clusters=self.n_clusters, n_heads=self.n_heads, d_head=self.d_head)
        choose("kind", self.kind, KINDS)


def fitted_setting(n: int, n_keys: int, n_heads: int = 4, d_head: int = 32) -> Setting:
    """Returns a fitted layer, shipped or untrained, with ``n_keys`` keys per query including the token itself."""
    kind = "fitted" if (n_heads, d_head) == (4, 32) else UNTRAINED
    return Setting(n, n_keys / n, kind, 1024, n_heads, d_head)


@dataclass(frozen=True, eq=False)
class Case:
    """A layer, a batch of one example ``(1, heads, n, d_head)``, and a random gradient of the output.

    Constructed layers have no exploration; a fitted layer keeps the exploration that it was trained with.
    """

    setting: Setting
    layer: SBMAttention
    query: Tensor
    key: Tensor
    value: Tensor
    cotangent: Tensor
    generator: torch.Generator  # of masks, on the device of the tokens

    def block_model(self) -> BlockModel:
        """Returns the block model that the layer infers from these tokens."""
        return self.layer.block_model(self.query, self.key)

    @property
    def leaves(self) -> list[Tensor]:
        """All tensors whose gradients a training step needs."""
        return [self.query, self.key, self.value, *self.layer.parameters()]


def build(setting: Setting, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Case:
    """Builds the input for a setting from a seed, with a layer in float32 and tokens in ``dtype``."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        layer, query, key = KINDS[setting.kind](setting)
        tokens = (query, key, *torch.randn(2, *query.shape))
    query, key, value, cotangent = (x.to(device, dtype) for x in tokens)
    for leaf in (query, key, value):
        leaf.requires_grad_()
    generator = torch.Generator(device).manual_seed(seed)
    return Case(setting, layer.to(device), query, key, value, cotangent, generator)


def near_constant(setting: Setting) -> Inputs:
    """Builds memberships that differ little, as at the start of training, so that all pairs are about equally likely.

    All clusters get the same component along one direction, along which the MLP's last bias moves all tokens.
    """
    layer = SBMAttention(setting.d_head, setting.n_heads, setting.n_clusters, exploration=0.0)
    direction = torch.full((setting.d_head,), setting.d_head**-0.5)
    layer.clusters.add_((0.1 - layer.clusters @ direction)[..., None] * direction)
    *_, last = (module for module in layer.node_mlp if isinstance(module, nn.Linear))
    start = last.bias.clone()
    query, key = torch.randn(2, 1, setting.n_heads, setting.n, setting.d_head)
    return _meet(setting, (layer, query, key), lambda x: last.bias.copy_(start + x * direction), -200.0, 200.0)


def structured(setting: Setting) -> Inputs:
    """Builds nearly one-hot memberships in g groups: a block-diagonal expected mask with shuffled rows and columns.

    Cluster c is 3·e_{c mod g}, so that nearly all of the block matrix is between clusters of one group, and a token is
    4·e_a for its group a, plus noise. The MLP is a gain, set to meet the density, and a negative bias. A block matrix
    sums to 1, so the density is at most 1/g². The largest g is used for which memberships of .95 meet the density.
    """
    layer = SBMAttention(setting.d_head, setting.n_heads, setting.n_clusters, exploration=0.0)
    n_groups = max(1, min(int(sqrt(0.9 / setting.density)), setting.d_head, setting.n_clusters))
    axes = torch.eye(setting.d_head)
    layer.clusters.copy_(3.0 * axes[torch.arange(setting.n_clusters) % n_groups].expand_as(layer.clusters))
    first, last = (module for module in layer.node_mlp if isinstance(module, nn.Linear))
    first.weight.copy_(axes)
    first.bias.zero_()
    last.bias.fill_(-8 / 3.0)  # a membership that should be 0 is σ(−8) < 4e-4
    order = torch.rand(2, 1, setting.n_heads, setting.n).argsort(-1)  # differs from head to head
    tokens = 4.0 * axes[order % n_groups]
    query, key = tokens + 0.1 * torch.randn_like(tokens)  # 1 heads n d_head each
    return _meet(setting, (layer, query, key), lambda gain: last.weight.copy_(gain * axes), 0.0, 3.0)


def fitted(setting: Setting) -> Inputs:
    """Applies the shipped fitted network, with four heads of width 32, to an unseen sequence.

    It was trained to find equal values among 256 tokens, each a noisy copy of a random vector, so that sequences of any
    length are alike. All its rates are multiplied by one number, set to meet the density, self-loops included.
    """
    model = load_run(SHIPPED_FITTED).model.eval()
    layer: SBMAttention = next(module for module in model.modules() if isinstance(module, SBMAttention))
    seen: list[Tensor] = []
    layer.log_start.fill_(-30.0)  # hardly an edge, so that reading takes no time
    with layer.register_forward_pre_hook(lambda _, tokens: seen.extend(tokens)):
        model(sample_fresh_values(1, setting.n)[0])
    query, key = (x.contiguous() for x in seen[:2])
    return _meet(setting, (layer, query, key), layer.log_start.fill_, *LOG_RATES)


def untrained(setting: Setting) -> Inputs:
    """Passes random tokens to a new fitted layer, for head sizes that no shipped network has.

    Its clusters mean nothing, but a query has as many keys as with :func:`fitted`, scattered over the sequence.
    """
    options: dict[str, Any] = PRESETS["fitted"] | {"n_clusters": setting.n_clusters}
    layer = SBMAttention(setting.d_head, setting.n_heads, **options)
    query, key = torch.randn(2, 1, setting.n_heads, setting.n, setting.d_head)
    return _meet(setting, (layer, query, key), layer.log_start.fill_, *LOG_RATES)


UNTRAINED = "fitted, untrained"
MADE_UP = {"near-constant": near_constant, "structured": structured}
KINDS = MADE_UP | {"fitted": fitted, UNTRAINED: untrained}


def _meet(setting: Setting, inputs: Inputs, change: Callable[[float], object], low: float, high: float) -> Inputs:
    """Changes one number of the layer until the density, self-loops included, is that of the setting."""
    layer, *tokens = inputs

    def density_at(number: float) -> float:
        change(number)
        mask = layer.block_model(*(x[:, :, :_TOKENS_TO_MEASURE] for x in tokens)).expected_mask()[0]  # heads n n
        if layer.window is None:
            return float(mask.mean())
        is_loop = torch.eye(mask.shape[1], dtype=torch.bool)
        return float(mask[:, ~is_loop].mean()) + 1 / setting.n

    least, most = density_at(low), density_at(high)
    if not least <= setting.density <= most:
        raise SbmtError(f"a density from {least:.3g} to {most:.3g}", setting.density, "choose a density in this range")
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if density_at(middle) < setting.density else (low, middle)
    change(high)
    return inputs
