"""How many operations a forward pass takes, and which parts take them.

**Convention.** ``n_flops`` counts matrix products and convolutions, a multiply-add as 2, as
``torch.utils.flop_counter`` does; the paper does not say what it counts. ``n_elementwise`` counts everything else that
computes a number: additions outside products (biases, residuals), multiplications, comparisons, elementary functions
(exp, a GELU) and random draws, one each. So a softmax takes 5 per entry (maximum, difference, exp, sum, quotient) and a
LayerNorm 7. Copies, padding, input checks, sorting and embedding look-ups are not counted.

The forward pass is that of eval mode without gradients, on sequences without padding, with as many keys as queries.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sbmt.cost import baselines, masks
from sbmt.cost.modules import MODULES
from sbmt.cost.parts import ModuleCost
from sbmt.errors import SbmtError, check_sizes
from sbmt.layers import SBMAttention
from sbmt.layers.registry import COSTS
from sbmt.models import DualEncoder

ATTENTIONS = baselines.ATTENTIONS | masks.ATTENTIONS


@dataclass(frozen=True)
class OperationRow:
    """One step of one module.

    Attributes:
        module: Its path in the model, empty for the model itself.
        part: What it computes.
        flops: Formula of ``n_flops``, in the letters of :data:`~sbmt.cost.parts.SYMBOLS`.
        elementwise: Formula of ``n_elementwise``.
        n_flops: Operations in matrix products, a multiply-add as 2.
        n_elementwise: All other operations.
        is_attention: Whether it is part of the attention; the projections around it are not.
    """

    module: str
    part: str
    flops: str
    elementwise: str
    n_flops: int
    n_elementwise: int
    is_attention: bool


@dataclass(frozen=True)
class OperationCount:
    """The operations of a model, row by row, and their sums."""

    rows: tuple[OperationRow, ...]

    @property
    def n_flops(self) -> int:
        """Of all rows."""
        return sum(row.n_flops for row in self.rows)

    @property
    def n_elementwise(self) -> int:
        """Of all rows."""
        return sum(row.n_elementwise for row in self.rows)

    def attention(self) -> "OperationCount":
        """The attentions alone, without projections, MLPs and norms."""
        return OperationCount(tuple(row for row in self.rows if row.is_attention))

    def within(self, module: str) -> "OperationCount":
        """The module at a path, with those inside it."""
        inside = (row for row in self.rows if f"{row.module}.".startswith(f"{module}." if module else ""))
        return OperationCount(tuple(inside))


def _cost_function(module: nn.Module) -> Callable[[Any, int], ModuleCost] | None:
    """What counts an attention, of the library or registered; None for any other module."""
    return ATTENTIONS.get(type(module)) or COSTS.get(type(module))


def uncounted(model: nn.Module) -> dict[str, str]:
    """Attentions in a model whose cost is not known, by path: they must not come out as free."""
    return {
        path: type(module).__name__
        for path, module in model.named_modules()
        if path.rpartition(".")[2] == "attention" and type(module) not in MODULES and _cost_function(module) is None
    }


def count_operations(
    model: nn.Module, n: int, *, density: float | Sequence[float] | None = None, batch: int = 1
) -> OperationCount:
    """The operations of one forward pass, part by part.

    Args:
        model: A model, block or attention of the library, or an attention that was registered with its cost.
        n: Tokens per sequence.
        density: Share of the pairs that are edges of the masks, in [0, 1]: one number, or one per attention in the
            order of the layers. Required if a mask is drawn from an inferred block model; by default a random mask has
            a density of its own, including its window, and clusters are of one size.
        batch: Sequences, or pairs of documents for a :class:`~sbmt.models.DualEncoder`.

    Raises:
        SbmtError: On an unknown model, an attention that is not counted, or a density that is missing or out of range.

    Example:
        >>> from sbmt import build_attention
        >>> count = count_operations(build_attention("full", d_head=8, n_heads=2), 100)
        >>> count.n_flops == 4 * 2 * 100**2 * 8
        True
        >>> [row.flops for row in count.rows]
        ['2·b·h·n²·d', '0', '2·b·h·n²·d']
    """
    check_sizes(n=n, batch=batch)
    if type(model) not in MODULES and _cost_function(model) is None:
        names = ", ".join(kind.__name__ for kind in (*MODULES, *ATTENTIONS, *COSTS))
        raise SbmtError(f"one of {names}", type(model).__name__, "count its parts one by one")
    for path, name in uncounted(model).items():
        raise SbmtError(f"an attention whose cost is known at {path}", f"{name}: not counted", "register it with cost=")
    densities = _per_attention(density, sum(_cost_function(module) is not None for module in model.modules()))
    return OperationCount(tuple(_rows(model, n, densities, batch)))


def _rows(model: nn.Module, n: int, densities: Iterator[float | None], batch: int) -> Iterator[OperationRow]:
    documents = 2 if isinstance(model, DualEncoder) else 1
    for path, module in model.named_modules():
        if type(module) in MODULES:
            cost, is_attention = MODULES[type(module)](module), False
        elif (count := _cost_function(module)) is not None:
            cost, is_attention = count(module, n), True
        else:
            continue  # inside a module that counts for it
        sequences = batch if isinstance(module, DualEncoder) else batch * documents
        sizes = {"b": sequences, "n": n, **cost.sizes}
        if is_attention:
            sizes |= _edges(module, sizes, next(densities))
        for part in cost.parts:
            numbers = part.flops.at(sizes), part.elementwise.at(sizes)
            yield OperationRow(path, part.name, part.flops.text, part.elementwise.text, *numbers, is_attention)


def _edges(module: nn.Module, sizes: Mapping[str, int], density: float | None) -> dict[str, int]:
    if density is None and (own := masks.DENSITIES.get(type(module))) is not None:
        density = own(module, sizes["n"])
    if density is None:
        if isinstance(module, SBMAttention):
            raise SbmtError("the density of the masks", "none", "give density=, as measured on the inputs of interest")
        return {}
    if not 0 <= density <= 1:
        raise SbmtError("density in [0, 1]", density, "give the share of the pairs that are edges")
    per_head = density * sizes["b"] * sizes["n"] ** 2
    return {"m": round(per_head * sizes.get("h", 1)), "e": round(per_head)}


def _per_attention(density: float | Sequence[float] | None, n_attentions: int) -> Iterator[float | None]:
    if density is None or isinstance(density, (int, float)):
        return iter([density] * n_attentions)
    if len(density) != n_attentions:
        raise SbmtError(f"{n_attentions} densities, one per attention", len(density), "or give one number for all")
    return iter(density)
