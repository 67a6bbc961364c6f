"""What a caller may hand to generation, brought into one form and checked before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError, SpecError
from cutaway.generation.result import Run

Stack = spec.Decoder | spec.PrefixDecoder | spec.Encoder | spec.ImageEncoder | spec.Side
Prompts = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor


def check(record: spec.Model, options: spec.Generation, run: Run) -> None:
    """Raise InputError for a model that writes nothing, or options that do not fit it or each other."""
    if not isinstance(options, spec.Generation):
        raise InputError(f"options: a {type(options).__name__}; write spec.Generation(max_tokens=8)")
    if not isinstance(record.head, spec.LanguageHead):
        raise InputError(f"model: its {record.head.kind} head gives no next token; use one with a language head")
    if options.n_beams > 1 and options.temperature > 0:
        raise InputError("n_beams: beams are not sampled; set temperature to 0 or n_beams to 1")
    if options.stop_strings and run.tokenizer is None:
        raise InputError("stop_strings: they are found in text; give the tokenizer, or use stop_ids")
    if isinstance(record, spec.EncoderDecoder) and options.start_id == "none":
        raise InputError("start_id: an encoder-decoder needs the id that its decoder begins with; give it")
    if run.chunk < 1:
        raise InputError(f"chunk: {run.chunk} tokens at a time; give at least 1")
    if run.forward is not None and not callable(run.forward):
        raise InputError(f"forward: a {type(run.forward).__name__}; give what is called as the model is")
    if run.forward is not None and isinstance(record, spec.EncoderDecoder) and not hasattr(run.forward, "encode"):
        raise InputError("forward: it has no `encode`, which reads the source for an encoder-decoder; add it")
    vocab_size = spec.last_stack(record).vocab_size
    for name, value in options:
        ids = value if name.endswith("_ids") else [value] if name.endswith("_id") and value != "none" else []
        wrong = next((token for token in ids if token >= vocab_size), None)
        if wrong is not None:
            raise InputError(f"{name}: {wrong} is not in the vocabulary of {vocab_size} tokens")


def as_rows(prompts: Prompts, reading: Stack, mask: Tensor | None = None) -> list[list[int]]:
    """Rows of plain ids for the stack that reads them. A mask [B, T] (1: real) takes padding away, wherever it stands.

    Raises InputError for a prompt without tokens or longer than the context, an id outside the vocabulary, or a mask
    of another shape.
    """
    if isinstance(prompts, (Tensor, np.ndarray)):
        if prompts.ndim == 2 and len(prompts) == 0:
            return []
        prompts = prompts.tolist()
    if not isinstance(prompts, Sequence) or isinstance(prompts, str):
        raise InputError(f"prompt: {prompts!r:.40} is no list of ids; encode a text with the tokenizer first")
    rows = [prompts] if not prompts or isinstance(prompts[0], (int, np.integer)) else prompts
    rows = [_plain(row, index) for index, row in enumerate(rows)]
    if mask is not None:
        rows = _unpadded(rows, mask)
    for index, row in enumerate(rows):
        if not row:
            raise InputError(f"prompt {index}: no tokens; give at least one")
        wrong = next((token for token in (min(row), max(row)) if not 0 <= token < reading.vocab_size), None)
        if wrong is not None:
            raise InputError(f"prompt {index}: {wrong} is not in the vocabulary of {reading.vocab_size} tokens")
        if reading.context_length != "unlimited" and len(row) > reading.context_length:
            most = reading.context_length
            raise InputError(
                f"prompt {index}: {len(row)} tokens, but the model's context is {most}; shorten the prompt"
            )
    return rows


def as_seeds(seeds: int | Sequence[int | None] | None, n_rows: int) -> list[int | None]:
    """A seed a row: one number stands for all of them."""
    found = list(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else [seeds] * n_rows
    if len(found) != n_rows:
        raise InputError(f"seeds: {len(found)} of them for {n_rows} prompts; give one, or one a prompt")
    whole = [seed is None or (isinstance(seed, (int, np.integer)) and 0 <= seed < 2**64) for seed in found]
    if not all(whole):
        raise InputError(f"seed: {found[whole.index(False)]}; give a whole number from 0 to 2^64 - 1")
    return [None if seed is None else int(seed) for seed in found]


def with_changes(defaults: spec.Generation, changes: dict[str, Any]) -> spec.Generation:
    """A checkpoint's defaults with a caller's options over them; raises InputError for an unknown or illegal one."""
    settled = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    try:
        return defaults.replace(**settled)
    except SpecError as error:
        raise InputError(str(error)) from None


def _plain(row: Any, index: int) -> list[int]:
    row = row.tolist() if isinstance(row, (Tensor, np.ndarray)) else row
    whole = isinstance(row, Sequence) and all(isinstance(token, (int, np.integer)) for token in row)
    if not whole or isinstance(row, str):
        raise InputError(f"prompt {index}: {row!r:.40} is no list of ids; encode a text with the tokenizer first")
    return [int(token) for token in row]


def _unpadded(rows: list[list[int]], mask: Tensor) -> list[list[int]]:
    if not isinstance(mask, Tensor):
        raise InputError(f"mask: a {type(mask).__name__}; give a tensor [B T] with a number a token")
    shape = (len(rows), max(len(row) for row in rows))
    if tuple(mask.shape) != shape or any(len(row) != shape[1] for row in rows):
        raise InputError(f"mask: shape {tuple(mask.shape)}, but the prompts have {shape}; give a number a token")
    return [
        [token for token, real in zip(*pair, strict=True) if real] for pair in zip(rows, mask.tolist(), strict=True)
    ]
