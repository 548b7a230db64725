"""What a trained model gets right: exact match by length in one pass, and by generation where that is needed."""
