"""SentencePiece files of a folder: which piece has which id, and what stands around a text.

Both depend on the class that tokenizer_config.json or config.json names. A folder with tokenizer.json needs none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders

from cutaway.errors import CheckpointError
from cutaway.tokenizers import build
from cutaway.tokenizers.json_files import read_table
from cutaway.tokenizers.sentencepiece import Model, read_model

OTHERWISE = ("mbart", "nllb", "camembert", "barthez", "pegasus", "bigbirdpegasus", "debertav2", "plbart", "rembert")
"""Classes that number the pieces in ways of their own; their folders usually have a tokenizer.json."""
LOWEST = -1e6


def read_piece_files(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer | None:
    """The tokenizer of a folder's SentencePiece file, None where there is none.

    Raises CheckpointError for a class whose numbering is not known here, and for damaged files.
    """
    found = [*sorted(folder.glob("*.model")), *sorted(folder.glob("source.spm"))]
    if not found:
        return None
    path, kind = found[0], _kind(folder, settings)
    if kind.startswith(OTHERWISE):
        raise CheckpointError(
            f"{path}: {kind} numbers its tokens otherwise than this file does; have transformers write tokenizer.json "
            "(save_pretrained of its tokenizer)"
        )
    model = read_model(path)
    if kind == "xlmroberta":
        backend = _shifted(model).tokenizer(str(path))
        build.surround(backend, _ids(backend, "<s>"), _ids(backend, "</s>"), twice=True)
        return backend
    if (folder / "vocab.json").is_file():
        return _numbered(model, folder / "vocab.json", settings)
    backend = model.tokenizer(str(path))
    if kind in ("t5", "mt5", "umt5"):
        extra = settings.get("extra_ids", 100)
        build.add_tokens(backend, [f"<extra_id_{i}>" for i in reversed(range(extra if isinstance(extra, int) else 0))])
        build.surround(backend, {}, _ids(backend, "</s>"))
    return backend


def _kind(folder: Path, settings: Mapping[str, Any]) -> str:
    """The class as a bare word: XLMRobertaTokenizerFast is xlmroberta."""
    path = folder / "config.json"
    config = read_table(path) if path.is_file() else {}
    named = settings.get("tokenizer_class") or config.get("tokenizer_class") or config.get("model_type") or ""
    return re.sub(r"Tokenizer(Fast)?$|[^A-Za-z0-9]", "", str(named)).lower()


def _shifted(model: Model) -> Model:
    """fairseq's numbering: four special tokens of its own before the file's fourth piece, the mask after the last."""
    first = ("<s>", "<pad>", "</s>", "<unk>")
    pieces = model.pieces
    tokens = [*first, *pieces.tokens[3:], "<mask>"]
    scores = [*[0.0] * 4, *pieces.scores[3:], 0.0]
    ordinary = [*[False] * 4, *pieces.ordinary[3:], False]
    settled = replace(pieces, tokens=tokens, scores=scores, ordinary=ordinary, unknown=3)
    return replace(model, pieces=settled, control=("<s>", "<pad>", "</s>", "<mask>"))


def _numbered(model: Model, path: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The file cuts, vocab.json numbers. Its tokens that the file lacks are the other language's, and read only."""
    try:
        ids = {str(token): int(i) for token, i in json.loads(path.read_text(encoding="utf-8")).items()}
        names = {i: token for token, i in ids.items()}
        listed = [names[i] for i in range(len(ids))]
    except (OSError, ValueError, AttributeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a table of tokens and ids from 0 on ({error}); fetch it again") from None
    pieces = model.pieces
    score = {t: s for t, s, o in zip(pieces.tokens, pieces.scores, pieces.ordinary, strict=True) if o}
    special = [t for t in listed if t in ("</s>", "<unk>", "<pad>", "<s>") or re.fullmatch(r">>.+<<|__\w+__", t)]
    shown = [t if t in score or t in special else build.HIDDEN + t for t in listed]
    if "<unk>" not in ids:
        raise CheckpointError(f"{path}: it has no <unk>; fetch it again")
    settled = replace(
        pieces, tokens=shown, scores=[score.get(t, LOWEST) for t in listed], ordinary=[t in score for t in listed],
        unknown=ids["<unk>"],
    )  # fmt: skip
    backend = replace(model, pieces=settled, control=()).tokenizer(str(path))
    backend.decoder = decoders.Sequence([decoders.Replace(build.HIDDEN, ""), backend.decoder])
    languages = settings.get("additional_special_tokens") or []
    build.add_tokens(backend, [*special, *(each for each in languages if isinstance(each, str))])
    source = settings.get("src_lang") or "en"  # the language that a text is in, where the vocabulary has such tokens
    build.surround(backend, _ids(backend, f"__{source}__"), _ids(backend, "</s>"))
    return backend


def _ids(backend: tokenizers.Tokenizer, token: str) -> dict[str, int]:
    i = backend.token_to_id(token)
    return {} if i is None else {token: i}
