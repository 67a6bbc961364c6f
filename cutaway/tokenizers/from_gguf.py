"""The tokenizer inside a GGUF file: byte-level BPE with its pre-tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from cutaway.errors import CheckpointError
from cutaway.tokenizers.tokenizer import Tokenizer

CONTROL, USER_DEFINED = 3, 4
ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "eot": "eot", "eom": "eom"}


def from_gguf(values: Mapping[str, Any], where: str) -> Tokenizer:
    """A tokenizer from a file's metadata. Raises CheckpointError for a kind that is not known."""
    kind, pre = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in PRE:
        raise CheckpointError(f"{where}: tokenizer {kind!r} with pre-tokenizer {pre!r} is not known; known is gpt2 "
                              f"with {', '.join(sorted(PRE))}")  # fmt: skip
    tokens = list(values["tokenizer.ggml.tokens"])
    merges = [tuple(merge.split(" ", 1)) for merge in values.get("tokenizer.ggml.merges", [])]
    backend = tokenizers.Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = PRE[pre]()
    backend.decoder = decoders.ByteLevel()
    kinds = [int(k) for k in values.get("tokenizer.ggml.token_type", [])]
    for token, its in zip(tokens, kinds, strict=False):
        if its in (CONTROL, USER_DEFINED):
            backend.add_special_tokens([AddedToken(token, special=its == CONTROL, normalized=False)])
    special = {
        role: int(values[f"tokenizer.ggml.{key}_token_id"])
        for key, role in ROLES.items()
        if f"tokenizer.ggml.{key}_token_id" in values
    }
    if values.get("tokenizer.ggml.add_bos_token"):
        bos = tokens[special["bos"]]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, special["bos"])]
        )
    template = values.get("tokenizer.chat_template")
    return Tokenizer(backend, special, {"default": template} if template else {})


def _digits() -> pre_tokenizers.PreTokenizer:
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_])


def _bytes() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


PRE = {"smollm": _digits, "gpt-2": _bytes, "default": _bytes}
