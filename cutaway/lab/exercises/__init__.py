"""The exercises: what is asked, a place to start, hidden cases, known mistakes with their messages, and a solution."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from cutaway.errors import InputError
from cutaway.lab.exercises.exercise import Exercise, told

IDS = (
    "layer-norm", "ffn-sublayer", "decoder", "rms-norm", "rotate", "swiglu", "positional-encoding", "attention",
    "causal-mask", "multi-head", "cross-attention", "kv-cache", "cross-entropy", "modern-block", "gpt", "gpt-rope",
)  # fmt: skip


@cache
def load(exercise_id: str, language: str = "en") -> Exercise:
    """The exercise of that id, told in that language. Raises InputError naming those that exist."""
    if exercise_id not in IDS:
        raise InputError(f"exercise {exercise_id[:40]!r}: there is none of that name; choose one of {', '.join(IDS)}")
    return told(import_module(f"{__name__}.{exercise_id.replace('-', '_')}").EXERCISE, language)
