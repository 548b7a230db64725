"""The decoder: an ordinary module, written for one model."""
