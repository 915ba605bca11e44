"""Checks of where random numbers come from, and of what a call leaves behind."""

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.testing.subject import NotApplicableError, Subject, is_close


def has_dropout(module: nn.Module) -> bool:
    """Whether anything in it says that it drops out; PyTorch's own kernels do so from the global generator."""
    rates = [getattr(part, name, 0) for part in module.modules() for name in ("dropout", "p")]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def _modes(subject: Subject) -> list[nn.Module]:
    """The module in eval mode, and in training mode unless it has a dropout."""
    modes = [subject.module]
    return modes if has_dropout(subject.module) else [*modes, subject.copy().train()]


def check_repeatable(subject: Subject) -> None:
    """The same generator seed gives the same output, in training and in eval mode, with gradients and without."""
    tokens = subject.padded_tokens()
    for is_training in (False, True):
        module = subject.copy().train(is_training)
        found = []
        for _ in range(3):
            torch.manual_seed(0)  # for a dropout of PyTorch's own
            found.append(subject.attend(tokens, 3, module=module).values.detach())
        torch.manual_seed(0)
        with torch.no_grad():
            found.append(subject.attend(tokens, 3, module=module).values)
        if not all(is_close(found[0], other, 1e-5) for other in found[1:]):
            mode = "training" if is_training else "eval"
            do = "draw every number from the generator, and keep no state"
            raise SbmtError(f"the same values from the same seed in {mode} mode", "others", do)


def check_global_generator(subject: Subject) -> None:
    """A call with a generator neither reads nor moves PyTorch's global generators."""
    tokens = subject.padded_tokens()
    for module in _modes(subject):
        found = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            before = _global_states()
            found.append(subject.attend(tokens, 3, module=module).values.detach())
            if not all(torch.equal(a, b) for a, b in zip(before, _global_states(), strict=True)):
                raise SbmtError("global generators untouched", "one that has moved", "draw from the generator given")
        if not is_close(found[0], found[1], 1e-5):
            got = "values that follow the global seed"
            raise SbmtError("values that follow the generator alone", got, "draw from the generator given")


def _global_states() -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states + torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else states


def check_generator_governs(subject: Subject) -> None:
    """What is random follows the generator's seed where one is given, and ``torch.manual_seed`` where none is."""
    tokens = subject.tokens()

    def free(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return subject.attend(tokens, generator=None).values.detach()

    by_global = [free(seed) for seed in range(8)]
    is_random = not all(is_close(by_global[0], other, 1e-6) for other in by_global[1:])
    if is_random and not is_close(by_global[0], free(0), 1e-5):
        do = "draw from torch's default generator where none is given"
        raise SbmtError("the same values after the same torch.manual_seed", "others", do)
    if is_random and not subject.is_random:
        got = "the same values for eight seeds, though they are random without a generator"
        raise SbmtError("other values from other generator seeds", got, "draw from the generator given")
    if not is_random and not subject.is_random:
        raise NotApplicableError("nothing about its values is random in eval mode")
    if subject.is_random and not is_random:
        raise SbmtError(
            "random values without a generator too", "the same for eight seeds", "draw from torch's default"
        )


def check_leaves_no_trace(subject: Subject) -> None:
    """A call in eval mode changes neither its inputs nor the module's parameters and buffers."""
    module, tokens = subject.copy(), subject.padded_tokens()
    inputs = tokens.changed(torch.clone)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    subject.attend(inputs, module=module)
    for name in ("query", "key", "value", "mask"):
        if not torch.equal(getattr(tokens, name), getattr(inputs, name)):
            raise SbmtError(f"{name} left as it was", "another", "write to a copy")
    for name, tensor in module.state_dict().items():
        if not torch.equal(tensor, state[name]):
            raise SbmtError(f"{name} left as it was in eval mode", "another", "learn while training only")
