"""Searching sixteen numbers at once, by a comparison of whole vectors, which compilers do not find in a loop."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors import LANES, Flat


@intrinsic
def first_above(typing_context: Any, array: Any, start: Any, x: Any) -> Any:
    """How many of the 16 numbers from ``array[start]`` on come before the first that is above ``x``; 16 if none is.

    For use in kernels. The array is contiguous and of the type of ``x``, or the kernel does not compile. It has all 16,
    which ``NUMBA_BOUNDSCHECK=1`` checks.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        is_above = _compare(">", array, context, builder, arguments)
        return builder.cttz(builder.or_(is_above, ir.IntType(64)(1 << LANES)), ir.IntType(1)(1))

    return (types.uint64(array, types.uint64, x), generate) if _is_comparable(array, x) else None


@intrinsic
def count_below(typing_context: Any, array: Any, start: Any, x: Any) -> Any:
    """How many of the 16 numbers from ``array[start]`` on are below ``x``; otherwise as :func:`first_above`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(_compare("<", array, context, builder, arguments))

    return (types.uint64(array, types.uint64, x), generate) if _is_comparable(array, x) else None


def _is_comparable(array: Any, x: Any) -> bool:
    return isinstance(array, types.Array) and (array.dtype, array.layout) == (x, "C")


def _compare(sign: str, kind: Any, context: Any, builder: Any, arguments: Any) -> Any:
    """For which of the numbers the comparison holds, as bits of an int64."""
    array, dtype = Flat(context, builder, kind, arguments[0]), kind.dtype
    numbers, repeated = array.load(arguments[1]), array.repeat(arguments[2])
    compare_integers = builder.icmp_signed if getattr(dtype, "signed", False) else builder.icmp_unsigned
    compare = builder.fcmp_ordered if isinstance(dtype, types.Float) else compare_integers
    return builder.zext(builder.bitcast(compare(sign, numbers, repeated), ir.IntType(LANES)), ir.IntType(64))
