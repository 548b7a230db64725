"""The command line: every command is defined here; the work is done in the rooms that it calls."""

from lengthwise.cli.main import main

__all__ = ["main"]
