"""Language models: documents to tokens, tokens to rows, rows to a trained decoder with its tokenizer."""
