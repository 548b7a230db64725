"""What commands print of results."""
