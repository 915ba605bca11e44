"""Rates of edges by looking sixteen numbers up at once, in tables that stay in the registers of the processor.

This takes instructions that permute the numbers of two registers, which AVX-512 has, tokens whose parts and memberships
fill a line of the cache each, as with four groups and two active parts, and partitions into sixteen parts. The plain
ways are those of :mod:`sbmt.kernels.cpu.crossed`.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import LANES, has_wide_registers, pick, seen
from sbmt.kernels.cpu.vectors.prefetch import ask

AHEAD = 20  # edges before it is needed, a key is asked for
_int64, _int32 = ir.IntType(64), ir.IntType(32)


def can_look_up(weight: Any, active: Any) -> bool:
    """Whether code for memberships of this type, with so many active parts, may call what is below."""
    return weight.dtype == types.float32 and LANES % (2 * len(active)) == 0 and has_wide_registers()


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
        rates, _, part, weight, keys, offset, start, stop, out = seen(context, builder, signature, arguments)
        n_active, tables = len(active), _tables(rates, len(active))
        with cgutils.for_range_slice(builder, start, stop, _int64(1)) as (e, _):
            place, _ = _places(builder, keys, offset, e, (part, weight))
            x = builder.fmul(_look_up(builder, tables, n_active, part.load(place)), weight.load(place))
            x = _sum_partitions(builder, x, n_active)
            x = builder.fmul(x, _exchange(builder, x, n_active))
            while x.type.count > 2 * n_active:  # the sum over groups
                half = x.type.count // 2
                low, high = (pick(builder, x, x, list(range(first, first + half))) for first in (0, half))
                x = builder.fadd(low, high)
            out.write(builder.extract_element(x, _int32(0)), e)
        return context.get_dummy_value()

    int64 = types.int64
    return types.none(rates, active, part, weight, keys, int64, int64, int64, out), generate


@intrinsic
def add_gradients(
    typing_context: Any,
    grad: Any,
    rates: Any,
    active: Any,
    part: Any,
    weight: Any,
    keys: Any,
    offset: Any,
    start: Any,
    stop: Any,
    to_rates: Any,
    to_weight: Any,
) -> Any:
    """Adds the gradients of the rates that :func:`fill_rates` writes: to those of a query's rates, and of weights."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        grad, rates, _, part, weight, keys, offset, start, stop, to_rates, to_weight = seen(
            context, builder, signature, arguments
        )
        n_active, tables = len(active), _tables(rates, len(active))
        steps = cgutils.alloca_once(builder, ir.ArrayType(rates.kind, LANES))
        all_steps = builder.bitcast(steps, rates.vector.as_pointer())
        with cgutils.for_range_slice(builder, start, stop, _int64(1)) as (e, _):
            place, later = _places(builder, keys, offset, e, (part, weight))
            ask(builder, to_weight.address(later))
            x, w = _look_up(builder, tables, n_active, part.load(place)), weight.load(place)
            other = _exchange(builder, _sum_partitions(builder, builder.fmul(x, w), n_active), n_active)
            factor = builder.fmul(rates.repeat(grad.number(e)), other)
            to_weight.store(to_weight.multiply_and_add(factor, x, to_weight.load(place)), place)
            builder.store(builder.fmul(factor, w), all_steps, align=4)
            for lane in range(LANES):
                at = builder.sext(part.number(builder.add(place, _int64(lane))), _int64)
                step = builder.load(cgutils.gep_inbounds(builder, steps, 0, lane))
                to_rates.write(builder.fadd(to_rates.number(at), step), at)
        return context.get_dummy_value()

    int64 = types.int64
    kinds = grad, rates, active, part, weight, keys, int64, int64, int64, to_rates, to_weight
    return types.none(*kinds), generate


def _tables(rates: Any, n_active: int) -> list[Any]:
    """The rates of the parts of each partition."""
    return [rates.load(_int64(LANES * i)) for i in range(LANES // n_active)]


def _places(builder: Any, keys: Any, offset: Any, edge: Any, asked: Any) -> tuple[Any, Any]:
    """Where the parts of the edge's key begin, and those of a later one, which it asks for."""
    later = builder.add(edge, _int64(AHEAD))
    later = builder.select(builder.icmp_signed("<", later, keys.size), later, edge)
    later, place = (builder.mul(builder.add(offset, keys.number(e)), _int64(LANES)) for e in (later, edge))
    for array in asked:
        ask(builder, array.address(later))
    return place, later


def _look_up(builder: Any, tables: list[Any], n_active: int, parts: Any) -> Any:
    """The number of each of sixteen parts: from the tables of each group those for the lanes that are its own."""
    parts = builder.sext(parts, ir.VectorType(_int32, LANES))
    found = _permute(builder, tables[0], parts, tables[1])
    for lane in range(2 * n_active, LANES, 2 * n_active):
        i = lane // n_active
        here = _permute(builder, tables[i], parts, tables[i + 1])
        found = pick(builder, found, here, [n + LANES * (n >= lane) for n in range(LANES)])
    return found


def _sum_partitions(builder: Any, x: Any, n_active: int) -> Any:
    """The sum over the parts of each partition, in each of its lanes."""
    distance = 1
    while distance < n_active:
        x = builder.fadd(x, _exchange(builder, x, distance))
        distance *= 2
    return x


def _exchange(builder: Any, x: Any, distance: int) -> Any:
    """The vector in which lanes at this distance, a power of two, have changed places."""
    return pick(builder, x, x, [n ^ distance for n in range(LANES)])


def _permute(builder: Any, low: Any, places: Any, high: Any) -> Any:
    """The numbers at sixteen places of two vectors, of which lowest five bits count."""
    kind = ir.FunctionType(low.type, [low.type, places.type, high.type])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
    return builder.call(function, [low, places, high])
