"""Sorting a few whole numbers, and dropping those that repeat, without leaving the registers or asking a question."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import LANES, Flat, has_wide_registers, pick, repeat

_int32, _int64 = ir.IntType(32), ir.IntType(64)
_LAST = 2**31 - 1  # which stands for no number


@intrinsic(prefer_literal=True)
def sort_few(typing_context: Any, width: Any, numbers: Any, start: Any, count: Any, out: Any) -> Any:
    """Writes the distinct ones of numbers[start : start + count], ascending, and returns how many there are.

    For use in kernels. There are at most ``width`` of them, a literal power of two from 16 on, none of them negative or
    the largest int32. ``numbers`` is int32 and has ``width`` of them from ``start`` on, whatever the rest are; ``out``
    has room for the distinct ones. Both are contiguous, or the kernel does not compile.

    It is a bitonic network: in each step the numbers of all pairs at some distance change places, or do not.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, start, count, _ = arguments
        numbers, out = (Flat(context, builder, signature.args[i], arguments[i]) for i in (1, 4))
        n, lanes = width.literal_value, range(width.literal_value)
        kind = ir.VectorType(_int32, n)
        numbers.check(start, _int64(n))
        x = builder.load(builder.bitcast(numbers.address(start), kind.as_pointer()), align=4)
        is_ours = builder.icmp_signed("<", ir.Constant(kind, list(lanes)), _repeat(builder, count, n))
        x = builder.select(is_ours, x, ir.Constant(kind, [_LAST] * n))
        for size in (2**i for i in range(1, n.bit_length())):  # what is sorted, every other one descending
            for distance in (size >> i for i in range(1, size.bit_length())):
                other = pick(builder, x, x, [lane ^ distance for lane in lanes])
                low, high = (_call(builder, f"{name}.v{n}i32", kind, x, other) for name in ("smin", "smax"))
                takes_low = [(lane & distance == 0) == (lane & size == 0) for lane in lanes]
                x = pick(builder, low, high, [lane if takes_low[lane] else n + lane for lane in lanes])
        before = pick(builder, x, ir.Constant(kind, [-1] * n), [n, *lanes[:-1]])
        is_new = builder.icmp_signed("!=", x, before)
        is_new = builder.and_(is_new, builder.icmp_signed("!=", x, ir.Constant(kind, [_LAST] * n)))
        total: Any = _int64(0)
        for first in range(0, n, LANES):
            here = list(range(first, first + LANES))
            some, is_kept = (pick(builder, t, t, here) for t in (x, is_new))
            total = builder.add(total, _write(builder, some, is_kept, out, total))
        return total

    fits = (numbers.dtype, numbers.layout, out.layout) == (types.int32, "C", "C")
    if not (isinstance(width, types.IntegerLiteral) and fits and out.dtype in (types.int32, types.int64)):
        return None
    return types.int64(width, numbers, types.int64, types.int64, out), generate


def _write(builder: Any, numbers: Any, is_kept: Any, out: Any, place: Any) -> Any:
    """Writes those of sixteen numbers that are kept to ``out``, from a place on. Returns how many they are."""
    mask = builder.bitcast(is_kept, ir.IntType(LANES))
    count = builder.zext(_call(builder, f"ctpop.i{LANES}", mask.type, mask), _int64)
    out.check(place, count)
    to, nothing, kind, suffix = out.address(place), ir.VoidType(), numbers.type, f"v{LANES}i{out.kind.width}"
    if not has_wide_registers():
        _call(builder, f"masked.compressstore.{suffix}", nothing, _widened(builder, numbers, out), to, is_kept)
        return count
    # Where there are instructions for this, some processors take long to drop numbers on their way to memory.
    zeros = ir.Constant(kind, [0] * LANES)
    left = _call(builder, "x86.avx512.mask.compress.v16i32", kind, numbers, zeros, is_kept)
    left = _widened(builder, left, out)
    is_left = builder.icmp_signed("<", ir.Constant(kind, list(range(LANES))), _repeat(builder, count, LANES))
    alignment = _int32(out.kind.width // 8)
    to = builder.bitcast(to, left.type.as_pointer())
    _call(builder, f"masked.store.{suffix}.p0{suffix}", nothing, left, to, alignment, is_left)
    return count


def _widened(builder: Any, numbers: Any, out: Any) -> Any:
    kind = ir.VectorType(out.kind, LANES)
    return numbers if numbers.type == kind else builder.sext(numbers, kind)


def _repeat(builder: Any, number: Any, n: int) -> Any:
    return repeat(builder, builder.trunc(number, _int32), n)


def _call(builder: Any, name: str, returned: Any, *given: Any) -> Any:
    kind = ir.FunctionType(returned, [x.type for x in given])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}"), given)
