"""Where kernels run in these tests: on the GPU if there is one, else on the CPU by Triton's interpreter."""

import torch

from sbmt import attention
from sbmt.kernels.gpu import can_run_on, is_interpreted

DEVICE = torch.device("cpu" if is_interpreted() or not torch.cuda.is_available() else "cuda")
HAS_KERNELS = can_run_on(DEVICE)
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
