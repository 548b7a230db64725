"""Pages of a report: self-contained HTML."""
