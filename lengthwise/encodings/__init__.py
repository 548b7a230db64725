"""How position enters a decoder: one file per encoding, named after it."""
