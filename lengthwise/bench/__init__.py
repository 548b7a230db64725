"""How fast things are, beside what people use today; timings are reported, never asserted."""
