"""Cutaway: a Transformer you can see into, take apart and run.

Read the code in this order: spec (what a model is), reference (its mathematics), parts (the same in torch), models,
generation, checkpoints, loaded, cli. Names below are loaded when first used, so importing this costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "CutawayError": "errors", "SpecError": "errors", "CheckpointError": "errors", "InputError": "errors",
    "wanted": "tap", "listening": "tap",
    "build": "models", "load": "loaded", "Loaded": "loaded", "Given": "parts.step", "Cache": "generation.cache",
    "generate": "generation.loop", "Result": "generation.result", "preset": "spec", "remove": "ablation.surgery",
    "pull": "checkpoints.pull", "Tokenizer": "tokenizers.tokenizer",
}  # fmt: skip
__all__ = [*_PUBLIC, "spec"]


def __getattr__(name: str) -> Any:
    if name == "spec":
        return importlib.import_module("cutaway.spec")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cutaway.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
