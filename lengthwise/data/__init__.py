"""How what a task writes becomes what a model reads."""
