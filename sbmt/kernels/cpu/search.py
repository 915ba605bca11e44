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
        numbers, x = Flat(context, builder, array, arguments[0]), arguments[2]
        compare_integers = builder.icmp_signed if getattr(array.dtype, "signed", False) else builder.icmp_unsigned
        compare = builder.fcmp_ordered if isinstance(array.dtype, types.Float) else compare_integers
        is_above = compare(">", numbers.load(arguments[1]), numbers.repeat(x))
        is_above = builder.zext(builder.bitcast(is_above, ir.IntType(LANES)), ir.IntType(64))
        return builder.cttz(builder.or_(is_above, ir.IntType(64)(1 << LANES)), ir.IntType(1)(1))

    fits = isinstance(array, types.Array) and (array.dtype, array.layout) == (x, "C")
    return (types.uint64(array, types.uint64, x), generate) if fits else None
