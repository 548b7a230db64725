"""How a trained model is stretched: one file per extension."""
