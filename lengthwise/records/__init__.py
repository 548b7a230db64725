"""Run directories and their rows: the only truth; everything shown is computed from them. Imports no torch."""
