"""Searching a line of the cache at once, by a comparison of whole vectors, which compilers do not find in a loop."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import Flat, repeat

LINE = 64  # bytes of a line


@intrinsic
def first_above(typing_context: Any, array: Any, start: Any, x: Any) -> Any:
    """How many of the numbers from ``array[start]`` on come before the first that is above ``x``; all if none is.

    For use in kernels. It looks at as many as fill a line of the cache: 16 if they have 32 bits, 8 if they have 64. The
    array is contiguous and of the type of ``x``, or the kernel does not compile. It has all of them, which
    ``NUMBA_BOUNDSCHECK=1`` checks.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, x = Flat(context, builder, array, arguments[0]), arguments[2]
        size = array.dtype.bitwidth // 8
        count = LINE // size
        numbers.check(arguments[1], ir.IntType(64)(count))
        line = builder.bitcast(numbers.address(arguments[1]), ir.VectorType(numbers.kind, count).as_pointer())
        compare_integers = builder.icmp_signed if getattr(array.dtype, "signed", False) else builder.icmp_unsigned
        compare = builder.fcmp_ordered if isinstance(array.dtype, types.Float) else compare_integers
        is_above = compare(">", builder.load(line, align=size), repeat(builder, x, count))
        is_above = builder.zext(builder.bitcast(is_above, ir.IntType(count)), ir.IntType(64))
        return builder.cttz(builder.or_(is_above, ir.IntType(64)(1 << count)), ir.IntType(1)(1))

    fits = isinstance(array, types.Array) and (array.dtype, array.layout) == (x, "C")
    return (types.uint64(array, types.uint64, x), generate) if fits else None
