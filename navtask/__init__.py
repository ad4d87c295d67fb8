"""Navigation tasks as vectorised environments."""
