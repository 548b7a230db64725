"""From a plan to finished runs: the loop, fleets, steps, the optimizer, states."""
