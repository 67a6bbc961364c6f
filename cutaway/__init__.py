"""Cutaway: a Transformer you can see into, take apart and run.

Read the code in this order: spec (what a model is), reference (its mathematics), parts (the same in torch), models,
generation, checkpoints, tracing, loaded, ablation, cli. Names below are loaded when first used, so importing this costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "CutawayError": "errors", "SpecError": "errors", "CheckpointError": "errors", "InputError": "errors",
    "wanted": "tap", "listening": "tap",
    "record": "tracing.record", "Recording": "tracing.record", "edit": "tracing.edit",
    "preset": "spec", "count": "spec", "compared": "spec.facts", "source": "spec.source",
    "build": "models", "Given": "parts.step", "load": "loaded", "Loaded": "loaded", "pull": "checkpoints.pull",
    "convert": "checkpoints.convert", "Tokenizer": "tokenizers.tokenizer",
    "generate": "generation.loop", "Stream": "generation.loop", "Run": "generation.result",
    "Result": "generation.result", "Cache": "generation.cache", "remove": "ablation.surgery",
}  # fmt: skip
__all__ = [*_PUBLIC, "spec"]


def __getattr__(name: str) -> Any:
    if name == "spec":
        return importlib.import_module("cutaway.spec")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f"cutaway.{_PUBLIC[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
