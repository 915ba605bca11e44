"""Asking for numbers before they are needed, so that waiting for memory overlaps with work."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Asks for both ends of a row of a matrix, or for a number of a vector, and does not wait.

    For use in kernels. The array is contiguous, or the kernel does not compile. A row that does not exist does no harm.
    """
    if not isinstance(array, types.Array) or array.ndim > 2 or array.layout != "C":
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        one = ir.IntType(64)(1)
        width = builder.extract_value(given.shape, 1) if array.ndim == 2 else one
        first = builder.mul(arguments[1], width)
        last = builder.sub(builder.add(first, width), one)
        for place in (first, last) if array.ndim == 2 else (first,):
            ask(builder, builder.gep(given.data, [place]))
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


def ask(builder: Any, address: Any) -> None:
    """Generates code that asks for what is at an address."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    given = builder.bitcast(address, byte), flag(0), flag(3), flag(1)  # for reading, to be kept, of data
    builder.call(function, given)
