"""The labs: pure functions from a state to what is seen, in plain JSON values.

Every lab is a module with `DEFAULT` (its whole first state) and `run(state, say)`, which raises InputError naming the
key, the value and what is legal; `say` holds the lab's words in one language. Every result holds `text`, one sentence
that says what is seen, and `numbers`, the printed numbers by name. The labs and all that they import need NumPy and
the standard library alone.
"""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from types import ModuleType

from cutaway.errors import InputError
from cutaway.lab.labs.say import words

IDS = (
    "order", "pe", "ffn", "layernorm", "stack", "block", "residual-path", "norms", "rope", "swiglu", "mask",
    "embeddings", "attention", "heads", "depth", "whole-model", "small-gpt", "encoder-decoder", "sampling", "kv-cache",
)  # fmt: skip
LABS = {lab: f"cutaway.lab.labs.{lab.replace('-', '_')}" for lab in IDS}


def run(lab: str, state: dict, language: str = "en") -> dict:
    """The lab's result for its default state with the given values laid over it."""
    return _module(lab).run(state, words(lab, language))


def default(lab: str) -> dict:
    """The lab's whole first state."""
    return deepcopy(_module(lab).DEFAULT)


def _module(lab: str) -> ModuleType:
    if lab not in LABS:
        raise InputError(f"lab {lab!r}: there is none of that name; choose one of {', '.join(IDS)}")
    return import_module(LABS[lab])
