"""Initial weights of a decoder, from a seed: our own modules as published, encodings and mixers as their constructors
leave them, or as they say themselves.
"""

import math
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
from lengthwise.kernels.linear import Linear
from lengthwise.mixers.attention import Attention
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.decoder import Decoder, Embedding
from lengthwise.model.norm import RMSNorm
from lengthwise.seeding import derive


@torch.no_grad()
def initialize(model: Decoder, seed: int) -> None:
    """Fills the parameters. Each has a stream of its own: models that differ in their encoding share the rest."""
    for name, parameter, deviation in initial_deviations(model):
        if deviation is None:
            parameter.fill_(1.0)
        else:
            parameter.copy_(_normal(parameter.shape, deviation, _generator(seed, name)).to(parameter.device))
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if not isinstance(module, Linear | RMSNorm):
            _reset(module, name, seed)
    for index, encoding in enumerate(model.distinct_encodings()):
        _initialize_component(encoding, f"encodings.{index}", seed)
    for layer, mixer in enumerate(model.mixers()):
        if mixer is not None:
            _initialize_component(mixer, f"blocks.{layer}.{mixer.name}", seed)


@torch.no_grad()
def _initialize_component(component: Encoding | Mixer, path: str, seed: int) -> None:
    """Fills its parameters; what is drawn depends on the seed and on the `path` of the component alone."""
    if isinstance(component, Composition):
        for index, method in enumerate(component.methods):
            _initialize_component(cast(Encoding, method), f"{path}.methods.{index}", seed)
        return
    made, untouched = _constructed_again(component, derive(seed, "initial", path))
    for name, parameter in component.named_parameters():
        parameter.copy_(made.get_parameter(name))
    for name in untouched:
        _reset(component.get_submodule(name), f"{path}.{name}", seed)
    for name, parameter in component.named_parameters():
        generator = _generator(seed, f"{path}.{name}")
        with registry.asking(component.name, type(component), "initial"):
            found = component.initial(name, generator)
        if found is not None:
            values = found if isinstance(found, Tensor) else _normal(parameter.shape, found, generator)
            parameter.copy_(values.to(parameter.device))


def _reset(module: nn.Module, path: str, seed: int) -> None:
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


def _is_ours(model: Decoder, name: str) -> bool:
    """Whether a parameter is of one of our own modules, whose initial values are the published ones."""
    if ".attention." in name:
        return True  # parts of its joined projection have no modules
    owner = model.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, Linear | RMSNorm | Embedding)


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, "initial", name))


def _normal(shape: torch.Size, deviation: float, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * deviation


def initial_deviations(model: Decoder) -> Iterator[tuple[str, Tensor, float | None]]:
    """Name, parameter and initial standard deviation; None for those that start at one.

    Encodings and mixers speak for themselves. A block's joined projection comes as its three parts, each with a name
    of its own.
    """
    config = model.config
    t5 = {
        "query": (config.width * config.head_width) ** -0.5,
        "key": config.width**-0.5,
        "value": config.width**-0.5,
        "attention.output": config.width**-0.5,
        "inner": config.width**-0.5,
        "feed_forward.output": config.inner_width**-0.5,
        "embedding": config.embedding_deviation,
    }
    # As in TinyLlama: what is added to the residual stream starts smaller the more layers add to it.
    residual = 0.02 / math.sqrt(2 * config.passes)
    llama = {"attention.output": residual, "feed_forward.output": residual}
    for name, parameter in _named_parts(model):
        path = name.split(".")
        if path[0] == "encodings" or not _is_ours(model, name):
            continue
        if parameter.ndim == 1:
            yield name, parameter, None
        elif config.style == "t5":
            yield name, parameter, t5[path[-2] if path[-2] != "output" else ".".join(path[-3:-1])]
        else:
            yield name, parameter, llama.get(".".join(path[-3:-1]), config.embedding_deviation)


def _named_parts(model: Decoder) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        if name.endswith("attention.projection.weight"):
            attention = cast(Attention, model.get_submodule(name.removesuffix(".projection.weight")))
            parts = parameter.split(list(attention.sizes.values()), dim=1)
            for part, weight in zip(attention.sizes, parts, strict=True):
                yield name.replace("projection", part), weight
        else:
            yield name, parameter
