"""The sampled mask as a list of edges in compressed sparse row (CSR) format.

Samplers return an :class:`EdgeList`, and attention follows its edges. Start reading the library here.
"""

import inspect
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes, describe, is_integer
from sbmt.graph.masks import TokenPairs, check_as_many_keys, check_causal, check_mask, check_shape, share_of_pairs
from sbmt.kernels.operators import can_run_on, near_edges

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, eq=False)
class EdgeList(TokenPairs):
    """Bipartite query-key graphs, one per example and head.

    Rows are queries, flattened over (example, head, query); row ``r`` contains ``keys[row_ptr[r]:row_ptr[r + 1]]``.

    Attributes:
        row_ptr: int64 ``(batch·heads·n_queries + 1,)``, which starts at 0 and never decreases.
        keys: int64 ``(n_edges,)``, the index of each edge's key within its head, strictly ascending in each row.
        shape: ``(batch, heads, n_queries, n_keys)``.
        query_mask: bool ``(batch, n_queries)``, True = real token; None = all real. A batch of 1 broadcasts.
        key_mask: bool ``(batch, n_keys)``, the same for keys.
        causal: If True, no query may have an edge to a later key. If there are fewer queries than keys, the queries are
            the last tokens: query i is at position i + n_keys - n_queries.
        multiplicity: int64 ``(n_edges,)``, how often each edge was drawn; None unless the sampler records it.
        check: Whether to check every edge as well: keys must be in order and in range, and no edge may touch padding
            or, if the mask is causal, lead to a later key.

    Memory: 8 bytes per edge and per row. Raises SbmtError if the attributes are inconsistent.
    """

    row_ptr: Int[Tensor, " rows_plus_1"]
    keys: Int[Tensor, " n_edges"]
    shape: tuple[int, int, int, int]
    query_mask: Bool[Tensor, "_ n_queries"] | None = None
    key_mask: Bool[Tensor, "_ n_keys"] | None = None
    causal: bool = False
    multiplicity: Int[Tensor, " n_edges"] | None = None
    check: bool = False

    def __post_init__(self) -> None:
        check_shape(self.shape)
        check_causal(self.shape, self.causal)
        row_ptr, keys, many = self.row_ptr, self.keys, self.multiplicity
        for name, part in (("row_ptr", row_ptr), ("keys", keys)):
            if not isinstance(part, Tensor) or part.dtype != torch.int64:
                raise SbmtError(f"{name} to be an int64 tensor", describe(part), "convert it with .long()")
        if row_ptr.device != keys.device:
            raise SbmtError(f"row_ptr on {keys.device}, like the keys", row_ptr.device, "move one of them with .to(…)")
        if row_ptr.shape != (prod(self.shape[:3]) + 1,):
            expected = f"row_ptr of length {prod(self.shape[:3]) + 1}"
            raise SbmtError(expected, tuple(row_ptr.shape), "use one entry per row and one at the end")
        if keys.dim() != 1 or int(row_ptr[-1]) != keys.numel():
            got = f"row_ptr[-1] = {int(row_ptr[-1])} and keys of shape {tuple(keys.shape)}"
            raise SbmtError("row_ptr to end with the number of keys", got, "check how the rows were counted")
        if many is not None and (not isinstance(many, Tensor) or many.shape != keys.shape or many.is_floating_point()):
            raise SbmtError("multiplicity to have one integer per edge", describe(many), "give it the shape of keys")
        for name, n in (("query_mask", self.shape[2]), ("key_mask", self.shape[3])):
            object.__setattr__(self, name, check_mask(name, getattr(self, name), self.shape[0], n, keys.device))
        if self.check:
            self._check_every_edge()

    def _check_every_edge(self) -> None:
        """Checks the order and range of keys, padding and causality, at a cost that grows with the number of edges."""
        if int(self.row_ptr[0]) != 0 or bool((self.degrees() < 0).any()):
            got = f"a start of {int(self.row_ptr[0])} and a smallest step of {int(self.degrees().min())}"
            raise SbmtError("row_ptr to start at 0 and never decrease", got, "build it with a cumulative sum")
        if self.n_edges == 0:
            return
        _, heads, n_queries, n_keys = self.shape
        rows = self.rows()
        if int(self.keys.min()) < 0 or int(self.keys.max()) >= n_keys:
            got = f"keys from {int(self.keys.min())} to {int(self.keys.max())}"
            raise SbmtError(f"keys in [0, {n_keys})", got, "number the keys of each head from 0")
        if bool((is_unsorted := (self.keys.diff() <= 0) & (rows.diff() == 0)).any()):
            got = f"repeated or unsorted keys in row {int(rows[1:][is_unsorted][0])}"
            raise SbmtError("strictly ascending keys in every row", got, "sort the row and drop repeated keys")
        example, query = rows // (n_queries * heads), rows % n_queries
        for name, mask, token in (("query", self.query_mask, query), ("key", self.key_mask, self.keys)):
            if mask is not None and not bool(mask[example, token].all()):
                raise SbmtError(f"edges only where {name}_mask is True", "an edge at a padded token", "omit that edge")
        if self.causal and bool((self.keys > query + self.offset).any()):
            raise SbmtError("only edges to keys no later than the query", "an edge to a later key", "omit that edge")

    @staticmethod
    def from_cells(
        cells: Int[Tensor, " n_edges"],
        shape: tuple[int, int, int, int],
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        causal: bool = False,
        multiplicity: Tensor | None = None,
    ) -> "EdgeList":
        """Creates an edge list from int64 cell numbers, which must be distinct and ascending (see :meth:`cells`)."""
        check_shape(shape)
        if not isinstance(cells, Tensor) or cells.dtype != torch.int64 or cells.dim() != 1:
            raise SbmtError("cells to be an int64 tensor (n_edges,)", describe(cells), "use the format of cells()")
        if cells.numel() and int(cells[0]) < 0:
            raise SbmtError("cells ≥ 0", int(cells[0]), "number cells as EdgeList.cells() does")
        row_ptr = torch.searchsorted(cells, shape[3] * torch.arange(prod(shape[:3]) + 1, device=cells.device))
        return EdgeList(row_ptr, cells % shape[3], shape, query_mask, key_mask, causal, multiplicity)

    @staticmethod
    def from_dense(
        mask: Bool[Tensor, "batch heads n_queries n_keys"],
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        causal: bool = False,
    ) -> "EdgeList":
        """Creates an edge list from a dense boolean mask, with edges where it is True.

        Raises SbmtError unless the mask is a 4-D bool tensor that is False at padding and, if causal, at later keys.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 4:
            expected = "a bool mask (batch, heads, n_queries, n_keys)"
            raise SbmtError(expected, describe(mask), "add missing dimensions, and convert it with .bool()")
        batch, heads, n_queries, n_keys = mask.shape
        rest = (batch, heads, n_queries, n_keys), query_mask, key_mask, causal
        return replace(EdgeList.from_cells(mask.flatten().nonzero().squeeze(1), *rest), check=True)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the tensors."""
        return self.keys.device

    @property
    def n_edges(self) -> int:
        """The number of edges in all examples and heads."""
        return self.keys.numel()

    @property
    def cell_count(self) -> int:
        """The number of cells in the dense mask, including padding."""
        return prod(self.shape)

    def degrees(self) -> Int[Tensor, " rows"]:
        """Returns the number of edges in each row."""
        return self.row_ptr.diff()

    def rows(self) -> Int[Tensor, " n_edges"]:
        """Returns the flattened row of each edge."""
        row = torch.arange(self.row_ptr.numel() - 1, device=self.device)
        return row.repeat_interleave(self.degrees(), output_size=self.n_edges)

    def key_rows(self) -> Int[Tensor, " n_edges"]:
        """Returns the position of each edge's key among all keys, flattened over (example, head, key)."""
        _, _, n_queries, n_keys = self.shape
        return self.keys + self.rows() // n_queries * n_keys

    def cells(self) -> Int[Tensor, " n_edges"]:
        """Returns the position of each edge in the flattened dense mask, strictly ascending."""
        return self.rows() * self.shape[3] + self.keys

    def density(self) -> Float[Tensor, "batch heads"]:
        """Returns the share of real pairs that are edges, ``(batch, heads)``; 0 if there are no real pairs."""
        return share_of_pairs(self.row_ptr[:: self.shape[2]].diff().view(self.shape[:2]), self.shape, *self.masks)

    def mean_over_pairs(self, per_edge: Float[Tensor, " n_edges"]) -> Float[Tensor, "batch heads"]:
        """Sums ``per_edge`` and divides by the number of real pairs, ``(batch, heads)``; 0 if there are none."""
        totals = torch.segment_reduce(per_edge, "sum", offsets=self.row_ptr[:: self.shape[2]])
        return share_of_pairs(totals.view(self.shape[:2]), self.shape, *self.masks)

    def to_dense(self) -> Bool[Tensor, "batch heads n_queries n_keys"]:
        """Returns the mask as a dense boolean tensor, in O(n²) memory."""
        mask = torch.zeros(self.cell_count, dtype=torch.bool, device=self.device)
        mask[self.cells()] = True
        return mask.view(self.shape)

    def to_edge_index(self) -> Int[Tensor, "2 n_edges"]:
        """Returns the edges of all graphs as a single ``edge_index`` for PyTorch Geometric, int64.

        Row 0 contains the sources (keys, numbered over example, head and key), row 1 the targets (queries, numbered
        likewise).
        """
        return torch.stack([self.key_rows(), self.rows()])

    def to_scipy(self, example: int = 0, head: int = 0) -> "csr_array":
        """Returns one graph as a boolean ``scipy.sparse.csr_array`` of shape ``(n_queries, n_keys)``."""
        from scipy.sparse import csr_array

        batch, heads, n_queries, n_keys = self.shape
        if not all(isinstance(i, int) and 0 <= i < n for i, n in ((example, batch), (head, heads))):
            raise SbmtError(f"example < {batch} and head < {heads}", (example, head), "choose an existing graph")
        first = (example * heads + head) * n_queries
        row_ptr = self.row_ptr[first : first + n_queries + 1].cpu()
        keys = self.keys[int(row_ptr[0]) : int(row_ptr[-1])].cpu().numpy()
        ones = torch.ones(keys.size, dtype=torch.bool).numpy()
        return csr_array((ones, keys, (row_ptr - row_ptr[0]).numpy()), shape=(n_queries, n_keys))

    def union(self, other: "EdgeList") -> "EdgeList":
        """Merges two lists with the same shape and masks and drops multiplicities, in O(n + edges · log(edges))."""
        if not isinstance(other, EdgeList):
            raise SbmtError("an EdgeList", type(other).__name__, "convert a mask with EdgeList.from_dense")
        for name in ("shape", "query_mask", "key_mask", "causal"):
            mine, theirs = getattr(self, name), getattr(other, name)
            is_same = torch.equal(mine, theirs) if isinstance(mine, Tensor) and theirs is not None else mine == theirs
            if not is_same:
                raise SbmtError(f"the same {name} in both lists", "different values", "merge masks of the same tokens")
        return EdgeList.from_cells(torch.cat([self.cells(), other.cells()]).unique(), self.shape, *self.masks)

    def to_block_mask(self, block_size: int = 128) -> "BlockMask":
        """Returns a block mask for FlexAttention, which skips empty blocks (rare in sampled masks). O(n²) memory."""
        from torch.nn.attention.flex_attention import create_block_mask

        check_sizes(block_size=block_size)
        mask = self.to_dense()

        def is_edge(example: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return mask[example, head, query, key]

        unchecked = inspect.unwrap(is_edge)  # the wrapper that checks shapes in tests cannot be traced
        return create_block_mask(unchecked, *self.shape, device=str(mask.device), BLOCK_SIZE=block_size)

    def with_self_loops(self) -> "EdgeList":
        """Adds the edge (i, i) for every real token; equivalent to a window of 0."""
        return self.with_window(0)

    def with_window(self, window: int) -> "EdgeList":
        """Adds all real pairs with |i − j| ≤ ``window`` / 2, in O(edges + n · window) per graph.

        Raises SbmtError if the numbers of queries and keys differ, unless the mask is causal.
        """
        check_window(window)
        check_as_many_keys(self.shape, self.causal)
        batch, heads, n_queries, n_keys = self.shape
        reach, device = min(window // 2, n_keys - 1), self.keys.device
        query = torch.arange(n_queries, device=device)[:, None]
        key = query + self.offset + torch.arange(-reach, 1 if self.causal else reach + 1, device=device)
        is_edge = ((key >= 0) & (key < n_keys)).expand(batch, heads, n_queries, -1)
        for mask, token in ((self.query_mask, query.expand_as(key)), (self.key_mask, key.clamp(0, n_keys - 1))):
            if mask is not None:
                is_edge = is_edge & mask[:, token][:, None]
        rows = torch.arange(batch * heads * n_queries, device=device).view(batch, heads, n_queries, 1)
        both = torch.cat([self.cells(), (rows * n_keys + key)[is_edge]])
        return EdgeList.from_cells(both.unique(), self.shape, *self.masks)

    def is_near(self, window: int | None) -> Bool[Tensor, " n_edges"]:
        """Returns which edges join tokens at most ``window`` / 2 positions apart; all False if ``window`` is None."""
        n_queries, offset, reach = self.shape[2], self.offset if self.causal else 0, reach_of(window)
        if can_run_on(self.device):
            return near_edges(self.row_ptr, self.keys, n_queries, offset, reach)
        return (self.rows() % n_queries + offset - self.keys).abs() <= reach

    def to(self, device: torch.device | str) -> "EdgeList":
        """Returns a copy on ``device``."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: dict[str, Any] = {name: x.to(device) for name, x in parts.items() if isinstance(x, Tensor)}
        return replace(self, **moved, check=False)

    def __repr__(self) -> str:
        return f"EdgeList(shape={self.shape}, n_edges={self.n_edges}{', causal' * self.causal})"


def check_window(window: int) -> None:
    """Raises SbmtError unless the window is an integer ≥ 0."""
    if not is_integer(window) or window < 0:
        raise SbmtError("an integer window ≥ 0", describe(window), "pass 2, for example, for one token on either side")


def reach_of(window: int | None) -> int:
    """Returns how many tokens a window includes on either side, or -1 if there is no window."""
    return -1 if window is None else window // 2
