"""How the context of a trained model is extended: one file per extension."""
