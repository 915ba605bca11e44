"""Short spans of a vector: their largest number, their sum, and one number spread over them, sixteen at a time.

Rows of a mask have few edges. A loop over one is over before the compiler's vectors have begun, so here it goes in
vectors from the start, and those that reach beyond its end are cut off there. Arrays are contiguous, floating-point and
have :data:`SLACK` more numbers than there are in spans, or ``NUMBA_BOUNDSCHECK=1`` complains.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import LANES, Flat, are_alike, pick, repeat

_STEP = 2 * LANES  # most rows end within the first step, so that the processor guesses right
SLACK = _STEP - 1
_int32, _int64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def largest(typing_context: Any, x: Any, start: Any, stop: Any) -> Any:
    """The largest of x[start:stop], −∞ if that is empty. For use in kernels, as all that follows."""

    def larger(builder: Any, x: Any, y: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", x, y), x, y)

    return _reduce(x, float("-inf"), larger)


@intrinsic
def total(typing_context: Any, x: Any, start: Any, stop: Any) -> Any:
    """Σ x[start:stop], in whatever order."""
    return _reduce(x, 0.0, lambda builder, x, y: builder.fadd(x, y))


def _reduce(kind: Any, nothing: float, join: Callable[..., Any]) -> Any:
    """The signature and the code of what joins the numbers of a span, two at a time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (_, start, stop), x = arguments, Flat(context, builder, kind, arguments[0])
        neutral = ir.Constant(x.vector, [x.kind(nothing)] * LANES)
        lanes = ir.Constant(ir.VectorType(_int64, LANES), list(range(LANES)))
        found = [cgutils.alloca_once_value(builder, neutral) for _ in range(_STEP // LANES)]
        with cgutils.for_range_slice(builder, start, stop, _int64(_STEP)) as (i, _):
            for number, so_far in enumerate(found):
                first = builder.add(i, _int64(number * LANES))
                is_within = builder.icmp_signed("<", lanes, repeat(builder, builder.sub(stop, first)))
                numbers = builder.select(is_within, x.load(first), neutral)
                builder.store(join(builder, builder.load(so_far), numbers), so_far)
        first, second = map(builder.load, found)
        joined = join(builder, first, second)
        while joined.type.count > 1:
            half = joined.type.count // 2
            low, high = (pick(builder, joined, joined, list(range(first, first + half))) for first in (0, half))
            joined = join(builder, low, high)
        return builder.extract_element(joined, _int32(0))

    return (kind.dtype(kind, types.int64, types.int64), generate) if are_alike(kind) else None


@intrinsic
def spread(typing_context: Any, number: Any, out: Any, start: Any, stop: Any) -> Any:
    """Sets out[start:stop] to one number, and no more than :data:`SLACK` of those that follow."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (number, _, start, stop), out = arguments, Flat(context, builder, signature.args[1], arguments[1])
        with cgutils.for_range_slice(builder, start, stop, _int64(_STEP)) as (i, _):
            for first in range(0, _STEP, LANES):
                out.store(out.repeat(number), builder.add(i, _int64(first)))
        return context.get_dummy_value()

    return (types.none(out.dtype, out, types.int64, types.int64), generate) if are_alike(out) else None
