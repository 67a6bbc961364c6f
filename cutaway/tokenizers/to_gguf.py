"""A tokenizer as the metadata of a GGUF file: the way back from `from_gguf`."""

from __future__ import annotations

import base64
import json
from typing import Any

from cutaway.errors import CheckpointError
from cutaway.tokenizers.build import SPACE
from cutaway.tokenizers.from_gguf import CONTROL, NORMAL, ROLES, UNKNOWN, USER_DEFINED
from cutaway.tokenizers.pretokenizers import BY_NAME, byte_level
from cutaway.tokenizers.tokenizer import Tokenizer

UNUSED, BYTE = 5, 6
PROBE = (
    "Hello world! I'll it'S we'RE  two   three    four.\n\nline\r\n\t tab \n x_y(z)=1 3.14 12345678 ½² naïve ÉTÉ "
    "camelCase HTTPServer 日本語テキスト 한국어 русский عربي, हिन्दी 🙂🏳️‍🌈 a\u0301 €$+<=>^~|` “q” … ¡a //x \u00a0end  "
)
"""A text in which the known ways of cutting differ."""


def to_gguf(tokenizer: Tokenizer, vocab_size: int | None = None) -> dict[str, Any]:
    """`tokenizer.*` fields by name, as plain values; a larger `vocab_size` is filled up with unused tokens.

    Raises CheckpointError when the tokenizer does something that GGUF has no name for.
    """
    parts = json.loads(tokenizer.backend.to_str())
    kinds = {"BPE": _bpe, "Unigram": _unigram, "WordPiece": _words}
    kind = parts["model"]["type"]
    if kind not in kinds:
        raise CheckpointError(f"GGUF has no tokenizer of the kind {kind}; export to another format")
    tokens, types = _tokens(tokenizer, max(vocab_size or 0, tokenizer.vocab_size))
    fields = {"tokens": tokens, "token_type": types} | kinds[kind](tokenizer, parts, tokens, types)
    for role, i in tokenizer.special.items():
        fields[f"{ROLES[role][0]}_token_id"] = i
    fields |= _around(tokenizer)
    named = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    for name, source in tokenizer.templates.items():
        named["tokenizer.chat_template" + ("" if name == "default" else f".{name}")] = source
    return named


def _tokens(tokenizer: Tokenizer, n: int) -> tuple[list[str], list[int]]:
    added = {
        i: CONTROL if token.special else USER_DEFINED
        for i, token in tokenizer.backend.get_added_tokens_decoder().items()
    }
    found = [tokenizer.backend.id_to_token(i) for i in range(n)]
    types = [UNUSED if token is None else added.get(i, NORMAL) for i, token in enumerate(found)]
    return [f"[PAD{i}]" if token is None else token for i, token in enumerate(found)], types


def _around(tokenizer: Tokenizer) -> dict[str, bool]:
    """Whether a begin and an end token are put around a text, read off what becomes of an empty one."""
    ids = tokenizer.encode("")
    begins = [tokenizer.special.get(role) for role in ("bos", "cls")]
    before = bool(ids) and ids[0] in begins and not (len(ids) == 1 and ids[0] == tokenizer.special.get("eos"))
    after = len(ids) > before
    if len(ids) != before + after:
        raise CheckpointError(f"GGUF can put one token before a text and one after it, not {ids}; export elsewhere")
    return {"add_bos_token": before, "add_eos_token": after}


def _bpe(tokenizer: Tokenizer, parts: dict[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    model = parts["model"]
    if model.get("byte_fallback"):
        return _pieces(parts, tokens, types) | {"model": "llama", "scores": _ranks(model, tokens)}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {"model": "gpt2", "pre": _cutting(tokenizer, bool(model.get("ignore_merges"))), "merges": merges}


def _cutting(tokenizer: Tokenizer, ignore_merges: bool) -> str:
    """The name under which GGUF knows this way of cutting: the one that cuts the probe alike."""
    cut = tokenizer.backend.pre_tokenizer
    if cut is not None and tokenizer.backend.normalizer is None:
        pieces = [piece for piece, _ in cut.pre_tokenize_str(PROBE)]
        for name, rule in BY_NAME.items():
            known, _ = byte_level(name)
            if rule.ignore_merges == ignore_merges and [p for p, _ in known.pre_tokenize_str(PROBE)] == pieces:
                return name
    raise CheckpointError("GGUF has no name for the way in which this tokenizer cuts text; export to another format")


def _ranks(model: dict[str, Any], tokens: list[str]) -> list[float]:
    """Scores by which SentencePiece joins in the order of the merges."""
    rank: dict[str, int] = {}
    for i, pair in enumerate(model["merges"]):
        rank.setdefault("".join(pair.split(" ") if isinstance(pair, str) else pair), i)
    return [-float(rank.get(token, len(rank) + i)) for i, token in enumerate(tokens)]


def _unigram(tokenizer: Tokenizer, parts: dict[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    scores = [float(score) for _, score in parts["model"]["vocab"]]
    types[parts["model"]["unk_id"]] = UNKNOWN
    return _pieces(parts, tokens, types) | {"model": "t5", "scores": scores + [0.0] * (len(tokens) - len(scores))}


def _pieces(parts: dict[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    for i, token in enumerate(tokens):
        if types[i] == NORMAL and len(token) == 6 and token.startswith("<0x"):
            types[i] = BYTE
    if (unknown := parts["model"].get("unk_token")) in tokens:
        types[tokens.index(unknown)] = UNKNOWN
    steps = _flat(parts["normalizer"], "normalizers") + _flat(parts["pre_tokenizer"], "pretokenizers")
    prefix = any(s["type"] == "Prepend" or s.get("prepend_scheme", "never") != "never" for s in steps)
    spaces = any(s["type"] == "Replace" and "{2,}" in str(s["pattern"]) for s in steps)
    fields: dict[str, Any] = {"add_space_prefix": prefix, "remove_extra_whitespaces": spaces}
    for step in steps:
        if step["type"] == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"])
            fields["precompiled_charsmap"] = [byte - 256 if byte > 127 else byte for byte in table]
    return fields


def _flat(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    return [step for inner in part[key] for step in _flat(inner, key)] if part["type"] == "Sequence" else [part]


def _words(tokenizer: Tokenizer, parts: dict[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    for i, token in enumerate(tokens):
        if not (token.startswith("[") and token.endswith("]")):
            tokens[i] = token[2:] if token.startswith("##") else SPACE + token
    normalizer = parts["normalizer"] or {}
    lowercase = bool(normalizer.get("lowercase", False))
    accents = normalizer.get("strip_accents")
    return {
        "model": "bert",
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": lowercase if accents is None else bool(accents),
    }
