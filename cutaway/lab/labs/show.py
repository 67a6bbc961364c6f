"""How the labs write numbers: rounded for the eye, never "-0.00", and plain lists for the page."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike


def fixed(x: SupportsFloat, digits: int = 2) -> str:
    """0.139 -> "0.14"."""
    return f"{round(float(x), digits) + 0.0:.{digits}f}"


def short(x: float, digits: int = 4) -> str:
    """2.50 -> "2.5" and 4.00 -> "4"."""
    text = fixed(x, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def vector(x: ArrayLike, digits: int = 2) -> str:
    """[1.7225, 0.2775] -> "[1.72, 0.28]"."""
    return f"[{', '.join(fixed(value, digits) for value in np.ravel(x))}]"


def short_vector(x: ArrayLike, digits: int = 4) -> str:
    """[4.0, 2.0, -2.5, -3.5] -> "[4, 2, -2.5, -3.5]"."""
    return f"[{', '.join(short(value, digits) for value in np.ravel(x))}]"


def size(x: float) -> str:
    """A length: "2.83" where two decimals say enough, else "1.8e-8"."""
    if x == 0 or 0.01 <= abs(x) < 1000:
        return fixed(x)
    digits, exponent = f"{x:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


def shape(sizes: tuple[int, ...]) -> str:
    """(3, 2) -> "(3, 2)"."""
    return f"({', '.join(map(str, sizes))})"


def plain(value: Any) -> Any:
    """Arrays and NumPy numbers as lists and numbers, in dicts and lists too; -0.0 becomes 0.0."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.ndarray():
            return (value + 0.0 if value.dtype.kind == "f" else value).tolist()
        case np.generic():
            return plain(value.item())
        case float():
            return value + 0.0
    return value
