"""A report as Markdown."""
