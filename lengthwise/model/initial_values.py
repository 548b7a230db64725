"""Initial values of an encoding or a mixer: as its constructor leaves them, from the run's seed, or as it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from lengthwise import registry
from lengthwise.encodings.composition import Composition
from lengthwise.encodings.encoding import Encoding
from lengthwise.mixers.mixer import Mixer
from lengthwise.seeding import derive


@torch.no_grad()
def initialize_component(component: Encoding | Mixer, path: str, seed: int) -> None:
    """Fills its parameters; what is drawn depends on the seed and on the `path` of the component alone."""
    if isinstance(component, Composition):
        for index, method in enumerate(component.methods):
            initialize_component(cast(Encoding, method), f"{path}.methods.{index}", seed)
        return
    made, untouched = _constructed_again(component, derive(seed, "initial", path))
    for name, parameter in component.named_parameters():
        parameter.copy_(made.get_parameter(name))
    for name in untouched:
        reset(component.get_submodule(name), f"{path}.{name}", seed)
    for name, parameter in component.named_parameters():
        generator = torch.Generator().manual_seed(derive(seed, "initial", f"{path}.{name}"))
        with registry.asking(component.name, type(component), "initial"):
            found = component.initial(name, generator)
        if found is not None:
            drawn = found if isinstance(found, Tensor) else torch.randn(parameter.shape, generator=generator) * found
            parameter.copy_(drawn.to(parameter.device))


def reset(module: nn.Module, path: str, seed: int) -> None:
    """Modules of PyTorch know how to begin; others are left as they are."""
    if callable(getattr(module, "reset_parameters", None)):
        # They draw from the global generator of their device. On the CPU: the same on every device.
        drawn: Any = deepcopy(module).cpu()
        with _drawing_from(derive(seed, "initial", path)):
            drawn.reset_parameters()
        module.load_state_dict(drawn.state_dict())


def _constructed_again(component: Encoding | Mixer, seed: int) -> tuple[nn.Module, list[str]]:
    """The same component, constructed once more with what it draws from the seed; and which of the modules of PyTorch
    in it the constructor left as they had begun by themselves."""
    states: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, name: str, parameter: Any) -> None:
        """A module makes its parameters before it draws their values."""
        if module not in states:
            states[module] = torch.get_rng_state()

    with torch.device("cpu"), _drawing_from(seed):
        watched = register_module_parameter_registration_hook(note)
        try:
            made = type(component)(component.config, component.geometry)
        finally:
            watched.remove()
    modules = made.named_modules()
    return made, [name for name, each in modules if each in states and _is_untouched(each, states[each])]


def _is_untouched(module: nn.Module, state: Tensor) -> bool:
    """Whether the module is as it makes itself where the generator is in this state."""
    again: Any = deepcopy(module)
    if not callable(getattr(again, "reset_parameters", None)):
        return False
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        again.reset_parameters()
    return all(torch.equal(one, other) for one, other in zip(module.parameters(), again.parameters(), strict=True))


@contextmanager
def _drawing_from(seed: int) -> Iterator[None]:
    """What is drawn from PyTorch's global generator of the CPU meanwhile comes from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
