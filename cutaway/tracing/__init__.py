"""Seeing inside: the names of all tensors, recordings of them, edits, and what can be read from both."""
