"""Which kernels a training step's time on a GPU goes to."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from sbmt.experiments.benchmarks.cases import Case
from sbmt.experiments.benchmarks.contestants import entry
from sbmt.experiments.benchmarks.gpu_contestants import GpuContestant
from sbmt.experiments.benchmarks.gpu_race import outcome_of

N_KERNELS = 10


def profile_step(contestant: GpuContestant, case: Case) -> dict[str, Any]:
    """The kernels of one training step, after two that do not count; ``failed`` or ``missing`` if it does not run."""
    step = entry(contestant, case, is_training=True)
    device = case.query.device
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    try:
        for _ in range(2):
            step.seconds()
        with profile(activities=[activity], acc_events=True) as found:
            step.run(step.prepare())
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return top_kernels(found.key_averages())
    except Exception as error:
        return outcome_of(error)


def top_kernels(events: Iterable[Any], n_kernels: int = N_KERNELS) -> dict[str, Any]:
    """Milliseconds on the GPU in all and of the kernels that take most of them.

    Args:
        events: As the profiler averages them; those of the host are left out.
        n_kernels: How many kernels are named.
    """
    times = [
        (event.key, event.self_device_time_total / 1e3, event.count)
        for event in events
        if event.device_type == DeviceType.CUDA and event.self_device_time_total > 0
    ]
    times.sort(key=lambda kernel: -kernel[1])
    total = float(sum(milliseconds for _, milliseconds, _ in times))
    kernels = [
        {"name": name[:120], "milliseconds": round(ms, 4), "calls": calls, "share": round(ms / total, 4)}
        for name, ms, calls in times[:n_kernels]
    ]
    return {"milliseconds": round(total, 4), "n_kernels": len(times), "kernels": kernels}
