"""Sums of products, sixteen numbers at a time, by vector code of our own.

Compilers vectorise such loops too, but not knowing how short they are, nor that results overlap no argument, they
surround them with checks that take as long. All arrays here are contiguous and of one type, or a kernel does not
compile. ``NUMBA_BOUNDSCHECK=1`` checks what is read and written.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sbmt.kernels.cpu.vectors.flat import LANES, Flat, are_alike, pick, seen, smaller

_TOGETHER = 4  # scalar products that are formed at once
_int32, _int64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def dot(typing_context: Any, x: Any, x_start: Any, y: Any, y_start: Any, count: Any) -> Any:
    """Σ_i x[x_start + i] · y[y_start + i] over i < count, which is a multiple of 16; arrays count as flat."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count = arguments[4]
        both = [Flat(context, builder, signature.args[i], arguments[i]) for i in (0, 2)]
        for array, start in zip(both, arguments[1::2], strict=False):
            array.check(start, count)
        total = cgutils.alloca_once_value(builder, both[0].zeros)
        with cgutils.for_range_slice(builder, _int64(0), count, _int64(LANES)) as (i, _):
            u, v = (array.load(builder.add(start, i)) for array, start in zip(both, arguments[1::2], strict=False))
            builder.store(both[0].multiply_and_add(u, v, builder.load(total)), total)
        return both[0].sum_up(builder.load(total))

    fits = are_alike(x, y)
    return (x.dtype(x, types.uint64, y, types.uint64, types.uint64), generate) if fits else None


@intrinsic(prefer_literal=True)
def dots_at(
    typing_context: Any,
    n_vectors: Any,
    vector: Any,
    matrix: Any,
    width: Any,
    offset: Any,
    index: Any,
    start: Any,
    stop: Any,
    column: Any,
    out: Any,
) -> Any:
    """Sets out[e − start] to Σ_i vector[column + i] · matrix[offset + index[e], column + i] over start ≤ e < stop.

    Unless ``column`` is 0, it adds them. Otherwise as :func:`sum_rows_at`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, vector, matrix, width, offset, index, start, stop, column, out = seen(context, builder, signature, arguments)
        columns = [builder.add(column, _int64(LANES * i)) for i in range(n_vectors.literal_value)]
        numbers, last = [vector.load(i) for i in columns], builder.sub(stop, _int64(1))
        is_sum = builder.icmp_signed(">", column, _int64(0))
        with cgutils.for_range_slice(builder, start, stop, _int64(_TOGETHER)) as (e, _):
            products = []
            for ahead in range(_TOGETHER):  # of the last edge again, where there are no more
                edge = smaller(builder, builder.add(e, _int64(ahead)), last)
                row, total = builder.mul(builder.add(offset, index.whole(edge)), width), vector.zeros
                for i, x in zip(columns, numbers, strict=True):
                    total = vector.multiply_and_add(x, matrix.load(builder.add(row, i)), total)
                products.append(total)
            place, count = builder.sub(e, start), builder.sub(stop, e)
            so_far = out.load_some(_TOGETHER, place, builder.select(is_sum, count, _int64(0)))
            out.store_some(builder.fadd(so_far, _sum_each(builder, products)), place, count)
        return context.get_dummy_value()

    if not (isinstance(n_vectors, types.IntegerLiteral) and are_alike(vector, matrix, out)):
        return None
    int64 = types.int64
    return types.none(n_vectors, vector, matrix, int64, int64, index, int64, int64, int64, out), generate


@intrinsic
def running_sums(
    typing_context: Any,
    scale: Any,
    most: Any,
    x: Any,
    x_start: Any,
    y: Any,
    y_start: Any,
    count: Any,
    out: Any,
    place: Any,
) -> Any:
    """Sets out[place + i] to what :func:`dot` has summed up after i + 1 products, times ``scale``: a whole number.

    It is rounded and at most ``most``; ``out`` holds uint32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scale, most, _, x_start, _, y_start, count, _, place = arguments
        x, y, out = (Flat(context, builder, signature.args[i], arguments[i]) for i in (2, 4, 7))
        last = ir.Constant(ir.VectorType(_int32, LANES), [LANES - 1] * LANES)
        so_far = cgutils.alloca_once_value(builder, x.zeros)
        with cgutils.for_range_slice(builder, _int64(0), count, _int64(LANES)) as (i, _):
            sums = builder.fmul(x.load(builder.add(x_start, i)), y.load(builder.add(y_start, i)))
            for step in (1, 2, 4, 8):  # each lane adds what is so many lanes before it
                before = ir.Constant(
                    last.type, [LANES + lane - step if lane >= step else lane for lane in range(LANES)]
                )
                sums = builder.fadd(sums, builder.shuffle_vector(x.zeros, sums, before))
            sums = builder.fadd(sums, builder.load(so_far))
            builder.store(builder.shuffle_vector(sums, sums, last), so_far)
            words = x.multiply_and_add(sums, x.repeat(scale), x.repeat(x.kind(0.5)))
            words = builder.select(builder.fcmp_ordered("<", words, x.repeat(most)), words, x.repeat(most))
            out.store(builder.fptoui(words, out.vector), builder.add(place, i))
        return context.get_dummy_value()

    fits = are_alike(x, y) and (out.dtype, out.layout) == (types.uint32, "C")
    uint64 = types.uint64
    return (types.none(x.dtype, x.dtype, x, uint64, y, uint64, uint64, out, uint64), generate) if fits else None


@intrinsic
def add_scaled(typing_context: Any, factor: Any, x: Any, x_start: Any, y: Any, y_start: Any) -> Any:
    """Adds factor · x[x_start + i] to y[y_start + i] for i < 16; arrays count as flat."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        factor, _, x_start, _, y_start = arguments
        x, y = (Flat(context, builder, signature.args[i], arguments[i]) for i in (1, 3))
        y.store(y.multiply_and_add(x.repeat(factor), x.load(x_start), y.load(y_start)), y_start)
        return context.get_dummy_value()

    fits = are_alike(x, y)
    return (types.none(x.dtype, x, types.uint64, y, types.uint64), generate) if fits else None


@intrinsic(prefer_literal=True)
def sum_rows_at(
    typing_context: Any,
    n_vectors: Any,
    weights: Any,
    shift: Any,
    matrix: Any,
    width: Any,
    offset: Any,
    index: Any,
    start: Any,
    stop: Any,
    column: Any,
    out: Any,
    place: Any,
) -> Any:
    """Sets out[place + i] to Σ_e weights[e − shift] · matrix[offset + index[e], column + i] over start ≤ e < stop.

    i runs over ``n_vectors`` times 16 columns; ``n_vectors`` is a literal. The matrix has so many columns as ``width``
    says; all arrays count as flat.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, weights, shift, matrix, width, offset, index, start, stop, column, out, place = seen(
            context, builder, signature, arguments
        )
        totals = [cgutils.alloca_once_value(builder, out.zeros) for _ in range(n_vectors.literal_value)]
        with cgutils.for_range_slice(builder, start, stop, _int64(1)) as (e, _):
            first = builder.add(builder.mul(builder.add(offset, index.whole(e)), width), column)
            weight = matrix.repeat(weights.number(builder.sub(e, shift)))
            for i, total in enumerate(totals):
                numbers = matrix.load(builder.add(first, _int64(LANES * i)))
                builder.store(matrix.multiply_and_add(weight, numbers, builder.load(total)), total)
        for i, total in enumerate(totals):
            out.store(builder.load(total), builder.add(place, _int64(LANES * i)))
        return context.get_dummy_value()

    if not (isinstance(n_vectors, types.IntegerLiteral) and are_alike(weights, matrix, out)):
        return None
    int64 = types.int64
    kinds = weights, int64, matrix, int64, int64, index, int64, int64, int64, out, int64
    return types.none(n_vectors, *kinds), generate


@intrinsic(prefer_literal=True)
def add_to_rows_at(
    typing_context: Any,
    n_vectors: Any,
    weights: Any,
    x: Any,
    place: Any,
    matrix: Any,
    width: Any,
    offset: Any,
    index: Any,
    start: Any,
    stop: Any,
    column: Any,
) -> Any:
    """Adds weights[e] · x[place + i] to matrix[offset + index[e], column + i] over start ≤ e < stop.

    They are added one after the other. Otherwise as :func:`sum_rows_at`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, weights, x, place, matrix, width, offset, index, start, stop, column = seen(
            context, builder, signature, arguments
        )
        steps = [_int64(LANES * i) for i in range(n_vectors.literal_value)]
        added = [x.load(builder.add(place, step)) for step in steps]
        with cgutils.for_range_slice(builder, start, stop, _int64(1)) as (e, _):
            first = builder.add(builder.mul(builder.add(offset, index.number(e)), width), column)
            weight = matrix.repeat(weights.number(e))
            for step, numbers in zip(steps, added, strict=True):
                at = builder.add(first, step)
                matrix.store(matrix.multiply_and_add(weight, numbers, matrix.load(at)), at)
        return context.get_dummy_value()

    if not (isinstance(n_vectors, types.IntegerLiteral) and are_alike(weights, x, matrix)):
        return None
    int64 = types.int64
    kinds = weights, x, int64, matrix, int64, int64, index, int64, int64, int64
    return types.none(n_vectors, *kinds), generate


@intrinsic
def transpose_block(typing_context: Any, x: Any, x_start: Any, x_width: Any, y: Any, y_start: Any, y_width: Any) -> Any:
    """Sets y[y_start + k · y_width + r] to x[x_start + r · x_width + k] for r, k < 16; arrays count as flat.

    Whole numbers may lose bits on the way, if ``y`` has fewer.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (Flat(context, builder, signature.args[i], arguments[i]) for i in (0, 3))
        _, x_start, x_width, _, y_start, y_width = arguments
        rows = [x.load(builder.add(x_start, builder.mul(x_width, _int64(r)))) for r in range(LANES)]
        half = LANES // 2
        for _ in range(4):  # rows are interleaved with those half of them away, as when cards are shuffled
            lanes = [[first + i // 2 + LANES * (i % 2) for i in range(LANES)] for first in (0, half)]
            rows = [pick(builder, rows[i], rows[i + half], which) for i in range(half) for which in lanes]
        for k, numbers in enumerate(rows):
            numbers = builder.trunc(numbers, y.vector) if y.kind != x.kind else numbers
            y.store(numbers, builder.add(y_start, builder.mul(y_width, _int64(k))))
        return context.get_dummy_value()

    is_narrower = all(isinstance(a.dtype, types.Integer) for a in (x, y)) and y.dtype.bitwidth < x.dtype.bitwidth
    fits = x.layout == y.layout == "C" and (x.dtype == y.dtype or is_narrower)
    return (types.none(x, types.int64, types.int64, y, types.int64, types.int64), generate) if fits else None


def _sum_each(builder: Any, vectors: list[Any]) -> Any:
    """A vector of the sum of each of some vectors, a power of two of them."""
    n, step = len(vectors), 1
    while len(vectors) > 1:  # two of them in one, whose sums take turns: of two numbers each, then of four, and so on
        low = [LANES + lane - step if lane & step else lane for lane in range(LANES)]
        high = [LANES + lane if lane & step else lane + step for lane in range(LANES)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.fadd(pick(builder, x, y, low), pick(builder, x, y, high)) for x, y in pairs]
        step *= 2
    (sums,) = vectors
    while sums.type.count > n:
        half = sums.type.count // 2
        low, high = (list(range(first, first + half)) for first in (0, half))
        sums = builder.fadd(pick(builder, sums, sums, low), pick(builder, sums, sums, high))
    return sums
