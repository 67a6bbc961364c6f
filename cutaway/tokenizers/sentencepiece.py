"""SentencePiece model files, read without the library of that name: a small protocol buffer of pieces and settings.

Only the fields that decide how a text is cut are read. Format: `sentencepiece_model.proto` of SentencePiece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from cutaway.errors import CheckpointError
from cutaway.tokenizers import build

PIECES, TRAINER, NORMALIZER = 1, 2, 3
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
UNIGRAM, BPE = 1, 2


@dataclass(frozen=True)
class Model:
    """What a file says: its pieces, the control tokens among them, and whether it cuts by BPE or by unigram."""

    pieces: build.Pieces
    control: tuple[str, ...]
    is_bpe: bool

    def tokenizer(self, where: str) -> tokenizers.Tokenizer:
        """A tokenizer that cuts as the file says."""
        backend = (build.piece_bpe if self.is_bpe else build.unigram)(self.pieces, where)
        build.add_tokens(backend, self.control)
        return backend


def read_model(path: Path) -> Model:
    """A `.model` file. Raises CheckpointError when it is damaged, or of a kind that cuts otherwise."""
    try:
        return _read(path.read_bytes(), str(path))
    except (IndexError, OSError, UnicodeDecodeError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path}: not a SentencePiece model that can be read ({error}); fetch it again") from None


def _read(data: bytes, where: str) -> Model:
    tokens, scores, types = [], [], []
    kind, unknown, normalizer = UNIGRAM, 0, {}
    for number, value in _fields(data):
        if number == PIECES:
            piece = dict(_fields(_bytes(value)))
            tokens.append(_bytes(piece.get(1, b"")).decode("utf-8"))
            scores.append(struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0])
            types.append(piece.get(3, NORMAL))
        elif number == TRAINER:
            trainer = dict(_fields(_bytes(value)))
            kind, unknown = trainer.get(3, UNIGRAM), trainer.get(40, 0)
        elif number == NORMALIZER:
            normalizer = dict(_fields(_bytes(value)))
    if kind not in (UNIGRAM, BPE) or not tokens:
        raise CheckpointError(
            f"{where}: a model of kind {kind} with {len(tokens)} pieces; unigram (1) or BPE (2) is known"
        )
    pieces = build.Pieces(
        tokens,
        scores,
        [type_ == NORMAL for type_ in types],
        int(unknown),  # pyrefly: ignore
        bool(normalizer.get(3, True)),
        bool(normalizer.get(4, True)),
        _bytes(normalizer.get(2, b"")),
        [token for token, type_ in zip(tokens, types, strict=True) if type_ == USER_DEFINED],
    )
    control = tuple(token for token, type_ in zip(tokens, types, strict=True) if type_ == CONTROL)
    return Model(pieces, control, kind == BPE)


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes are wanted")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """(number, value) of each field of a message: whole numbers as int, all else as bytes."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _number(data, at)
            yield tag >> 3, value
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"wire type {wire} at byte {at}")
        size, at = _number(data, at) if wire == 2 else (8 if wire == 1 else 4, at)
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield tag >> 3, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError(f"a number of more than 64 bits at byte {at}")
