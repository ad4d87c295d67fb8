"""Batched physics behind one contract."""
