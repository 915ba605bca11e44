"""Rates of edges by looking sixteen numbers up at once, in tables that stay in the registers of the processor.

This takes instructions that permute the numbers of two registers, which AVX-512 has, tokens whose parts and memberships
fill a line of the cache each, as with four groups and two active parts, and partitions into sixteen parts. The plain
way is :func:`sbmt.kernels.cpu.crossed.rate_of_key`.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from sbmt.kernels.cpu.prefetch import ask
from sbmt.kernels.cpu.vectors import LANES, Flat

AHEAD = 12  # edges before it is needed, a key is asked for
_int64, _int32 = ir.IntType(64), ir.IntType(32)


def can_look_up(weight: Any, active: Any) -> bool:
    """Whether code for memberships of this type, with so many active parts, may call :func:`fill_rates`."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return weight.dtype == types.float32 and LANES % (2 * len(active)) == 0 and "+avx512f" in features.split(",")


@intrinsic
def fill_rates(
    typing_context: Any,
    rates: Any,
    active: Any,
    part: Any,
    weight: Any,
    keys: Any,
    offset: Any,
    start: Any,
    stop: Any,
    out: Any,
) -> Any:
    """Writes the rates of edges start … stop from the query that has these rates of all parts.

    Edge e leads to token offset + keys[e]. Tokens have 16 parts and weights each, and partitions 16 parts.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rates, _, part, weight, keys, offset, start, stop, out = (
            Flat(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        n_active, lanes = len(active), range(LANES)
        tables = [rates.load(_int64(LANES * i)) for i in range(LANES // n_active)]
        with cgutils.for_range_slice(builder, start, stop, _int64(1)) as (e, _):
            later = builder.add(e, _int64(AHEAD))
            is_there = builder.icmp_signed("<", later, keys.size)
            later, place = (
                builder.mul(builder.add(offset, keys.number(edge)), _int64(LANES))
                for edge in (builder.select(is_there, later, e), e)
            )
            for array in (part, weight):
                ask(builder, array.address(later))
            parts = part.load(place)
            x = _permute(builder, tables[0], parts, tables[1])
            for lane in range(2 * n_active, LANES, 2 * n_active):  # of each group the lanes that are its own
                i = lane // n_active
                here = _permute(builder, tables[i], parts, tables[i + 1])
                x = _pick(builder, x, here, [n + LANES * (n >= lane) for n in lanes])
            x = builder.fmul(x, weight.load(place))
            distance = 1
            while distance < n_active:  # sums over the parts of a partition, in each of its lanes
                x = builder.fadd(x, _pick(builder, x, x, [n ^ distance for n in lanes]))
                distance *= 2
            x = builder.fmul(x, _pick(builder, x, x, [n ^ n_active for n in lanes]))
            while x.type.count > 2 * n_active:  # the sum over groups
                half = x.type.count // 2
                low, high = (_pick(builder, x, x, list(range(first, first + half))) for first in (0, half))
                x = builder.fadd(low, high)
            out.write(builder.extract_element(x, _int32(0)), e)
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(rates, active, part, weight, keys, int64, int64, int64, out), generate


def _permute(builder: Any, low: Any, places: Any, high: Any) -> Any:
    """The numbers at sixteen places of two vectors, of which lowest five bits count."""
    kind = ir.FunctionType(low.type, [low.type, places.type, high.type])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
    return builder.call(function, [low, places, high])


def _pick(builder: Any, x: Any, y: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_int32, len(places)), places))
