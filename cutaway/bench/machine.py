"""The machine's own limits: bytes a second that it reads, FLOP a second that it multiplies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

READ = 1 << 28
"""Bytes that are read to measure the bandwidth: more than a cache holds."""
SIDE = 1024
ROUNDS = 5


@dataclass(frozen=True)
class Machine:
    """Bytes a second and FLOP a second, both the best of several rounds, with the threads that torch has."""

    bandwidth: float
    flop_rate: float
    threads: int


def measure_machine(dtype: torch.dtype = torch.float32) -> Machine:
    """Read bandwidth by a matrix-vector product over 256 MB, FLOP rate by a product of two 1024 x 1024 matrices."""
    width = 8192
    matrix = torch.ones(READ // width // dtype.itemsize, width, dtype=dtype)
    vector, square = torch.ones(width, dtype=dtype), torch.ones(SIDE, SIDE, dtype=dtype)
    with torch.inference_mode():
        read, multiplied = _best(lambda: matrix @ vector), _best(lambda: square @ square)
    return Machine(matrix.nbytes / read, 2 * SIDE**3 / multiplied, torch.get_num_threads())


def _best(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)
