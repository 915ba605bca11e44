"""Sums of products, sixteen numbers at a time, by vector code of our own.

Compilers vectorise such loops too, but not knowing how short they are, nor that results overlap no argument, they
surround them with checks that take as long. All arrays here are contiguous and of one type, or a kernel does not
compile. ``NUMBA_BOUNDSCHECK=1`` checks what is read and written.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

LANES = 16
_TOGETHER = 4  # scalar products that are formed at once
_int32, _int64 = ir.IntType(32), ir.IntType(64)


def has_wide_registers() -> bool:
    """Whether code is compiled for a processor with AVX-512, where sixteen numbers fill one of 32 registers."""
    return "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


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
        _, vector, matrix, width, offset, index, start, stop, column, out = (
            Flat(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        columns = [builder.add(column, _int64(LANES * i)) for i in range(n_vectors.literal_value)]
        numbers, last = [vector.load(i) for i in columns], builder.sub(stop, _int64(1))
        is_sum = builder.icmp_signed(">", column, _int64(0))
        with cgutils.for_range_slice(builder, start, stop, _int64(_TOGETHER)) as (e, _):
            products = []
            for ahead in range(_TOGETHER):  # of the last edge again, where there are no more
                edge = _smaller(builder, builder.add(e, _int64(ahead)), last)
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
        _, weights, shift, matrix, width, offset, index, start, stop, column, out, place = (
            Flat(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
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
        _, weights, x, place, matrix, width, offset, index, start, stop, column = (
            Flat(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
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


def are_alike(*arrays: Any) -> bool:
    """Whether they are contiguous arrays of one floating-point type."""
    kinds = {(getattr(array, "dtype", None), getattr(array, "layout", None)) for array in arrays}
    return len(kinds) == 1 and kinds <= {(types.float32, "C"), (types.float64, "C")}


def repeat(builder: Any, number: Any, n: int = LANES) -> Any:
    """A vector of the same number n times."""
    nothing = ir.Constant(ir.VectorType(number.type, n), ir.Undefined)
    one = builder.insert_element(nothing, number, _int32(0))
    return pick(builder, one, nothing, [0] * n)


def pick(builder: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    """A vector of numbers of two others; those of the second are counted on from those of the first."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_int32, len(lanes)), lanes))


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


def _smaller(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.icmp_signed("<", x, y), x, y)


class Flat:
    """A contiguous array as code sees it that is being generated."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._context, self._builder = context, builder
        self._array = cgutils.create_struct_proxy(kind)(context, builder, value)
        self._size = kind.dtype.bitwidth // 8
        self.kind = context.get_data_type(kind.dtype)
        self.vector = ir.VectorType(self.kind, LANES)
        self.size = self._array.nitems

    @property
    def zeros(self) -> Any:
        """Sixteen of them."""
        return ir.Constant(self.vector, [self.kind(0.0)] * LANES)

    def number(self, place: Any) -> Any:
        """The number at a place."""
        self.check(place, _int64(1))
        return self._builder.load(self.address(place))

    def whole(self, place: Any) -> Any:
        """The whole number at a place, with 64 bits."""
        number = self.number(place)
        return self._builder.sext(number, _int64) if self.kind.width < 64 else number

    def address(self, place: Any) -> Any:
        """Where that is."""
        return self._builder.gep(self._array.data, [place])

    def write(self, number: Any, place: Any) -> None:
        """Puts a number there."""
        self.check(place, _int64(1))
        self._builder.store(number, self.address(place))

    def load(self, place: Any) -> Any:
        """Sixteen numbers from a place on."""
        return self._builder.load(self._at(place), align=self._size)

    def store(self, numbers: Any, place: Any) -> None:
        """Writes them there."""
        self._builder.store(numbers, self._at(place), align=self._size)

    def load_some(self, n: int, place: Any, count: Any) -> Any:
        """A vector of n numbers from a place on: the first ``count``, and zeros, if there are fewer."""
        zeros = ir.Constant(ir.VectorType(self.kind, n), [self.kind(0.0)] * n)
        to, is_given = self._first(zeros.type, place, count)
        return self._call_masked("load", zeros.type, to, _int32(self._size), is_given, zeros)

    def store_some(self, numbers: Any, place: Any, count: Any) -> None:
        """Writes the first ``count`` of some numbers there, or all if they are fewer."""
        to, is_given = self._first(numbers.type, place, count)
        self._call_masked("store", numbers.type, numbers, to, _int32(self._size), is_given)

    def _first(self, vector: Any, place: Any, count: Any) -> tuple[Any, Any]:
        """Where a vector lies from a place on, and which of its numbers are the first ``count``."""
        builder, n = self._builder, vector.count
        count = _smaller(builder, count, _int64(n))
        self.check(place, count)
        lanes = ir.Constant(ir.VectorType(_int64, n), list(range(n)))
        is_given = builder.icmp_signed("<", lanes, repeat(builder, count, n))
        return builder.bitcast(self.address(place), vector.as_pointer()), is_given

    def _call_masked(self, what: str, vector: Any, *given: Any) -> Any:
        kind = f"v{vector.count}f{8 * self._size}"
        function = ir.FunctionType(ir.VoidType() if what == "store" else vector, [x.type for x in given])
        name = f"llvm.masked.{what}.{kind}.p0{kind}"
        return self._builder.call(cgutils.get_or_insert_function(self._builder.module, function, name), given)

    def repeat(self, number: Any) -> Any:
        """Sixteen times the same."""
        return repeat(self._builder, number)

    def multiply_and_add(self, x: Any, y: Any, z: Any) -> Any:
        """The vector x · y + z."""
        return self._call("fma", self.vector, [x, y, z])

    def sum_up(self, numbers: Any) -> Any:
        """The sum of sixteen numbers, in whatever order."""
        return self._call("vector.reduce.fadd", self.kind, [self.kind(-0.0), numbers], fastmath=("reassoc",))

    def check(self, place: Any, count: Any) -> None:
        """Raises IndexError where there are not so many numbers from a place on, if that is to be checked."""
        if config.BOUNDSCHECK:
            end = self._builder.add(place, count)
            with self._builder.if_then(self._builder.icmp_unsigned(">", end, self._array.nitems)):
                self._context.call_conv.return_user_exc(self._builder, IndexError, ("beyond an array's end",))

    def _call(self, name: str, returned: Any, arguments: list[Any], **flags: Any) -> Any:
        function = ir.FunctionType(returned, [argument.type for argument in arguments])
        name = f"llvm.{name}.v{LANES}f{8 * self._size}"
        return self._builder.call(
            cgutils.get_or_insert_function(self._builder.module, function, name), arguments, **flags
        )

    def _at(self, place: Any) -> Any:
        self.check(place, _int64(LANES))
        return self._builder.bitcast(self.address(place), self.vector.as_pointer())
