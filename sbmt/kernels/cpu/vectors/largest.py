"""The largest of many scalar products, for some vectors at once: products and choice stay in registers."""

import itertools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import LANES, Flat, are_alike, has_wide_registers

# Rows and columns whose products are formed together, each sixteen in registers of their own.
ROWS, COLUMNS = (8, 2 * LANES) if has_wide_registers() else (4, LANES)
_int64, _int32 = ir.IntType(64), ir.IntType(32)


@intrinsic
def keep_largest(
    typing_context: Any,
    active: Any,
    matrix: Any,
    first: Any,
    n_rows: Any,
    x: Any,
    column: Any,
    largest: Any,
    which: Any,
) -> Any:
    """Writes the largest of Σ_k matrix[k, first + i] · x[k, column + c] over i < n_rows, and at which i they are.

    For each c < :data:`COLUMNS`, ``largest[s, column + c]`` descends over s, of which there are as many as ``active``
    has entries. Of equal products any may win. Whatever they are, NaN included, ``which`` holds different numbers for
    each c, if there are as many. ``x`` has as many rows as the matrix; ``first`` is added to the place of a row there,
    which counts as flat and may be one of several that lie one after the other.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        _, _, first, n_rows, _, column, _, _ = arguments
        (*_, pitch), (count, width) = (_shape(context, builder, kinds[i], arguments[i]) for i in (1, 4))
        matrix, x, largest, which = (Flat(context, builder, kinds[i], arguments[i]) for i in (1, 4, 6, 7))
        lowest = ir.Constant(x.vector, [x.kind(float("-inf"))] * LANES)
        blocks = [builder.add(column, _int64(block)) for block in range(0, COLUMNS, LANES)]
        best = [
            [
                (
                    cgutils.alloca_once_value(builder, lowest),
                    cgutils.alloca_once_value(builder, which.repeat(_int32(s))),
                )
                for s in range(len(active))
            ]
            for _ in blocks
        ]

        def some_rows(i: Any, how_many: int) -> None:
            totals = [[cgutils.alloca_once(builder, x.vector) for _ in blocks] for _ in range(how_many)]
            for total in itertools.chain(*totals):
                builder.store(x.zeros, total)
            with cgutils.for_range_slice(builder, _int64(0), count, _int64(1)) as (k, _):
                numbers = [x.load(builder.add(builder.mul(k, width), block)) for block in blocks]
                start = builder.add(builder.mul(k, pitch), builder.add(first, i))
                for row, of_row in enumerate(totals):
                    factor = matrix.repeat(matrix.number(builder.add(start, _int64(row))))
                    for some, total in zip(numbers, of_row, strict=True):
                        builder.store(matrix.multiply_and_add(factor, some, builder.load(total)), total)
            for row, of_row in enumerate(totals):
                number = which.repeat(builder.trunc(builder.add(i, _int64(row)), _int32))
                for total, of_block in zip(of_row, best, strict=True):
                    new, at = builder.load(total), number
                    for value, place in of_block:  # the larger one stays, the other goes on
                        old, was = builder.load(value), builder.load(place)
                        is_larger = builder.fcmp_ordered(">", new, old)
                        builder.store(builder.select(is_larger, new, old), value)
                        builder.store(builder.select(is_larger, at, was), place)
                        new, at = builder.select(is_larger, old, new), builder.select(is_larger, was, at)

        whole = builder.sub(n_rows, builder.urem(n_rows, _int64(ROWS)))
        with cgutils.for_range_slice(builder, _int64(0), whole, _int64(ROWS)) as (i, _):
            some_rows(i, ROWS)
        with cgutils.for_range_slice(builder, whole, n_rows, _int64(1)) as (i, _):
            some_rows(i, 1)
        for block, of_block in zip(blocks, best, strict=True):
            for s, (value, place) in enumerate(of_block):
                at = builder.add(builder.mul(_int64(s), width), block)
                largest.store(builder.load(value), at)
                which.store(builder.load(place), at)
        return context.get_dummy_value()

    if not (are_alike(matrix, x, largest) and which.dtype == types.int32):
        return None
    int64 = types.int64
    return types.none(active, matrix, int64, int64, x, int64, largest, which), generate


def _shape(context: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
    """The lengths of an array's axes."""
    array = cgutils.create_struct_proxy(kind)(context, builder, value)
    return cgutils.unpack_tuple(builder, array.shape, kind.ndim)
