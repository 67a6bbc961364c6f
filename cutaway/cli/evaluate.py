"""`cutaway eval`: how well a model predicts a text."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from cutaway import spec
from cutaway.cli.models import load_model
from cutaway.cli.output import print_filled, print_json, reason
from cutaway.encoding import pseudo_losses
from cutaway.errors import InputError
from cutaway.loaded import Loaded
from cutaway.tracing.lens import next_token_losses
from cutaway.tracing.prompt import Prompt

MOST_BYTES = 64 << 20
"""The longest text that is read."""


def show_eval(name: str, file: str, as_json: bool) -> None:
    """Loss in nats a token, perplexity, bits a byte; windows of the model's context, each read afresh.

    A masked language model guesses each token from all others of its window: the pseudo-loss.
    """
    text, loaded = read_text(file), load_model(name)
    _check_kind(loaded.spec, name)
    ids, masked = tokens_of(text, loaded, file), isinstance(loaded.spec.head, spec.MaskedHead)
    total, scored, width = total_loss(loaded, ids)
    if not scored:
        raise InputError(f"{file}: no token of it can be predicted; give a longer text")
    loss = total / scored
    result = {"tokens": len(ids), "scored": scored, "loss": loss, "perplexity": math.exp(loss),
              "bits_per_byte": total / math.log(2) / len(text.encode())}  # fmt: skip
    if as_json:
        print_json(result)
    else:
        print_filled(f"{scored:,} of {len(ids):,} tokens scored, windows of {width:,}")
        print_filled(
            f"{'pseudo-' * masked}loss {loss:.4f} nats a token, perplexity {result['perplexity']:.3f}, "
            f"{result['bits_per_byte']:.4f} bits a byte"
        )


def read_text(file: str) -> str:
    """A UTF-8 file; raises InputError for another, and for one without an end."""
    try:
        with Path(file).open("rb") as source:
            data = source.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"{file}: more than {MOST_BYTES >> 20} MiB; give a part of it")
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{file or repr(file)}: cannot be read as text ({reason(error)}); give a UTF-8 file") from None


def tokens_of(text: str, loaded: Loaded, file: str) -> list[int]:
    """The tokens of a file's text; raises InputError where they are too few to predict one."""
    ids = loaded.encode(text)
    if len(ids) < 2:
        raise InputError(f"{file}: {len(ids)} token{'s' * (len(ids) != 1)}; at least 2 are needed to predict one")
    return ids


def total_loss(loaded: Loaded, ids: list[int]) -> tuple[float, int, int]:
    """The loss of a text in nats, how many tokens that is over, and the width of the windows that it is read in."""
    limit = spec.first_stack(loaded.spec).context_length
    width = min(len(ids), 2048 if limit == "unlimited" else limit, 2048)
    masked, total, scored = isinstance(loaded.spec.head, spec.MaskedHead), 0.0, 0
    for start in range(0, len(ids), width):
        window = Prompt(torch.tensor([ids[start : start + width]]))
        losses = masked_losses(loaded, window) if masked else next_token_losses(loaded.model, window)
        total, scored = total + float(losses.sum()), scored + len(losses)
    return total, scored, width


def _check_kind(record: spec.Model, name: str) -> None:
    if isinstance(record, spec.EncoderDecoder):
        raise InputError(f"{name}: an encoder-decoder predicts a target from a source; one text is not enough")
    if not isinstance(record.head, (spec.LanguageHead, spec.MaskedHead)):
        raise InputError(f"{name}: its {record.head.kind} head predicts no tokens; name a language model")


def masked_losses(loaded: Loaded, prompt: Prompt) -> Tensor:
    """The pseudo-loss of each token but the special ones; raises InputError where there is no mask token."""
    tokenizer = loaded.tokenizer
    if tokenizer is None or "mask" not in tokenizer.special:
        raise InputError(f"{loaded.path}: there is no mask token; name a masked language model with its tokenizer")
    return pseudo_losses(loaded.model, prompt.ids[0].tolist(), tokenizer.special["mask"], tokenizer.special_ids)
