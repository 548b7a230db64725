"""Language models beyond the length they were trained on: perplexity, passkeys, entropy, and what helps."""
