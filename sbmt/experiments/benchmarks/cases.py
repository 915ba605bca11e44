"""Inputs of known density: SBM attention layers with one number that is set to meet the density."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.data.repeated_tokens import sample_fresh_values
from sbmt.experiments.sparsification.rates import bisect
from sbmt.experiments.training.run import SHIPPED_FITTED, load_run
from sbmt.layers import SBMAttention
from sbmt.samplers import sample_edges

CPU = torch.device("cpu")
_CLOSED = 8.0  # minus the logit of a membership that should be 0: σ(−8) < 4e-4
_TOKENS_TO_MEASURE = 1024  # tokens are alike, so some of them suffice to estimate the density of all


@dataclass(frozen=True)
class Setting:
    """Properties of an input: n queries and keys, the expected share of pairs that are edges, and sizes.

    ``kind`` is ``"near-constant"``, ``"structured"`` or ``"fitted"``, see the functions of these names.
    """

    n: int
    density: float
    kind: str
    n_clusters: int = 128
    n_heads: int = 4
    d_head: int = 32

    def __post_init__(self) -> None:
        check_sizes(n=self.n, n_clusters=self.n_clusters, n_heads=self.n_heads, d_head=self.d_head)
        choose("kind", self.kind, KINDS)


def fitted_setting(n: int, keys_per_query: float) -> Setting:
    """The setting of :func:`fitted` with so many keys per query, the token itself among them."""
    return Setting(n, keys_per_query / n, "fitted", n_clusters=1024)


@dataclass(frozen=True, eq=False)
class Case:
    """A layer, a batch of one example ``(1, heads, n, d_head)``, and a random gradient of the output.

    Made-up layers have no exploration; a fitted layer keeps its own.
    """

    setting: Setting
    layer: SBMAttention
    query: Tensor
    key: Tensor
    value: Tensor
    cotangent: Tensor

    def block_model(self) -> BlockModel:
        """The block model that the layer infers from these tokens."""
        return self.layer.block_model(self.query, self.key)

    @property
    def leaves(self) -> list[Tensor]:
        """All tensors whose gradients a training step needs."""
        return [self.query, self.key, self.value, *self.layer.parameters()]


def build(setting: Setting, seed: int = 0, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> Case:
    """The input for a setting, the same for the same seed, with a layer in float32 and tokens in ``dtype``."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        layer, query, key = KINDS[setting.kind](setting)
        value, cotangent = (torch.randn_like(query) for _ in range(2))
        query, key, value, cotangent = (x.to(device, dtype) for x in (query, key, value, cotangent))
    for leaf in (query, key, value):
        leaf.requires_grad_()
    return Case(setting, layer.to(device), query, key, value, cotangent)


def near_constant(setting: Setting) -> tuple[SBMAttention, Tensor, Tensor]:
    """Memberships that differ little, as at the start of training: all pairs are about equally likely.

    All clusters get the same component along one direction, along which the MLP's last bias moves all tokens.
    """
    layer = SBMAttention(setting.d_head, setting.n_heads, setting.n_clusters, exploration=0.0)
    query, key = (torch.randn(1, setting.n_heads, setting.n, setting.d_head) for _ in range(2))
    direction = torch.full((setting.d_head,), setting.d_head**-0.5)
    layer.clusters.add_((0.1 - layer.clusters @ direction)[..., None] * direction)
    *_, last = (module for module in layer.node_mlp if isinstance(module, nn.Linear))
    start = last.bias.clone()

    def density_at(shift: float) -> float:
        last.bias.copy_(start + shift * direction)
        return _density(layer, query, key)

    _meet(density_at, setting.density, -200.0, 200.0)
    return layer, query, key


def structured(setting: Setting) -> tuple[SBMAttention, Tensor, Tensor]:
    """Memberships close to one-hot over g groups: a block-diagonal expected mask, with rows and columns shuffled.

    Cluster c is 3·e_{c mod g}, so that nearly all of the block matrix is between clusters of one group, and a token is
    4·e_a for its group a, plus noise. The MLP is a gain, set to meet the density, and a negative bias. A block matrix
    sums to 1, so the density is at most 1/g²; g is the largest with which memberships of .95 meet it.
    """
    layer = SBMAttention(setting.d_head, setting.n_heads, setting.n_clusters, exploration=0.0)
    n_groups = max(1, min(int(sqrt(0.9 / setting.density)), setting.d_head, setting.n_clusters))
    axes = torch.eye(setting.d_head)
    layer.clusters.copy_(3.0 * axes[torch.arange(setting.n_clusters) % n_groups].expand_as(layer.clusters))
    first, last = (module for module in layer.node_mlp if isinstance(module, nn.Linear))
    first.weight.copy_(axes)
    first.bias.zero_()
    last.bias.fill_(-_CLOSED / 3.0)
    order = torch.rand(2, 1, setting.n_heads, setting.n).argsort(-1)  # differs from head to head
    tokens = 4.0 * axes[order % n_groups]
    query, key = tokens + 0.1 * torch.randn_like(tokens)  # 1 heads n d_head each

    def density_at(gain: float) -> float:
        last.weight.copy_(gain * axes)
        return _density(layer, query, key)

    _meet(density_at, setting.density, 0.0, 3.0)
    return layer, query, key


def fitted(setting: Setting) -> tuple[SBMAttention, Tensor, Tensor]:
    """Memberships of a trained network: the shipped fitted one, applied to an unseen sequence.

    It was trained to find equal values among 256 tokens, each a noisy copy of a random vector, so that sequences of any
    length are alike. All its rates are multiplied by one number, set to meet the density, self-loops included.
    """
    model = load_run(SHIPPED_FITTED).model.eval()
    layer: SBMAttention = next(module for module in model.modules() if isinstance(module, SBMAttention))
    n_measured = min(_TOKENS_TO_MEASURE, setting.n)
    seen: list[Tensor] = []
    start = layer.log_start.clone()
    layer.log_start.sub_(20.0)  # hardly an edge, so that reading takes no time
    with layer.register_forward_pre_hook(lambda _, tokens: seen.extend(tokens)):
        model(sample_fresh_values(1, setting.n)[0])
    query, key, _ = seen

    def density_at(shift: float) -> float:
        layer.log_start.copy_(start + shift)
        model = layer.block_model(query[:, :, :n_measured], key)
        edges = sample_edges(model)
        is_loop = edges.rows() % n_measured == edges.keys
        n_edges = edges.n_edges + setting.n_heads * n_measured - int(is_loop.sum())
        return n_edges / int(model.n_pairs) / setting.n_heads

    _meet(density_at, setting.density, -20.0, 10.0)
    return layer, query.contiguous(), key.contiguous()


MADE_UP = {"near-constant": near_constant, "structured": structured}
KINDS = MADE_UP | {"fitted": fitted}


def _density(layer: SBMAttention, query: Tensor, key: Tensor) -> float:
    some = (x[:, :, :_TOKENS_TO_MEASURE] for x in (query, key))
    return float(layer.block_model(*some).expected_density().mean())


def _meet(density_at: Callable[[float], float], density: float, low: float, high: float) -> None:
    least, most = density_at(low), density_at(high)
    if not least <= density <= most:
        raise SbmtError(f"a density from {least:.3g} to {most:.3g}", density, "choose a density in this range")
    bisect(density_at, density, low, high)
