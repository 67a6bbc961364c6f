"""Fresh numbers for the skip tests: each generator draws them, and computes the right answer and the likely wrong ones.

A chapter's generators stand in the module of its name; `TESTS` there holds them by question, in their order.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from cutaway.lab.labs.quiz.fresh import Fresh, Generator

__all__ = ["Fresh", "fresh", "generators"]


def generators(chapter: str) -> dict[str, Generator]:
    """The chapter's five generators by question."""
    return import_module(f"cutaway.lab.labs.quiz.{chapter.replace('-', '_')}").TESTS


def fresh(chapter: str, question: str, seed: int) -> Fresh:
    """The question's numbers for this seed: always the same, and no mistake leads to the right answer."""
    tests = generators(chapter)
    rng = np.random.default_rng([seed, list(tests).index(question)])
    while True:
        drawn = tests[question](rng)
        if drawn.tells_mistakes_apart():
            return drawn
