"""Searching sixteen numbers at once, by a comparison of whole vectors, which compilers do not find in a loop."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors import LANES, Flat

RANKED = 2 * LANES  # numbers that are ranked together


@intrinsic
def first_above(typing_context: Any, array: Any, start: Any, x: Any) -> Any:
    """How many of the 16 numbers from ``array[start]`` on come before the first that is above ``x``; 16 if none is.

    For use in kernels. The array is contiguous and of the type of ``x``, or the kernel does not compile. It has all 16,
    which ``NUMBA_BOUNDSCHECK=1`` checks.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, x = Flat(context, builder, array, arguments[0]), arguments[2]
        compare_integers = builder.icmp_signed if getattr(array.dtype, "signed", False) else builder.icmp_unsigned
        compare = builder.fcmp_ordered if isinstance(array.dtype, types.Float) else compare_integers
        is_above = compare(">", numbers.load(arguments[1]), numbers.repeat(x))
        is_above = builder.zext(builder.bitcast(is_above, ir.IntType(LANES)), ir.IntType(64))
        return builder.cttz(builder.or_(is_above, ir.IntType(64)(1 << LANES)), ir.IntType(1)(1))

    fits = isinstance(array, types.Array) and (array.dtype, array.layout) == (x, "C")
    return (types.uint64(array, types.uint64, x), generate) if fits else None


@intrinsic
def rank(typing_context: Any, array: Any, start: Any, count: Any, first: Any, out: Any) -> Any:
    """Sets out[j] to how many of array[start : start + count] are below array[start + j], first ≤ j < first + RANKED.

    For use in kernels. Both arrays are contiguous and int32, and reach far enough.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, start, count, first, _ = arguments
        array, out = (Flat(context, builder, signature.args[i], arguments[i]) for i in (0, 4))
        places = [builder.add(first, ir.IntType(64)(i)) for i in range(0, RANKED, LANES)]
        numbers = [array.load(builder.add(start, place)) for place in places]
        ranks = [cgutils.alloca_once_value(builder, array.repeat(array.kind(0))) for _ in places]
        with cgutils.for_range(builder, count) as loop:
            other = array.repeat(array.number(builder.add(start, loop.index)))
            for here, found in zip(numbers, ranks, strict=True):
                is_below = builder.sext(builder.icmp_signed("<", other, here), array.vector)  # -1 where it is
                builder.store(builder.sub(builder.load(found), is_below), found)
        for found, place in zip(ranks, places, strict=True):
            out.store(builder.load(found), place)
        return context.get_dummy_value()

    fits = all((x.dtype, x.layout) == (types.int32, "C") for x in (array, out))
    return (types.none(array, types.int64, types.int64, types.int64, out), generate) if fits else None
