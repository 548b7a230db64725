"""Our GPU kernels (Triton), each with an eager twin in plain PyTorch, and the operations that choose between them."""
