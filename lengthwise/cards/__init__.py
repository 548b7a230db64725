"""Cards of methods: what they say about themselves, and pictures of what they do, drawn from a fresh model."""
