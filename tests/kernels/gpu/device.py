"""Where kernels run in these tests: on the GPU if there is one, else on the CPU by Triton's interpreter."""

from dataclasses import replace

import torch

from sbmt import attention
from sbmt.kernels.gpu import can_run_on, is_interpreted


def hurry_the_interpreter():
    """Saves what Triton's interpreter spends on other things than kernels: two thirds of its time.

    It patches its language at every call of a function inside a kernel, and computes every sum and product of integers
    once more to see whether it overflows, but says so only where a program is debugged.
    """
    from triton import language
    from triton.runtime import interpreter

    patch, builder = interpreter._patch_lang, interpreter.interpreter_builder

    def patch_unless_done(function):
        seen = [lang for lang in (language, language.core) if any(x is lang for x in function.__globals__.values())]
        is_done = seen and not any(language.core.is_builtin(lang.load) for lang in seen)
        return interpreter._LangPatchScope() if is_done else patch(function)

    interpreter._patch_lang = patch_unless_done
    builder.options = replace(builder.options, sanitize_overflow=False)


DEVICE = torch.device("cpu" if is_interpreted() or not torch.cuda.is_available() else "cuda")
HAS_KERNELS = can_run_on(DEVICE)
if is_interpreted() and HAS_KERNELS:
    hurry_the_interpreter()
BACKENDS = list(dict.fromkeys([*attention.available_backends(), *attention.available_backends(DEVICE)]))


def to_device(*things):
    """Tensors, edge lists and None, on that device; gradients find their way back."""
    return [None if thing is None else thing.to(DEVICE) for thing in things]


def edge_attention(query, key, value, edges, gate=None, *, backend="auto", **settings):
    """:func:`sbmt.edge_attention` of tensors on the CPU, whatever the backend."""
    if backend != "gpu":
        return attention.edge_attention(query, key, value, edges, gate, backend=backend, **settings)
    moved = to_device(query, key, value, edges, gate)
    settings |= {name: settings[name].to(DEVICE) for name in ("bias", "sink") if settings.get(name) is not None}
    found = attention.edge_attention(*moved, backend=backend, **settings)
    return tuple(x.to(query.device) for x in found) if isinstance(found, tuple) else found.to(query.device)
