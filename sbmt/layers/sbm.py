"""The attention layer of SBM-Transformer, which infers and draws its mask, and a control whose mask ignores the input.

This file infers the block model from queries and keys; :mod:`sbmt.layers.functional` draws the mask and attends.
"""

from math import log
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.cache import Cache, check_decoding
from sbmt.attention.dispatch import check_attention_inputs
from sbmt.attention.inputs import GateRule
from sbmt.block_model.crossed import CrossedModel, choose_parts
from sbmt.block_model.fit import Learning, unit_gradient
from sbmt.block_model.model import BlockModel, ExtraKeys, Link
from sbmt.errors import SbmtError, check_choice, check_sizes
from sbmt.graph.masks import check_causal, check_mask, zero_padding
from sbmt.layers.drawn import infer_by_kernels
from sbmt.layers.functional import MaskSettings, attend_next, attend_through
from sbmt.types import AttentionOutput, check_untransformed, full_precision, has_kernels_for, is_traced, shapes_alone

Membership = Literal["sigmoid", "crossed"]
SHARPNESS = 3.5  # initial scale of the node map of crossed memberships, so that nodes are far apart
MOST_PARTS = 1 << 15  # parts are numbered by int16
MOST_CLUSTERS = 1 << 14  # per group, since kernels hold its blocks in registers
LARGEST_LEARNED = 10.0  # the largest log rate; larger ones would slow Algorithm 1 down without changing 1 − e^(−rate)
LEAST_START = 1e-6  # log_start is at most minus this, since 0 means that it has not been set yet
SHOWN = ["d_head", "n_heads", "n_clusters", "sampler", "gate_rule", "exploration", "link", "membership", "window"]
SHOWN += ["learning", "edges_per_query", "n_groups", "reweight", "causal"]  # attributes that repr() shows


class SBMAttention(nn.Module):
    r"""The attention layer of SBM-Transformer: infers a block model per head, samples a mask, and attends along it.

    With clusters $C \in \mathbb{R}^{k \times d}$ per head and one MLP for queries, keys and all heads,

    $$\begin{gathered}S = \operatorname{softmax}(C C^\top), \quad \hat Q = \sigma(\operatorname{MLP}(Q)\, C^\top), \quad
    \hat K = \sigma(\operatorname{MLP}(K)\, C^\top), \\
    M_{ij} \sim \operatorname{Bernoulli}(\hat Q_i S \hat K_j^\top),\end{gathered}$$

    where the softmax runs over all k² entries. Under ``link="poisson"``, S is not normalised,
    $S = e^{C C^\top} / k^2$, and $M_{ij} \sim \operatorname{Bernoulli}(1 - e^{-\hat Q_i S \hat K_j^\top})$.

    With ``membership="crossed"`` there are g = ``n_groups`` groups of clusters. A group's clusters are pairs of parts,
    one from each of two partitions of the tokens (:class:`~sbmt.block_model.crossed.CrossedModel`). In each partition,
    a softmax divides a token between the two parts with the largest logits. A linear map replaces the MLP, and the
    blocks of the partitions are $e^{C C^\top} / 2$. There are $2 g \sqrt{k/g}$ logits instead of k.

    With ``learning="likelihood"`` the block model is fitted to the attention along its edges
    (:func:`~sbmt.block_model.fit.fit_loss`): add the output's ``auxiliary_loss`` to the task loss. S is then
    multiplied by a rate γ per head, and queries and keys are detached before they enter the block model, so that no
    gradient passes between it and the task. γ is a learned factor times min(1, c/n), where n is the number of keys in
    the layer's first training step, so training starts with about c edges per query. Two attributes may be changed
    between steps: ``edges_per_query``, which is c, and ``is_dense``, for a warm-up. While ``is_dense`` is True,
    training attends to all real pairs without reweighting, and fits the block model to them.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_clusters: k, the number of clusters per head; with crossed memberships it is rounded to ``n_groups`` times a
            square.
        sampler: ``"exact"``, ``"bernoulli"``, ``"fastrg"``, or the name of your own sampler.
        gate_rule: ``"score"`` (equation 9) or ``"weight"``.
        exploration: δ in training, in [0, 1), which adds δ · n² expected edges, or
            :class:`~sbmt.block_model.model.ExtraKeys`, which adds edges in proportion to n.
        link: ``"bilinear"`` (the paper's) or ``"poisson"``.
        membership: ``"sigmoid"`` (the paper's), or ``"crossed"``, which needs the Poisson link.
        self_loops: Whether every token also attends to itself.
        window: Tokens also attend to tokens at most ``window / 2`` positions away; None means no window.
        dropout: Dropout of the attention weights in training, in [0, 1).
        backend: Implementation of attention along edges, or ``"auto"``.
        learning: ``"straight_through"`` (the paper's) or ``"likelihood"``.
        edges_per_query: The number c > 0 of edges per query at which the fit aims, required with ``"likelihood"`` and
            not allowed otherwise. It bounds the number of drawn edges, on average over queries.
        n_groups: Number of groups of crossed partitions.
        reweight: Whether the weight of a drawn edge is multiplied by 1/p, so that the output estimates full attention.
            A number in (0, 1] is the lower bound of p in this weight; True stands for 0.05.
        sink: Whether each head learns a logit that takes part in the softmax but has no value, so that a token may
            attend to nothing.
        causal: If True, no token attends to a later token. If there are fewer queries than keys, they are the last
            tokens.

    Shapes:
        query ``(batch, heads, n_queries, d_head)``, key and value ``(batch, heads, n_keys, d_head)`` → values
        ``(batch, heads, n_queries, d_head)``.

    In eval mode masks are still sampled, as in the paper, but without exploration and dropout. Initially all edge
    probabilities are close to ¼, except with crossed memberships. Raises SbmtError for unknown or invalid arguments.

    Cost: O(n k² + edges · (k + d)) for each head; with crossed memberships O(n √k d + edges · d).
    Paper: section 4.1, equations 5 to 9. Deviation: no exploration at test time.

    Example:
        >>> attention = SBMAttention(d_head=8, n_heads=2, n_clusters=4)
        >>> x = torch.randn(1, 2, 5, 8)
        >>> attention(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    log_start: Tensor

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        n_clusters: int = 128,
        *,
        sampler: str = "exact",
        gate_rule: GateRule = "score",
        exploration: float | ExtraKeys = 0.01,
        link: Link = "bilinear",
        membership: Membership = "sigmoid",
        self_loops: bool = False,
        window: int | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
        learning: Learning = "straight_through",
        edges_per_query: float | None = None,
        n_groups: int = 1,
        reweight: bool | float = False,
        sink: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_clusters=n_clusters, n_groups=n_groups)
        check_choice("link", link, Link)
        check_choice("membership", membership, Membership)
        check_causal((1, 1, 1, 1), causal)
        delta = 0.0 if isinstance(exploration, ExtraKeys) else exploration  # checked already
        MaskSettings(sampler, delta, gate_rule, window, dropout, backend, learning, edges_per_query, reweight).check()
        is_crossed = membership == "crossed"
        n_parts = max(1, round((n_clusters / n_groups) ** 0.5))  # per partition, if memberships are crossed
        n_rows = 2 * n_groups * n_parts if is_crossed else n_clusters  # rows of C per head
        if is_crossed and link != "poisson":
            raise SbmtError("link='poisson' for crossed memberships", f"link={link!r}", "set link='poisson'")
        if is_crossed and n_rows > MOST_PARTS:
            raise SbmtError(f"at most {MOST_PARTS} parts in all partitions together", n_rows, "use fewer clusters")
        if n_groups > 1 and not is_crossed:
            raise SbmtError("n_groups > 1 only with membership='crossed'", f"n_groups={n_groups}", "omit n_groups")
        self.d_head, self.n_heads, self.n_groups = d_head, n_heads, n_groups
        self.n_clusters = n_groups * n_parts**2 if is_crossed else n_clusters
        self.sampler, self.gate_rule, self.link, self.membership = sampler, gate_rule, link, membership
        self.exploration, self.dropout, self.backend, self.causal = exploration, dropout, backend, causal
        self.learning, self.edges_per_query, self.reweight = learning, edges_per_query, reweight
        self.window = 0 if self_loops and window is None else window
        hidden = () if is_crossed else (nn.Linear(d_head, d_head), nn.ReLU())
        self.node_mlp = nn.Sequential(*hidden, nn.Linear(d_head, d_head))
        self.clusters = nn.Parameter(torch.empty(n_heads, n_rows, d_head))
        self.log_rate = None
        if learning == "likelihood":
            self.log_rate = nn.Parameter(torch.empty(n_heads))
            self.register_buffer("log_start", torch.empty(()))
        self.sink = nn.Parameter(torch.empty(n_heads)) if sink else None
        self.is_dense = False
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialises all parameters, as the constructor does."""
        for module in self.node_mlp:
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        if self.membership == "sigmoid":
            nn.init.kaiming_normal_(self.clusters)
        else:  # |C_a|² ≈ 2 for both parts, so two tokens of one cluster have e⁴ times the rate of other pairs
            nn.init.normal_(self.clusters, std=(2 / self.d_head) ** 0.5)
            with torch.no_grad():
                for parameter in self.node_mlp[-1].parameters():
                    parameter.mul_(SHARPNESS)
        if self.log_rate is not None:
            nn.init.constant_(self.log_rate, -1.0)
            self.log_start.zero_()  # 0 before any training
        if self.sink is not None:
            nn.init.zeros_(self.sink)

    def block_model(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
    ) -> BlockModel:
        """Infers the block model of queries and keys by equations 5 to 7, in float32 under autocast."""
        self._check_tokens(query, key)
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        if self.learning == "likelihood":
            query, key = query.detach(), key.detach()
        return self._infer(query, key, query_mask, key_mask)

    def _infer(self, query: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None) -> BlockModel:
        """Infers the block model without checking or detaching the tokens."""
        check_causal((*query.shape[:3], key.shape[2]), self.causal)
        n_visible = self._n_visible(query, key)
        with full_precision(query):
            real = torch.promote_types(self.clusters.dtype, torch.float32)
            if self._has_kernels_for(query, key, self.clusters.new_empty(0, dtype=real)):
                masks, start = (query_mask, key_mask), self._start(n_visible)
                return infer_by_kernels(self, query, key, masks, start, LARGEST_LEARNED / 2)
            clusters = self.clusters.to(real)
            query, key = zero_padding(query, query_mask), zero_padding(key, key_mask)
            nodes = [self.node_mlp(x.to(self.clusters.dtype)).to(clusters.dtype) for x in (query, key)]
            if self.learning == "likelihood" and torch.is_grad_enabled():
                clusters, nodes = unit_gradient(clusters, 0), [unit_gradient(node, 1) for node in nodes]
            if self.membership == "crossed":
                n_partitions = 2 * self.n_groups
                centres = clusters.unflatten(1, (n_partitions, -1))  # heads partitions size d
                blocks = self._block_matrix(centres @ centres.mT, n_visible, n_factors=2)
                queries, keys = (choose_parts(clusters, node, n_partitions) for node in nodes)
                return CrossedModel(queries, blocks, keys, query_mask, key_mask, self.causal)
            queries, keys = ((node @ clusters.mT).sigmoid() for node in nodes)
            block_matrix = self._block_matrix(clusters @ clusters.mT, n_visible, n_factors=1)
            return BlockModel(queries, block_matrix, keys, query_mask, key_mask, self.link, self.causal)

    def _has_kernels_for(self, query: Tensor, key: Tensor, like: Tensor) -> bool:
        """Returns whether GPU kernels can infer the block model, which they cannot if the tokens need gradients."""
        is_detached = self.learning == "likelihood" and not (query.requires_grad or key.requires_grad)
        is_served = self.membership == "crossed" and self.n_clusters <= self.n_groups * MOST_CLUSTERS
        return is_detached and is_served and has_kernels_for(like)

    def _n_visible(self, query: Tensor, key: Tensor) -> float:
        """Returns the average number of keys to which a query may attend."""
        return key.shape[2] - self.causal * (query.shape[2] - 1) / 2

    def _block_matrix(self, scores: Tensor, n_keys: float, n_factors: int) -> Tensor:
        """Computes S, or each of its two factors, from scores of the same shape."""
        if self.log_rate is not None:
            log_rate = unit_gradient(self._log_rate(n_keys), 0)
            scores = scores + log_rate.view(-1, *(1,) * (scores.dim() - 1)) / n_factors
        if self.link == "bilinear":  # equation 5
            return torch.softmax(scores.flatten(1), -1).view_as(scores)
        divisor = 2 if self.membership == "crossed" else scores[0].numel()
        largest = LARGEST_LEARNED / n_factors + (log(divisor) if n_factors == 1 else 0.0)
        return scores.clamp(max=largest).exp() / divisor

    def block_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters of the block model: all except the sink, which belongs to the attention."""
        return [parameter for parameter in self.parameters() if parameter is not self.sink]

    def _log_rate(self, n_keys: float) -> Float[Tensor, " heads"]:
        """Returns log γ, a learned number plus a start that the first training step sets."""
        assert self.log_rate is not None  # set if learning is "likelihood"
        if is_traced(self.log_start):
            return self.log_rate + self.log_start
        now = torch.where(self.log_start == 0, self._start(n_keys), self.log_start)  # does not wait for a GPU
        if self.training and torch.is_grad_enabled():
            self.log_start.copy_(now)
        return self.log_rate + now

    def _start(self, n_keys: float) -> float:
        assert self.edges_per_query is not None
        return min(-LEAST_START, log(self.edges_per_query / n_keys))

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
        cache: Cache | None = None,
    ) -> AttentionOutput:
        """Samples a mask and attends along it; with ``return_edges``, the output includes the edges.

        Token masks are True at real tokens. ``generator`` is the source of one int64 for the mask and another for
        dropout. ``cache`` contains the layer's earlier tokens (:class:`~sbmt.attention.cache.Cache`); with crossed
        memberships, edges are then numbered within the cache's capacity.

        For an empty batch and for tensors without data (``torch.device("meta")``, ``FakeTensorMode``), the output has
        the right shapes and no edges. Raises SbmtError for inconsistent arguments, and inside ``torch.export``.
        """
        check_attention_inputs(query, key, value, None if self.causal else self.window)
        if (shapes := shapes_alone(self, query, key, value)) is not None:
            return shapes
        if cache is not None:
            check_decoding(self, query_mask, key_mask)
            if (found := attend_next(self, query, key, value, cache, generator)) is not None:
                return found
            key, value = (buffer[:, :, : cache.length] for buffer in cache.append(key, value))
        block_model = self.block_model(query, key, query_mask, key_mask)
        settings = MaskSettings(*(getattr(self, name) for name in MaskSettings._fields))
        if not self.training:
            settings = settings._replace(exploration=0.0, dropout=0.0, is_dense=False)
        elif isinstance(self.exploration, ExtraKeys):
            settings = settings._replace(exploration=self.exploration.probability(self._n_visible(query, key)))
        return attend_through(query, key, value, block_model, settings, generator, 0, return_edges)

    def _check_tokens(self, query: Tensor, key: Tensor) -> None:
        check_attention_inputs(query, key, key)
        check_untransformed(query, key)
        if query.shape[1::2] != (self.n_heads, self.d_head):
            expected = f"tokens of shape (batch, n_heads = {self.n_heads}, n, d_head = {self.d_head})"
            raise SbmtError(expected, tuple(query.shape), "build the layer for this shape")

    def extra_repr(self) -> str:
        """Returns the settings in one line."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in SHOWN) + f", sink={self.sink is not None}"


class StaticSBMAttention(SBMAttention):
    r"""SBM attention whose memberships depend only on positions, a control for how much masks gain from the input.

    With learned tables $P^Q, P^K \in \mathbb{R}^{n \times d}$ per head in place of queries and keys,

    $$\hat Q = \sigma(\operatorname{MLP}(P^Q)\, C^\top), \quad \hat K = \sigma(\operatorname{MLP}(P^K)\, C^\top), \quad
    M_{ij} \sim \operatorname{Bernoulli}(\hat Q_i S \hat K_j^\top).$$

    Everything else is as in :class:`~sbmt.layers.SBMAttention`: masks are drawn for each call, example and head, and
    trained through the gate, and attention uses the actual queries, keys and values.

    Args:
        n_positions: Length of the longest sequence of queries or keys. Padded tokens count as positions, too.
        **settings: Further arguments of :class:`~sbmt.layers.SBMAttention`.

    Cost: as for :class:`~sbmt.layers.SBMAttention`, except that memberships are computed once for the whole batch, and
    there are 2 · heads · n_positions · d_head additional parameters. Not in the paper.
    """

    def __init__(self, d_head: int, n_heads: int, n_clusters: int = 128, *, n_positions: int, **settings: Any) -> None:
        super().__init__(d_head, n_heads, n_clusters, **settings)
        check_sizes(n_positions=n_positions)
        self.n_positions = n_positions
        self.query_positions = nn.Parameter(torch.randn(n_heads, n_positions, d_head))
        self.key_positions = nn.Parameter(torch.randn(n_heads, n_positions, d_head))

    def reset_parameters(self) -> None:
        """Reinitialises all parameters, as the constructor does."""
        super().reset_parameters()
        for table in (getattr(self, name, None) for name in ("query_positions", "key_positions")):
            if table is not None:  # the constructor creates the tables last
                nn.init.normal_(table)

    def block_model(
        self, query: Tensor, key: Tensor, query_mask: Tensor | None = None, key_mask: Tensor | None = None
    ) -> BlockModel:
        """Infers the block model of as many positions as there are tokens, and repeats it for every example."""
        self._check_tokens(query, key)
        longest = max(query.shape[2], key.shape[2])
        if longest > self.n_positions:
            raise SbmtError(f"at most {self.n_positions} tokens", longest, "build the layer with a larger n_positions")
        queries, keys = self.query_positions[None, :, : query.shape[2]], self.key_positions[None, :, : key.shape[2]]
        once = self._infer(queries, keys, None, None)
        queries = once.query_membership.expand(len(query), -1, -1, -1)
        return BlockModel(queries, once.block_matrix, once.key_membership, query_mask, key_mask, self.link, self.causal)
