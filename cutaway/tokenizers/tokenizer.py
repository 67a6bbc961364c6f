"""Text <-> ids: what every tokenizer here offers, whichever file it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import tokenizers

from cutaway.errors import CheckpointError, InputError
from cutaway.tokenizers.build import HIDDEN
from cutaway.tokenizers.chat import ChatTemplate

Message = Mapping[str, Any]
LARGEST = 1 << 32
"""Ids have 32 bits in the library."""


class Tokenizer:
    """A tokenizer with its special tokens and chat templates.

    `special` names the ids of tokens with a role: bos, eos, unk, pad, cls, sep, mask, eot (end of a turn), eom (end of
    a message). `templates` are the sources of chat templates by name, "default" first among them.

    >>> import cutaway
    >>> tokenizer = cutaway.load("smollm2").tokenizer
    >>> ids = tokenizer.encode("Hello there")
    >>> ids, [tokenizer.decode([i]) for i in ids]
    ([19556, 665], ['Hello', ' there'])
    >>> tokenizer.render_chat([{"role": "user", "content": "Hi"}])[-52:]
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, special: Mapping[str, int], templates: Mapping[str, str] | None = None
    ) -> None:
        backend.no_truncation()  # lengths are the caller's business: files often carry those of a training run
        backend.no_padding()
        self.backend = backend
        self.special = dict(special)
        self.templates = dict(templates or {})

    def encode(
        self, text: str, *, special: bool = True, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """The ids of a text.

        `special`: text that looks like a special token becomes that token; otherwise it is cut up like any text.
        `add_special_tokens`: adds what the model expects around a text (a begin token, [CLS] and [SEP]).
        `max_length` cuts the text, never these tokens.

        Raises InputError for a text with lone surrogates, which no file or terminal can hold either.
        """
        backend = self.backend if special else self._literal
        try:
            encoding = backend.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            raise _no_text(text) from None
        if max_length is not None:
            room = max_length - (backend.num_special_tokens_to_add(False) if add_special_tokens else 0)
            if room < 0:
                raise InputError(f"max_length is {max_length}, less than the special tokens around a text take")
            encoding.truncate(room)
        return backend.post_process(encoding, add_special_tokens=True).ids if add_special_tokens else encoding.ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """The ids of two texts in one sequence, and for each id which text it belongs to (0 or 1)."""
        try:
            encoding = self.backend.encode(first, second)
        except (TypeError, UnicodeEncodeError):
            raise _no_text(first, second) from None
        return encoding.ids, encoding.type_ids

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Many texts at once, on all cores."""
        try:
            found = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeEncodeError):
            raise _no_text(*texts) from None
        return [encoding.ids for encoding in found]

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of ids. Bytes that are no UTF-8 become U+FFFD; ids past the vocabulary (padding rows) are dropped.

        Raises InputError for what is no id: no whole number, or a negative one.
        """
        try:
            numbers = [index(i) for i in ids]
        except TypeError:
            raise InputError(f"{str(ids)[:40]!r} is no list of token ids; give whole numbers") from None
        if numbers and min(numbers) < 0:
            raise InputError(f"{min(numbers)} is no token id: ids count from 0")
        return self.backend.decode([i for i in numbers if i < LARGEST], skip_special_tokens=skip_special)

    def token(self, i: int) -> str:
        """A token as the vocabulary writes it (`Ġ` or `▁` for a space). Raises InputError for an id without one."""
        token = self.backend.id_to_token(i) if 0 <= i < LARGEST else None
        if token is None:
            raise InputError(f"{i} is no token id: the vocabulary has the ids 0 to {self.vocab_size - 1}")
        return token

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, None when it is not there."""
        return self.backend.token_to_id(token)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id, added tokens included."""
        n = self.backend.get_vocab_size(with_added_tokens=True)
        if n and self.backend.id_to_token(n - 1) is not None:
            return n
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """All ids that carry structure instead of text; `decode(skip_special=True)` leaves them out."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    def render_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, template: str = "default", **more: Any
    ) -> str:
        """The text that a conversation becomes, special tokens written out.

        Raises InputError when the model has no such template or the template refuses the messages.
        """
        if template not in self.templates:
            known = ", ".join(self.templates) or "none"
            raise InputError(f"the model has no chat template {template!r} (it has: {known}); give plain text instead")
        tokens = {f"{role}_token": self.token(i) for role, i in self.special.items()}
        chat = ChatTemplate(self.templates[template])
        return chat.render(messages, tokens | {"add_generation_prompt": add_generation_prompt} | more)

    def encode_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, template: str = "default", **more: Any
    ) -> list[int]:
        """The ids of a conversation. The template writes a begin token where there is one, so none is added."""
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt, template=template, **more)
        return self.encode(text, add_special_tokens=False)

    def save(self, folder: str | Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json, which other libraries read too."""
        folder = Path(folder)
        config: dict[str, Any] = {f"{role}_token": self.token(i) for role, i in self.special.items()}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        if list(self.templates) == ["default"]:
            config["chat_template"] = self.templates["default"]
        elif self.templates:
            config["chat_template"] = [{"name": n, "template": source} for n, source in self.templates.items()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "tokenizer.json").write_text(self.backend.to_str(pretty=True), encoding="utf-8")
            written = json.dumps(config, indent=2, ensure_ascii=False)
            (folder / "tokenizer_config.json").write_text(written + "\n", encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}") from error

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A copy that sees no special tokens in a text (the switch belongs to the whole object, so two are needed).

        Among unigram pieces they would be found all the same, as pieces, and are hidden.
        """
        data = json.loads(self.backend.to_str())
        if data["model"]["type"] == "Unigram":
            special = {token["content"] for token in data["added_tokens"] if token["special"]}
            data["added_tokens"] = [token for token in data["added_tokens"] if not token["special"]]
            for i, entry in enumerate(data["model"]["vocab"]):
                if entry[0] in special or i == data["model"]["unk_id"]:
                    entry[0] = HIDDEN + entry[0]
        copy = tokenizers.Tokenizer.from_str(json.dumps(data, ensure_ascii=False))
        copy.encode_special_tokens = True
        return copy


def _no_text(*texts: Any) -> InputError:
    """What is wrong with the first of some texts that cannot be read."""
    for text in texts:
        if not isinstance(text, str):
            return InputError(f"the text is of the type {type(text).__name__}; give a string")
        half = next((place for place, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"), None)
        if half is not None:
            return InputError(
                f"the text cannot be encoded: its character {half} is half of a surrogate pair; give valid Unicode"
            )
    return InputError("the text cannot be encoded; give a string of valid Unicode")
