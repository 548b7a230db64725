"""Rows -> terminal tables, figures, one interactive page. Imports no torch and reads only `lengthwise.records`."""
