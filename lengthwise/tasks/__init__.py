"""What is asked of a model: one file per task family, NumPy only."""
