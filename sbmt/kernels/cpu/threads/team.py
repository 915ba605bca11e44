"""Kernels on the threads that torch computes with, of which there should be only one set.

Torch's operators run on the threads of an OpenMP library, which stay awake for a while, waiting for more. Threads of
our own would take cores from them, and 50 µs to wake. So we have the same ones run kernels, by the function that
compilers call where a program says ``omp parallel``: ``GOMP_parallel``, which GNU's, LLVM's and Intel's libraries have.
"""

import ctypes
import inspect
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import BaseTuple
from numba.extending import intrinsic

from sbmt.kernels.cpu.toolchain import keep_code


@cache
def openmp() -> tuple[int, int]:
    """The addresses of torch's ``GOMP_parallel`` and ``omp_get_thread_num``, or 0 where they cannot be found."""
    try:
        library = ctypes.CDLL(None)
        both = library.GOMP_parallel, library.omp_get_thread_num
        start, number = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in both)
    except (AttributeError, OSError, TypeError):  # TypeError on Windows, which has no name for the program itself
        return 0, 0
    return start, number


@cache
def launcher(kernel: Callable[..., Any]) -> Callable[..., None]:
    """Compiles what runs a kernel on ranges of rows: ``launch(openmp, thread, next_range, bounds, arguments)``.

    Ranges lie between consecutive bounds, and are shared out evenly among as many threads as ``next_range``, int64, has
    entries: at first that of each is the first one of its share. A thread calls ``kernel(start, stop, *arguments)`` for
    each of its own, and then helps the others. So neighbouring ranges are mostly one thread's, which finds what they
    need in its cache, and what an earlier kernel left there. If the addresses ``openmp`` are 0, it is the calling
    thread that works, as the one of that number, whoever else does, and counts in ``next_range``; otherwise a team of
    threads does, which counts in a copy. An exception of a
    kernel is raised here.
    """
    owner: Callable[..., Any] = kernel.py_func  # type: ignore[attr-defined]
    work = numba.njit(nogil=True)(_copy(_take_ranges, owner, kernel=kernel))
    launch = _copy(_launch, owner, work=work)
    return keep_code(numba.njit(nogil=True)(launch), launch)


# The two functions that are copied for each kernel; ``kernel`` and ``work`` are globals of the copies.
def _take_ranges(thread, job):
    next_range, bounds, arguments = job
    n_threads, n_ranges = next_range.size, bounds.size - 1
    for turn in range(n_threads):
        whose = (thread + turn) % n_threads
        end = (whose + 1) * n_ranges // n_threads
        i = _next(next_range, whose)
        while i < end:
            kernel(bounds[i], bounds[i + 1], *arguments)
            i = _next(next_range, whose)


def _launch(openmp, thread, next_range, bounds, arguments):
    if openmp[0]:
        _in_a_team(work, openmp[0], openmp[1], next_range.size, (next_range.copy(), bounds, _lend(arguments)))
    else:
        work(thread, (next_range, bounds, _lend(arguments)))


def _copy(template: Callable[..., Any], owner: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A copy of a function with more globals, named after a kernel, so that numba keeps its code apart from others'."""
    template = inspect.unwrap(template)  # tests wrap everything in shape checks, which cannot be compiled
    copy = FunctionType(template.__code__, globals() | names, f"{template.__name__}_{owner.__name__}")
    copy.__module__, copy.__qualname__ = __name__, f"{owner.__module__}.{copy.__name__}".replace(".", "_")
    return copy


@intrinsic
def _next(typing_context: Any, counters: Any, which: Any) -> Any:
    """Adds one to one of the counters, whoever else does; returns what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counters, types.int64), generate


@intrinsic
def _lend(typing_context: Any, arguments: Any) -> Any:
    """The arguments, with arrays that nobody counts references to, as long as the caller holds them.

    Otherwise each view of a row would add one to a number that all threads share, and they would wait for each other.
    """

    def lend(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = cgutils.create_struct_proxy(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            return array._getvalue()
        if isinstance(kind, BaseTuple):
            for i, member in enumerate(kind):
                value = builder.insert_value(value, lend(context, builder, member, builder.extract_value(value, i)), i)
        return value

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return lend(context, builder, signature.args[0], given[0])

    return arguments(arguments), generate


@intrinsic
def _in_a_team(typing_context: Any, work: Any, start: Any, number: Any, n_threads: Any, job: Any) -> Any:
    """Has each of a team of threads call ``work(thread, job)``, by the two functions of :func:`openmp`."""
    work.get_call_type(typing_context, (types.int64, job), {})  # compiles it

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, start, number, team_size, value = arguments
        compiled = signature.args[0].dispatcher.overloads[types.int64, job]
        callee = context.declare_function(builder.module, compiled.fndesc)
        context.add_linking_libs((compiled.library,))
        pointer, int32, int64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)

        # What the threads share: what numbers them, the job, and the status that a call returns if it fails.
        convention = context.call_conv
        numbering = builder.inttoptr(number, ir.FunctionType(int32, []).as_pointer())
        slot = cgutils.alloca_once_value(builder, value)
        code = cgutils.alloca_once_value(builder, ir.Constant(callee.function_type.return_type, 0))
        failure = cgutils.alloca_once(builder, callee.function_type.args[1].pointee)
        builder.store(cgutils.get_null_value(failure.type.pointee), failure)
        shared = cgutils.make_anonymous_struct(builder, (numbering, slot, code, failure))
        place = cgutils.alloca_once_value(builder, shared)

        body = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), f"team.{callee.name}")
        body.linkage = "internal"
        inner = ir.IRBuilder(body.append_basic_block())
        given = inner.load(inner.bitcast(body.args[0], place.type))
        number_this, job_place, code_place, failure_place = (inner.extract_value(given, i) for i in range(4))
        both = inner.zext(inner.call(number_this, []), int64), inner.load(job_place)
        status, _ = convention.call_function(inner, callee, types.none, (types.int64, job), both)
        with inner.if_then(status.is_error, likely=False):
            inner.store(status.excinfoptr, failure_place)
            inner.store(status.code, code_place)
        inner.ret_void()

        parallel = ir.FunctionType(ir.VoidType(), [body.type, pointer, int32, int32]).as_pointer()
        call = body, builder.bitcast(place, pointer), builder.trunc(team_size, int32), ir.Constant(int32, 0)
        builder.call(builder.inttoptr(start, parallel), call)
        status = convention._get_return_status(builder, builder.load(code), builder.load(failure))
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(work, types.int64, types.int64, types.int64, job), generate
