"""Rows become terminal tables, figures and one interactive page; imports no torch and reads only `lengthwise.results`."""
