"""The tokenizer of a model's folder: tokenizer.json, or the older files that came before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from cutaway.errors import CheckpointError
from cutaway.tokenizers import build
from cutaway.tokenizers.json_files import read_table
from cutaway.tokenizers.piece_files import read_piece_files
from cutaway.tokenizers.pretokenizers import byte_level
from cutaway.tokenizers.tokenizer import Tokenizer

ROLES = ("bos", "eos", "unk", "pad", "cls", "sep", "mask")
USUAL = {
    "unk": ("[UNK]", "<unk>"), "pad": ("[PAD]", "<pad>"), "cls": ("[CLS]",), "sep": ("[SEP]",),
    "mask": ("[MASK]", "<mask>"),
}  # fmt: skip
Settings = Mapping[str, Any]


def from_folder(folder: str | Path) -> Tokenizer | None:
    """The tokenizer that lies in a folder, None when there is none.

    In this order: tokenizer.json; vocab.json with merges.txt (byte-level BPE); vocab.txt (WordPiece); a SentencePiece
    model. tokenizer_config.json, special_tokens_map.json and chat_template.* tell the tokens' roles and the templates.

    Raises CheckpointError, naming the file, when one of them is damaged.
    """
    folder = Path(folder)
    settings = _table(folder / "special_tokens_map.json") | _table(folder / "tokenizer_config.json")
    backend = _backend(folder, settings)
    if backend is None:
        return None
    added = settings.get("added_tokens_decoder", {})
    for i, token in sorted(added.items(), key=lambda item: int(item[0])) if isinstance(added, dict) else ():
        if backend.token_to_id(token["content"]) is None and backend.id_to_token(int(i)) is None:
            flags = {key: token[key] for key in ("special", "normalized", "lstrip", "rstrip") if key in token}
            backend.add_tokens([tokenizers.AddedToken(token["content"], **flags)])
            if backend.token_to_id(token["content"]) != int(i):
                raise CheckpointError(f"{folder}: the added token {token['content']!r} cannot have the id {i}")
    special = _usual(backend) | {
        role: i for role in ROLES if (i := _id(backend, settings.get(f"{role}_token"))) is not None
    }
    _obey_flags(backend, settings, special)
    return Tokenizer(backend, special, _templates(folder, settings))


def _backend(folder: Path, settings: Settings) -> tokenizers.Tokenizer | None:
    if (path := folder / "tokenizer.json").is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more precise
            raise CheckpointError(f"{path}: not a tokenizer that can be read ({error}); fetch it again") from None
    if (path := folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _byte_bpe(path, folder / "merges.txt", settings)
    if (path := folder / "vocab.txt").is_file():
        return _word_piece(path, settings)
    return read_piece_files(folder, settings)


def _byte_bpe(vocab: Path, merges: Path, settings: Settings) -> tokenizers.Tokenizer:
    ids = read_table(vocab)
    if not ids or not all(isinstance(i, int) and i >= 0 for i in ids.values()):
        raise CheckpointError(f"{vocab}: not a table of tokens and ids; fetch it again")
    lines = [line for line in _text(merges).splitlines() if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if bad := next((line for line, pair in zip(lines, pairs, strict=True) if len(pair) != 2), None):
        raise CheckpointError(f"{merges}: the line {bad[:40]!r} is no pair of tokens; fetch it again")
    cut, _ = byte_level("gpt-2")
    if settings.get("add_prefix_space"):
        cut = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend = build.byte_bpe(ids, pairs, cut)  # pyrefly: ignore
    build.add_tokens(backend, _named(settings, ids))
    _around_pair(backend, settings, twice=True)
    return backend


def _word_piece(path: Path, settings: Settings) -> tokenizers.Tokenizer:
    tokens = _text(path).splitlines()
    ids = build.vocabulary(tokens, str(path))
    lowercase = bool(settings.get("do_lower_case", True))
    accents = settings.get("strip_accents")
    unknown = _content(settings.get("unk_token")) or "[UNK]"
    backend = build.word_piece(
        ids, unknown, lowercase=lowercase, strip_accents=lowercase if accents is None else bool(accents)
    )
    usual = {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
        "unk_token": unknown,
    }
    settings = usual | dict(settings)
    build.add_tokens(backend, _named(settings, ids))
    _around_pair(backend, settings)
    return backend


def _around_pair(backend: tokenizers.Tokenizer, settings: Settings, twice: bool = False) -> None:
    """A tokenizer that names a token for the class and one that separates puts them around a text."""
    before, after = (_id(backend, settings.get(f"{role}_token")) for role in ("cls", "sep"))
    if before is not None and after is not None:
        build.surround(backend, {"cls": before}, {"sep": after}, twice)


def _usual(backend: tokenizers.Tokenizer) -> dict[str, int]:
    """Special tokens under the names that old folders take for granted."""
    there = {token.content: i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    return {role: there[name] for role in ROLES for name in USUAL.get(role, ()) if name in there}


def _obey_flags(backend: tokenizers.Tokenizer, settings: Settings, special: Mapping[str, int]) -> None:
    """`add_bos_token` and `add_eos_token`, where they are given and the tokenizer does otherwise."""
    empty = backend.encode("").ids
    has = {"bos": special.get("bos") in empty[:1], "eos": special.get("eos") in empty[-1:]}
    if special.get("bos") == special.get("eos") and len(empty) == 1:
        return  # which of the two it is cannot be seen
    wanted = {role: settings.get(f"add_{role}_token") for role in has}
    wanted = {role: has[role] if flag is None or role not in special else bool(flag) for role, flag in wanted.items()}
    if wanted != has:
        before, after = ({role: special[role]} if wanted[role] else {} for role in ("bos", "eos"))
        build.surround(backend, before, after)


def _templates(folder: Path, settings: Settings) -> dict[str, str]:
    found = settings.get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(found, str):
        templates["default"] = found
    elif isinstance(found, list):
        templates = {str(item["name"]): str(item["template"]) for item in found if {"name", "template"} <= set(item)}
    if isinstance(alone := _table(folder / "chat_template.json").get("chat_template"), str):
        templates["default"] = alone
    if (path := folder / "chat_template.jinja").is_file():
        templates["default"] = _text(path)
    for path in sorted(folder.glob("additional_chat_templates/*.jinja")):
        templates[path.stem] = _text(path)
    return templates


def _named(settings: Settings, ids: Mapping[str, int]) -> list[str]:
    """The tokens of the settings that have a role, in the order of their ids."""
    tokens = {content for role in ROLES if (content := _content(settings.get(f"{role}_token"))) in ids}
    return sorted((token for token in tokens if token is not None), key=lambda token: ids[token])


def _content(token: Any) -> str | None:
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _id(backend: tokenizers.Tokenizer, token: Any) -> int | None:
    content = _content(token)
    return None if content is None else backend.token_to_id(content)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: {error}; fetch it again") from None


def _table(path: Path) -> dict[str, Any]:
    return read_table(path) if path.is_file() else {}
