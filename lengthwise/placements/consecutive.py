"""Positions 0, 1, 2 and so on."""

from collections.abc import Mapping

import numpy as np

from lengthwise.placements.placement import Generators, Placement


class Consecutive(Placement):
    """Positions 0, 1, 2 and so on, as usual."""

    name = "consecutive"

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> None:
        return None
