"""The attention of SBM-Transformer, whose mask the network draws for itself.

This file infers the block model from queries and keys; :mod:`sbmt.layers.functional` draws the mask and attends.
"""

from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.dispatch import check_backend
from sbmt.attention.inputs import GateRule, check_attention_settings
from sbmt.block_model.crossed import MOST_PARTS, CrossedModel, part_memberships
from sbmt.block_model.exploration import ExtraKeys, check_exploration
from sbmt.block_model.fit import Learning, check_learning
from sbmt.block_model.link import Link, find_link
from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_choice, check_sizes, check_untransformed, choose
from sbmt.graph.padding import check_mask, zero_padding
from sbmt.layers.functional import sbm_attention
from sbmt.precision import full_precision
from sbmt.samplers import SAMPLERS
from sbmt.types import AttentionOutput

Membership = Literal["sigmoid", "softmax", "crossed"]
SHARPNESS = {"softmax": 10.0, "crossed": 5.0}
"""Of memberships at the start: how many times as far apart as usual the outputs of the MLP, or linear map, lie."""

LEAST_START = 1e-6
"""How far below 0 the logarithm of a start is at least, since 0 says that there has been none."""


class SBMAttention(nn.Module):
    r"""The attention of SBM-Transformer: infers a block model per head and input, samples a mask, attends along it.

    With clusters $C \in \mathbb{R}^{k \times d}$ per head and one MLP for queries, keys and all heads,

    $$S = \operatorname{softmax}(C C^\top), \quad \hat Q = \sigma(\operatorname{MLP}(Q)\, C^\top), \quad
    \hat K = \sigma(\operatorname{MLP}(K)\, C^\top), \quad
    M_{ij} \sim \operatorname{Bernoulli}(\hat Q_i S \hat K_j^\top),$$

    where the softmax runs over all k² entries. Under ``link="poisson"`` the softmax loses its denominator,
    $S = e^{C C^\top} / k^2$, and $M_{ij} \sim \operatorname{Bernoulli}(1 - e^{-\hat Q_i S \hat K_j^\top})$.
    ``membership="softmax"`` replaces σ by the softmax over clusters, so that a token divides itself among them instead
    of belonging to half of all; then $S = e^{C C^\top} / 4$, and clusters and MLP start wider, so that a token starts
    with a few clusters of its own. ``n_groups`` divides the clusters into groups with a softmax each, which are several
    partitions of the tokens at once; clusters of different groups never meet.

    ``membership="crossed"`` makes the k/g clusters of a group out of two partitions into $s = \sqrt{k/g}$ parts each,
    with a softmax over the parts: a cluster is a pair of parts, one of either, and a token belongs to it as much as to
    the one times the other. S is the product of the blocks $e^{C C^\top} / 2$ of the two. Logits, of which there are
    2 g s instead of k, and what follows from them cost accordingly less
    (:class:`~sbmt.block_model.crossed.CrossedModel`). A linear map takes the place of the MLP.

    With ``learning="likelihood"`` the block model is fitted to the attention that its edges are given
    (:func:`~sbmt.block_model.fit.fit_loss`), which the loss of the task must contain: add the output's
    ``auxiliary_loss``. S is then multiplied by a learned rate γ per head, and the block model reads detached queries
    and keys, so that no gradient passes between it and the task. Training starts with about c edges per query: γ is a
    learned factor times min(1, c/n), where n is the number of keys at the layer's first step of training.

    With ``shared_graph`` all heads attend along one graph: one block model reads the tokens of all heads side by side,
    h d numbers each, and its clusters number k in all. Drawing and fitting then cost a layer what they cost a head;
    heads still weigh the edges by themselves, and a fit by likelihood explains the mean of their attention.

    Two attributes of such a layer may be set between steps. While ``is_dense`` is True, training attends all pairs of
    real tokens without reweighting, and fits the block model to them: a warm-up. ``edges_per_query`` is c.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_clusters: k, the number of clusters per head.
        sampler: ``"exact"``, ``"bernoulli"``, ``"fastrg"``, or the name of one that was registered before.
        gate_rule: ``"score"`` (equation 9) or ``"weight"``.
        exploration: While training: δ in [0, 1), which adds δ · n² expected edges, or
            :class:`~sbmt.block_model.exploration.ExtraKeys`, which adds edges in proportion to n.
        link: ``"bilinear"`` (the paper's), ``"poisson"``, or a :class:`~sbmt.block_model.link.Link` of yours.
        membership: ``"sigmoid"`` (the paper's), or ``"softmax"`` or ``"crossed"``, which need the Poisson link: a
            mean of entries of a bilinear block matrix, which sum to 1, starts near 1/k².
        is_diagonal: Whether a cluster meets only itself: S keeps its diagonal alone, which still sums to 1 under the
            bilinear link. Masks are then unions of blocks, as those of hashing are.
        self_loops: Whether every token also attends itself.
        window: Whether every token also attends those at most ``window / 2`` places away.
        dropout: On the attention weights while training, in [0, 1).
        backend: What attends along the edges; ``"auto"`` chooses.
        learning: ``"straight_through"`` (the paper's) or ``"likelihood"``.
        edges_per_query: c > 0, needed by likelihood and only there: how many edges a query's attention is divided
            among. It bounds the number of edges that are drawn, on average over queries.
        n_groups: Groups of clusters, which divide ``n_clusters``; more than one needs softmax memberships. Crossed
            ones take the nearest number of clusters that is ``n_groups`` times a square.
        n_active: With crossed memberships: in how many parts of each partition a token is at most, those of its
            largest logits.
        reweight: Whether a drawn edge weighs 1/p times as much, so that the output estimates that of full attention.
        sink: Whether each head learns a logit that takes part in the softmax and has no value, so that a token may
            attend to nothing.
        shared_graph: Whether the heads share one block model and one mask.

    Shapes:
        query ``(batch, heads, n_queries, d_head)``, key and value ``(batch, heads, n_keys, d_head)`` → values
        ``(batch, heads, n_queries, d_head)``.

    In eval mode masks are still sampled, as in the paper, without exploration and dropout. At the start every edge
    probability is close to ¼; with softmax memberships they differ, and their mean lies above that.

    Raises:
        SbmtError: On an argument that is unknown, out of range, or at odds with another.

    Cost: O(n k² + edges · (k + d)) for each head; with crossed memberships O(n √k d + edges · d).

    Paper: section 4.1, equations 5 to 9. Deviation: δ is off at test time.

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
        link: str | Link = "bilinear",
        membership: Membership = "sigmoid",
        is_diagonal: bool = False,
        self_loops: bool = False,
        window: int | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
        learning: Learning = "straight_through",
        edges_per_query: float | None = None,
        n_groups: int = 1,
        n_active: int = 2,
        reweight: bool = False,
        sink: bool = False,
        shared_graph: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_clusters=n_clusters, n_groups=n_groups, n_active=n_active)
        choose("sampler", sampler, SAMPLERS)
        check_attention_settings(gate_rule, window, dropout)
        self.link = find_link(link)
        check_choice("membership", membership, Membership)
        if membership != "sigmoid" and self.link.largest_entry <= 1:
            expected = f"{membership} memberships with link='poisson'"
            raise SbmtError(expected, f"link={self.link.name!r}", "name that link too")
        n_parts = max(1, round((n_clusters / n_groups) ** 0.5))  # of each partition, if memberships are crossed
        if membership == "crossed":
            n_clusters = n_groups * n_parts**2
            if 2 * n_groups * n_parts > MOST_PARTS:
                expected = f"at most {MOST_PARTS} parts of all partitions with crossed memberships"
                raise SbmtError(expected, 2 * n_groups * n_parts, "take fewer clusters")
        if n_clusters % n_groups or (n_groups > 1 and membership == "sigmoid"):
            got = f"{n_groups} groups of {n_clusters} clusters with {membership} memberships"
            do = "let n_groups divide n_clusters, and take membership='softmax'"
            raise SbmtError("groups of equal size, each with a softmax", got, do)
        check_learning(learning, edges_per_query)
        if not isinstance(exploration, ExtraKeys):
            check_exploration(exploration)
        check_backend(backend)
        self.sampler, self.gate_rule, self.membership = sampler, gate_rule, membership
        self.exploration, self.dropout, self.backend = exploration, dropout, backend
        self.is_diagonal, self.n_groups, self.n_clusters = is_diagonal, n_groups, n_clusters
        self.n_heads, self.d_head, self.shared_graph = n_heads, d_head, shared_graph
        self.n_active = min(n_active, n_parts)
        self.learning, self.edges_per_query, self.reweight = learning, edges_per_query, reweight
        self.window = 0 if self_loops and window is None else window
        is_crossed = membership == "crossed"
        n_graphs, width = (1, n_heads * d_head) if shared_graph else (n_heads, d_head)
        hidden = () if is_crossed else (nn.Linear(width, d_head), nn.ReLU())
        self.node_mlp = nn.Sequential(*hidden, nn.Linear(width if is_crossed else d_head, d_head))
        n_rows = 2 * n_groups * n_parts if is_crossed else n_clusters
        self.clusters = nn.Parameter(torch.empty(n_graphs, n_rows, d_head))
        if membership == "sigmoid":
            nn.init.kaiming_normal_(self.clusters)
        else:  # |C_a|² ≈ 2, or 1 for each part of a pair: like clusters meet e² times as often
            nn.init.normal_(self.clusters, std=((1 if is_crossed else 2) / d_head) ** 0.5)
            with torch.no_grad():
                for parameter in self.node_mlp[-1].parameters():
                    parameter.mul_(SHARPNESS[membership])
        self.log_rate = None
        if learning == "likelihood":
            self.log_rate = nn.Parameter(torch.zeros(n_graphs))
            self.register_buffer("log_start", torch.tensor(0.0))  # 0 before any training
        self.sink = nn.Parameter(torch.zeros(n_heads)) if sink else None
        self.is_dense = False

    def block_model(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
    ) -> BlockModel:
        """The block model inferred from these queries and keys; float32 under autocast.

        Paper: equations 5, 6 and 7.
        """
        self._check_tokens(query, key)
        if self.learning == "likelihood":
            query, key = query.detach(), key.detach()
        return self._infer(query, key, query_mask, key_mask)

    def _infer(self, query: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None) -> BlockModel:
        """The block model of these tokens, with gradients to them."""
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        query, key = zero_padding(query, query_mask), zero_padding(key, key_mask)
        if self.shared_graph:
            query, key = (x.transpose(1, 2).flatten(2)[:, None] for x in (query, key))  # heads side by side
        with full_precision(query):
            clusters = self.clusters.to(torch.promote_types(self.clusters.dtype, torch.float32))
            is_crossed = self.membership == "crossed"
            n_sets = 2 * self.n_groups if is_crossed else self.n_groups  # clusters of different ones never meet
            grouped = clusters.reshape(-1, clusters.shape[1] // n_sets, self.d_head)
            scores = torch.bmm(grouped, grouped.mT).unflatten(0, (-1, n_sets))
            if self.log_rate is not None:
                log_rate = self._log_rate(key.shape[2]).view(-1, 1, 1, 1)
                scores = torch.add(scores, log_rate, alpha=0.5 if is_crossed else 1)
            if self.is_diagonal:
                is_same = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
                scores = scores.masked_fill(~is_same, -torch.inf)
            if is_crossed:
                (node_map,) = self.node_mlp
                assert isinstance(node_map, nn.Linear)
                queries, keys = part_memberships(query, key, node_map, clusters, scores.shape[1], self.n_active)
                return CrossedModel(queries, self.link.part_blocks(scores), keys, query_mask, key_mask, self.link)
            block_matrix = self.link.block_matrix(scores, sums_to_one=self.membership == "softmax")
            nodes = (self.node_mlp(x.to(self.clusters.dtype)).to(clusters.dtype) for x in (query, key))
            query_membership, key_membership = (self._memberships(node @ clusters.mT) for node in nodes)
            return BlockModel(query_membership, block_matrix, key_membership, query_mask, key_mask, self.link)

    def block_parameters(self) -> list[nn.Parameter]:
        """What the block model is made of: all parameters but the sink, which belongs to the attention."""
        return [parameter for parameter in self.parameters() if parameter is not self.sink]

    def _log_rate(self, n_keys: int) -> Float[Tensor, " heads"]:
        """The logarithm of γ: what is learned, and a start that the first step of training decides.

        A start of 0 is still open, so that a mean of weights over steps may begin with it.
        """
        assert self.log_rate is not None and self.edges_per_query is not None  # likelihood has both
        log_start = self.log_start.item()
        if log_start == 0:
            log_start = min(-LEAST_START, log(self.edges_per_query / n_keys))
            if self.training and torch.is_grad_enabled():
                self.log_start.fill_(log_start)
        return self.log_rate + log_start

    def _memberships(self, logits: Float[Tensor, "batch heads n k"]) -> Float[Tensor, "batch heads n k"]:
        if self.membership == "sigmoid":
            return logits.sigmoid_()
        return logits.unflatten(-1, (self.n_groups, -1)).softmax(-1).flatten(-2)

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
    ) -> AttentionOutput:
        """Samples a mask and attends along it.

        Args:
            query: ``(batch, heads, n_queries, d_head)``.
            key: ``(batch, heads, n_keys, d_head)``.
            value: ``(batch, heads, n_keys, d_value)``.
            query_mask: bool ``(batch, n_queries)``, True = real token.
            key_mask: bool ``(batch, n_keys)``, True = real token.
            generator: Source of one int64 for the mask, and one more for dropout.
            return_edges: Whether to return the edges.

        Raises:
            SbmtError: On shapes, head counts, types or masks that do not fit.
        """
        block_model = self.block_model(query, key, query_mask, key_mask)
        exploration: float = 0.0
        if self.training:
            given = self.exploration
            exploration = given.probability(key.shape[2]) if isinstance(given, ExtraKeys) else given
        return sbm_attention(
            query,
            key,
            value,
            block_model,
            sampler=self.sampler,
            exploration=exploration,
            gate_rule=self.gate_rule,
            window=self.window,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            generator=generator,
            return_edges=return_edges,
            learning=self.learning,
            edges_per_query=self.edges_per_query,
            reweight=self.reweight,
            sink=self.sink,
            is_dense=self.is_dense and self.training,
        )

    def _check_tokens(self, query: Tensor, key: Tensor) -> None:
        n_heads, d_head = self.n_heads, self.d_head
        for name, tokens in (("query", query), ("key", key)):
            if not isinstance(tokens, Tensor) or not tokens.is_floating_point():
                got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
                raise SbmtError(f"{name} as a floating-point tensor", got, "embed integer features first")
            check_untransformed(tokens)
            if tokens.dim() != 4 or 0 in tokens.shape or tokens.shape[1::2] != (n_heads, d_head):
                expected = f"{name} of shape (batch, heads, n, d), none of them 0, {n_heads} heads of width {d_head}"
                raise SbmtError(expected, tuple(tokens.shape), "build the layer for this shape")

    def extra_repr(self) -> str:
        """The settings in one line."""
        return (
            f"d_head={self.d_head}, n_heads={self.n_heads}, n_clusters={self.n_clusters}, sampler={self.sampler!r}, "
            f"gate_rule={self.gate_rule!r}, exploration={self.exploration}, link={self.link.name!r}, "
            f"membership={self.membership!r}, is_diagonal={self.is_diagonal}, window={self.window}, "
            f"learning={self.learning!r}, edges_per_query={self.edges_per_query}, n_groups={self.n_groups}, "
            f"n_active={self.n_active}, reweight={self.reweight}, sink={self.sink is not None}, "
            f"shared_graph={self.shared_graph}"
        )
