"""What a report says, computed from records: summaries, tables as data, comparisons."""
