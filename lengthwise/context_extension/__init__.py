"""Trained models meet longer contexts: perplexity, passkeys, entropy, fits, and the table of all of them."""
