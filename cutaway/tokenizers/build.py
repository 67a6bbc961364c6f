"""The kinds of tokenizer, each put together from its vocabulary: byte-level BPE, SentencePiece and WordPiece."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as pre

from cutaway.errors import CheckpointError

SPACE = "▁"
HIDDEN = "\N{WORD JOINER}"
"""Stands before a piece that a text must not become: no text has it there."""


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece vocabulary (Kudo and Richardson 2018, arXiv:1808.06226) and how its text is prepared.

    `ordinary` says which pieces text may become; the others are control tokens, bytes and unused ones. `whole` are
    pieces that are cut out of a text before all others.
    """

    tokens: Sequence[str]
    scores: Sequence[float]
    ordinary: Sequence[bool]
    unknown: int
    add_space_prefix: bool = True
    remove_extra_spaces: bool = False
    charsmap: bytes = b""
    whole: Sequence[str] = ()


def vocabulary(tokens: Sequence[str], where: str) -> dict[str, int]:
    """Token -> id. Raises CheckpointError when a token is there twice, as its text would have two ids."""
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if ids.setdefault(token, i) != i:
            raise CheckpointError(
                f"{where}: the token {token!r} has two ids, {ids[token]} and {i}; the file is damaged"
            )
    return ids


def byte_bpe(
    ids: dict[str, int], merges: Sequence[tuple[str, str]], cut: pre.PreTokenizer, *, ignore_merges: bool = False
) -> tokenizers.Tokenizer:
    """BPE over bytes (Sennrich et al. 2016, arXiv:1508.07909; over bytes: GPT-2, 2019)."""
    backend = tokenizers.Tokenizer(_bpe(ids, merges, ignore_merges=ignore_merges))
    backend.pre_tokenizer = cut
    backend.decoder = decoders.ByteLevel()
    return backend


def piece_bpe(pieces: Pieces, where: str) -> tokenizers.Tokenizer:
    """SentencePiece BPE: joins the two neighbours whose union has the highest score; bytes for unknown characters.

    A list of merges says the same: every way to split a piece into two others, best piece first.
    """
    ids = vocabulary(pieces.tokens, where)
    usable = {token for token, ordinary in zip(pieces.tokens, pieces.ordinary, strict=True) if ordinary}
    ranked = sorted(usable, key=lambda token: (-pieces.scores[ids[token]], ids[token]))
    merges = [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in usable and token[cut:] in usable
    ]
    unknown = pieces.tokens[pieces.unknown]
    backend = tokenizers.Tokenizer(
        _bpe(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True, ignore_merges=bool(pieces.whole))
    )
    _prepare_pieces(backend, pieces)
    return backend


def unigram(pieces: Pieces, where: str) -> tokenizers.Tokenizer:
    """SentencePiece unigram: the cutting with the largest sum of scores (Kudo 2018, arXiv:1804.10959)."""
    vocabulary(pieces.tokens, where)
    scored = [(token, float(score)) for token, score in zip(pieces.tokens, pieces.scores, strict=True)]
    has_bytes = "<0x0A>" in pieces.tokens
    backend = tokenizers.Tokenizer(models.Unigram(scored, pieces.unknown, byte_fallback=has_bytes))
    _prepare_pieces(backend, pieces)
    return backend


def _prepare_pieces(backend: tokenizers.Tokenizer, pieces: Pieces) -> None:
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if pieces.remove_extra_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if pieces.add_space_prefix:
        steps.append(normalizers.Prepend(SPACE))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    if pieces.whole:
        longest_first = sorted(pieces.whole, key=len, reverse=True)
        backend.pre_tokenizer = pre.Split(Regex("|".join(map(re.escape, longest_first))), "isolated")
    chain: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if pieces.add_space_prefix:
        chain.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(chain)


def word_piece(ids: dict[str, int], unknown: str, *, lowercase: bool, strip_accents: bool) -> tokenizers.Tokenizer:
    """WordPiece: the longest piece of the vocabulary first, then on from there (BERT, 2018, arXiv:1810.04805)."""
    backend = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    backend.pre_tokenizer = pre.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def add_tokens(backend: tokenizers.Tokenizer, special: Sequence[str], ordinary: Sequence[str] = ()) -> None:
    """Tokens that are found in a text before anything else, as they are written."""
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in ordinary])


def surround(
    backend: tokenizers.Tokenizer, before: Mapping[str, int], after: Mapping[str, int], twice: bool = False
) -> None:
    """Sets what `add_special_tokens` puts before and after a text (and after the second text of a pair).

    The second text has the type 1; with `twice` all have type 0, and what ends the first text stands there twice.
    """
    tokens = [{"id": role, "ids": [i], "tokens": [role]} for role, i in {**before, **after}.items()]
    single = [*before, "$A", *after]
    pair = [*single, *after, "$B", *after] if twice else [*single, "$B:1", *(f"{role}:1" for role in after)]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)


def _bpe(ids: dict[str, int], merges: Sequence[tuple[str, str]], **options: object) -> models.BPE:
    try:
        return models.BPE(ids, list(merges), **options)  # pyrefly: ignore
    except Exception as error:
        raise CheckpointError(f"the merges do not fit the vocabulary ({error}); the tokenizer is damaged") from error
