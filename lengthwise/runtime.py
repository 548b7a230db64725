"""Where things run and who is told of it: the device, and listeners."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UserError

if TYPE_CHECKING:
    import torch

Row = dict[str, Any]


@dataclass(frozen=True)
class Listener:
    """What somebody is told while something is trained; the default listens to nothing.

    Progress bars, worker processes and trackers are listeners; nothing that they do changes a number.
    """

    step: Callable[[int, int], None] = lambda step, steps: None
    """So many steps of so many are done."""
    note: Callable[[str], None] = lambda text: None
    """Something that a person should know."""
    rows: Callable[[str, list[Row]], None] = lambda run, rows: None
    """Rows that were added to what is known of a run, by its name: losses and validations by `step`, then results."""
    done: Callable[[], None] = lambda: None
    """All of it is done."""


def together(listeners: Sequence[Listener]) -> Listener:
    """All of them, in their order."""

    def tell(what: str) -> Callable[..., None]:
        def each(*words: Any) -> None:
            for listener in listeners:
                getattr(listener, what)(*words)

        return each

    return Listener(tell("step"), tell("note"), tell("rows"), tell("done"))


def choose_device(name: str) -> "torch.device":
    """`auto` takes a GPU where there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()) or (kind == "cpu" and colon):
        raise UserError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:1")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device {name!r} is not there: PyTorch sees {torch.cuda.device_count()} GPUs; use --device cpu"
        )
    return torch.device(name)


def devices_of(chosen: "torch.device") -> "list[torch.device]":
    """Where processes side by side work: `cuda` without a number is every GPU of the machine."""
    import torch

    if chosen.type != "cuda" or chosen.index is not None:
        return [chosen]
    return [torch.device("cuda", index) for index in range(max(1, torch.cuda.device_count()))]


def device_name(device: "torch.device") -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
