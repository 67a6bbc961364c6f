"""What the tests of decoder families share: a small configuration, and the older layout."""

from __future__ import annotations

import json
from pathlib import Path

from cutaway.checkpoints import hf
from tests.checkpoints.families.tiny import TOKENS, rewrite

SMALL = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
} | TOKENS  # fmt: skip


def older(folder: Path, drop: tuple[str, ...] = (), **changes: object) -> Path:
    """config.json in the layout of transformers 4: `rope_theta` beside `rope_scaling`."""
    data = json.loads((folder / "config.json").read_text())
    rope = data["rope_parameters"]
    base = {"rope_theta": rope.pop("rope_theta"), "rope_scaling": None if rope["rope_type"] == "default" else rope}
    if "partial_rotary_factor" in rope:
        base["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    return rewrite(folder, ("rope_parameters", *drop), **base, torch_dtype="float32", **changes)


def same_spec_when_older(folder: Path, drop: tuple[str, ...] = (), **changes: object) -> None:
    """Both layouts of a folder's config.json say the same."""
    newer = hf.read_spec(folder)[0]
    assert hf.read_spec(older(folder, drop, **changes))[0] == newer
