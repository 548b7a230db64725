"""How models are trained: data by step, fleets of equal shape, the optimizer, checkpoints."""
