"""Names of activations in configurations, to ours and back."""

from __future__ import annotations

from cutaway.spec.feedforward import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu", "gelu_python": "gelu",
    "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh", "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu",
    "tanh": "tanh", "sigmoid": "sigmoid", "linear": "identity",
}  # fmt: skip
"""Theirs to ours. The tanh forms of GELU are one formula written in several ways."""

THEIRS: dict[str, str] = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""Ours to the first of theirs that means it."""
