"""Contiguous arrays as code sees them that is being generated: how sixteen numbers are read, written and picked."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.registry import cpu_target

LANES = 16
_int32, _int64 = ir.IntType(32), ir.IntType(64)


def has_wide_registers() -> bool:
    """Whether code is compiled for a processor with AVX-512, where sixteen numbers fill one of 32 registers."""
    return "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


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


def smaller(builder: Any, x: Any, y: Any) -> Any:
    """The smaller one of two whole numbers."""
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
        count = smaller(builder, count, _int64(n))
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


def seen(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """The arguments of generated code, arrays as :class:`Flat`."""
    pairs = zip(signature.args, arguments, strict=True)
    return [Flat(context, builder, kind, x) if isinstance(kind, types.Array) else x for kind, x in pairs]
