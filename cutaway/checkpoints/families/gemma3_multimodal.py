"""Gemma 3 with pictures: the part that reads and writes text, as `gemma3_text`; what sees pictures is not loaded."""

from __future__ import annotations

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.families.gemma import COUNTS, rules
from cutaway.checkpoints.families.gemma3 import to_config, to_spec
from cutaway.checkpoints.family import Family
from cutaway.errors import CheckpointError

ABSENT = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "query_pre_attn_scalar": 256,
}  # fmt: skip
"""What the published files leave out, with the values that their own software takes then."""


def text_spec(config: Config) -> Stack:
    """config.json to a spec of its `text_config`."""
    table = config.take("text_config")
    if not isinstance(table, dict):
        raise CheckpointError(f"{config.where}: text_config is {table!r}, expected a table")
    missing = {key: value for key, value in ABSENT.items() if key not in table}
    tied = {"tie_word_embeddings": config.flag("tie_word_embeddings", True)}
    inner = Config(tied | table | missing | {"architectures": None}, f"{config.where}: text_config")
    record = to_spec(inner)
    inner.ignore(hf.BOOKKEEPING | COUNTS)
    inner.finish()
    config.defaulted.update(inner.defaulted | missing)
    return record


def renamed(name: str) -> str:
    """The text part's names as they are where it stands alone."""
    for old in ("language_model.model.", "model.language_model."):
        if name.startswith(old):
            return f"model.{name.removeprefix(old)}"
    return name.removeprefix("language_model.") if name.startswith("language_model.lm_head.") else name


PICTURES = "of pictures, which are not read"
FAMILIES = (
    Family(
        ("gemma3",), (spec.Decoder, spec.Encoder), text_spec, rules, to_config, renamed=renamed, prefix="model.",
        ignored_tensors=("*rotary_emb.inv_freq", "vision_tower.*", "multi_modal_projector.*"),
        ignored_keys={
            "vision_config": PICTURES, "mm_tokens_per_image": PICTURES, "*_token_index": PICTURES,
            "image_token_id": PICTURES,
        },
    ),
)  # fmt: skip
