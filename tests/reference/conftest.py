"""Gradients by central differences, against which those by hand are held."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

Gradient = Callable[[Callable[[np.ndarray], float], np.ndarray], np.ndarray]


@pytest.fixture
def gradient() -> Gradient:
    """gradient(loss, x): dLoss/dx, one number of x moved at a time."""

    def differences(loss: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
        out = np.zeros_like(x)
        for place in np.ndindex(*x.shape):
            move = np.zeros_like(x)
            move[place] = step
            out[place] = (loss(x + move) - loss(x - move)) / (2 * step)
        return out

    return differences
