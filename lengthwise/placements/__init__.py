"""Which position a token gets: one file per placement."""
