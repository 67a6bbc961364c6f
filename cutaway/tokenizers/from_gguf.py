"""The tokenizer inside of a GGUF file, from the plain values of its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from cutaway.errors import CheckpointError
from cutaway.tokenizers import build
from cutaway.tokenizers.pretokenizers import byte_level
from cutaway.tokenizers.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
ROLES = {
    "bos": ("bos",), "eos": ("eos",), "unk": ("unknown",), "pad": ("padding",), "cls": ("cls",),
    "sep": ("seperator", "separator"), "mask": ("mask",), "eot": ("eot",), "eom": ("eom",),
}  # fmt: skip


def from_gguf(values: Mapping[str, Any], where: str) -> Tokenizer:
    """A tokenizer from the metadata of a GGUF file (`tokenizer.ggml.*`, `tokenizer.chat_template*`).

    Raises CheckpointError, saying which field of `where` is missing, malformed or not known here.
    """
    return _Reader(values, where).tokenizer()


class _Reader:
    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where
        self.tokens: list[str] = self.listed("tokens", str)
        self.types: list[int] = self.listed("token_type", int, [NORMAL] * len(self.tokens))
        self.special = {role: i for role, names in ROLES.items() if (i := self.role(names)) is not None}

    def fail(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: {what}; the file has no tokenizer that can be used, name another file")

    def plain(self, name: str, kind: type, default: Any) -> Any:
        value = self.values.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, kind):
            raise self.fail(f"tokenizer.ggml.{name} is {type(value).__name__}, {kind.__name__} is wanted")
        return value

    def listed(self, name: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        found = self.values.get(f"tokenizer.ggml.{name}", default)
        if found is None:
            raise self.fail(f"tokenizer.ggml.{name} is missing")
        items = found if isinstance(found, list) else getattr(found, "tolist", lambda: [found])()
        if not all(isinstance(item, kind) for item in items):
            raise self.fail(f"tokenizer.ggml.{name} is no list of {kind.__name__}")
        if name in ("token_type", "scores") and len(items) != len(self.tokens):
            raise self.fail(f"tokenizer.ggml.{name} has {len(items)} items, but there are {len(self.tokens)} tokens")
        return items

    def role(self, names: Sequence[str]) -> int | None:
        for name in names:
            key = f"{name}_token_id"
            if f"tokenizer.ggml.{key}" in self.values:
                i = self.plain(key, int, -1)
                if not 0 <= i < len(self.tokens):
                    raise self.fail(f"tokenizer.ggml.{key} is {i}, but there are {len(self.tokens)} tokens")
                return i
        return None

    def of_type(self, *types: int) -> list[str]:
        return [token for token, type_ in zip(self.tokens, self.types, strict=True) if type_ in types]

    def tokenizer(self) -> Tokenizer:
        kinds = {"gpt2": self.bytes_, "llama": self.pieces, "t5": self.pieces, "bert": self.words}
        kind = self.plain("model", str, "")
        if kind not in kinds:
            raise self.fail(f"tokenizer.ggml.model is {kind!r}, known are {', '.join(kinds)}")
        backend, add_bos, add_eos = kinds[kind]()
        self.around(backend, self.plain("add_bos_token", bool, add_bos), self.plain("add_eos_token", bool, add_eos))
        templates = {}
        for key, source in self.values.items():
            if key.startswith("tokenizer.chat_template") and isinstance(source, str):
                templates[key.removeprefix("tokenizer.chat_template").lstrip(".") or "default"] = source
        return Tokenizer(backend, self.special, templates)

    def around(self, backend: tokenizers.Tokenizer, add_bos: bool, add_eos: bool) -> None:
        before = next((r for r in ("bos", "cls") if r in self.special), None) if add_bos else None
        ends = ("sep", "eos") if self.plain("add_sep_token", bool, "cls" in self.special) else ("eos", "sep")
        after = next((r for r in ends if r in self.special), None) if add_eos else None
        if (add_bos and before is None) or (add_eos and after is None):
            raise self.fail("a begin or end token is to be added, but the file names none")
        if before or after:
            build.surround(
                backend, {before: self.special[before]} if before else {}, {after: self.special[after]} if after else {}
            )

    def bytes_(self) -> tuple[tokenizers.Tokenizer, bool, bool]:
        cut, rule = byte_level(self.plain("pre", str, "default"))
        merges = []
        for merge in self.listed("merges", str):
            left, _, right = merge[1:].partition(" ")  # the first character may itself be a space
            merges.append((merge[:1] + left, right))
        ids = build.vocabulary(self.tokens, self.where)
        backend = build.byte_bpe(ids, merges, cut, ignore_merges=rule.ignore_merges)
        build.add_tokens(backend, self.of_type(CONTROL, UNKNOWN), self.of_type(USER_DEFINED))
        return backend, rule.add_bos, False

    def pieces(self) -> tuple[tokenizers.Tokenizer, bool, bool]:
        is_unigram = self.values["tokenizer.ggml.model"] == "t5"
        charsmap = self.listed("precompiled_charsmap", int, [])
        pieces = build.Pieces(
            self.tokens,
            self.listed("scores", float),
            [type_ == NORMAL for type_ in self.types],
            self.special.get("unk", 0),
            self.plain("add_space_prefix", bool, True),
            self.plain("remove_extra_whitespaces", bool, False),
            bytes(number & 255 for number in charsmap),
        )
        backend = (build.unigram if is_unigram else build.piece_bpe)(pieces, self.where)
        build.add_tokens(backend, self.of_type(CONTROL), self.of_type(USER_DEFINED))
        return backend, not is_unigram, is_unigram

    def words(self) -> tuple[tokenizers.Tokenizer, bool, bool]:
        tokens = [_word(token) for token in self.tokens]
        lowercase = self.plain("normalizer.lowercase", bool, True)
        unknown = self.special.get("unk")
        backend = build.word_piece(
            build.vocabulary(tokens, self.where),
            "[UNK]" if unknown is None else tokens[unknown],
            lowercase=lowercase,
            strip_accents=self.plain("normalizer.strip_accents", bool, lowercase),
        )
        roles = {tokens[i] for i in self.special.values()}
        control = {_word(token) for token in self.of_type(CONTROL, UNKNOWN)}
        build.add_tokens(backend, sorted(control | roles, key=tokens.index))
        return backend, True, True


def _word(token: str) -> str:
    """GGUF marks the beginnings of words where WordPiece marks the rest of them."""
    if token.startswith(build.SPACE):
        return token[1:]
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"
