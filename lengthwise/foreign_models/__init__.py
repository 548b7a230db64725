"""Any model on our tasks: a Hugging Face folder, an object, or a server that answers over HTTP."""
