"""A long short-term memory (Hochreiter and Schmidhuber 1997), with a forget gate: one layer, then a product.

    c_t = f_t * c_(t-1) + i_t * tanh(...),   h_t = o_t * tanh(c_t),   gates from x_t and h_(t-1)

The next state depends on the last one in a way that no product of matrices can skip: there is a loop over tokens.
Shape letters: B batch, T tokens, D model width, W state width, G = 4 W for the gates.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.mixers.memory import keep, recall
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.layer import LayerPass


class Lstm(Mixer):
    """A long short-term memory: the recurrent network from before attention. Slow: one token after the other."""

    name = "lstm"
    card = Card(
        kind="mixer",
        equation="c_t = f_t c_(t-1) + i_t tanh(u_t), h_t = o_t tanh(c_t)",
        source="Hochreiter and Schmidhuber 1997",
    )

    @dataclass(frozen=True)
    class Config:
        expand: float = 1.0
        """Width of the state, in widths of the model."""

        def __post_init__(self) -> None:
            if not self.expand > 0:
                raise ValueError(f"expand must be above 0, not {self.expand}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.input = nn.Linear(geometry.width, 4 * self.state_width)
        self.recurrent = nn.Linear(self.state_width, 4 * self.state_width, bias=False)
        self.output = nn.Linear(self.state_width, geometry.width, bias=False)

    @property
    def state_width(self) -> int:
        return max(1, round(self.config.expand * self.geometry.width))

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        hidden_BW, cell_BW = recall(here, x_BTD, [(self.state_width,), (self.state_width,)])
        goes_on_BT1 = here.layout.continues_BT[..., None].float()
        found = []
        for given_BG, goes_on_B1 in zip(self.input(x_BTD).unbind(1), goes_on_BT1.unbind(1), strict=True):
            hidden_BW, cell_BW = hidden_BW * goes_on_B1, cell_BW * goes_on_B1
            gates_BG = given_BG.float() + self.recurrent(hidden_BW.to(x_BTD.dtype)).float()
            enters, stays, shown, new = gates_BG.chunk(4, dim=-1)
            cell_BW = torch.sigmoid(stays) * cell_BW + torch.sigmoid(enters) * torch.tanh(new)
            hidden_BW = torch.sigmoid(shown) * torch.tanh(cell_BW)
            found.append(hidden_BW)
        keep(here, [hidden_BW, cell_BW])
        return self.output(torch.stack(found, dim=1).to(x_BTD.dtype))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        if name == "input.bias":  # cells remember at first (Jozefowicz et al. 2015)
            parts = torch.zeros(4, self.state_width)
            parts[1] = 1.0
            return parts.flatten()
        return (self.geometry.width if name.startswith("input") else self.state_width) ** -0.5

    def resolved(self) -> dict[str, Any]:
        return {"state_width": self.state_width}
