"""Looking into models: what they can do, and how they do it."""
