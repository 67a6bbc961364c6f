"""`cutaway compare`: the first tensor in which two models, types, kernels or programs part ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.cli.models import fetch, load_model
from cutaway.cli.options import Out
from cutaway.cli.tables import tell
from cutaway.errors import InputError
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tracing.compare import Source, compare, taps_of
from cutaway.tracing.foreign import transformers
from cutaway.tracing.prompt import Prompt, any_prompt

TEXT = "The river rises in the mountains and meets the sea near two small towns."
DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Side:
    """One of the two: what runs, its tokenizer, its spec."""

    source: Source
    tokenizer: Tokenizer | None
    record: spec.Model


def show_compare(first: str, second: str, text: str, tolerance: float | None, each: bool, out: Out) -> bool:
    """Print where the two part ways; whether they are equal within the tolerance (None: that of the coarser type)."""
    sides = [side_of(word) for word in (first, second)]
    if len({isinstance(side.record, spec.EncoderDecoder) for side in sides}) > 1:
        raise InputError(
            f"{first} and {second}: one has an encoder and a decoder, the other one stack, so they "
            "read no prompt in common; compare models of one kind"
        )
    prompt = prompt_of([side.tokenizer for side in sides], sides[0].record, text)
    found = compare(sides[0].source, sides[1].source, prompt, tolerance)
    asked = f"{first} and {second} on {prompt.size}"
    tell("Comparison", asked, [found.table(each)], out, str(found))
    return found.first is None and bool(found.differences)


def side_of(word: str) -> Side:
    """`MODEL[:TYPE][:fused | :transformers]`: a type of numbers, our fused kernels, or transformers on a folder."""
    name, words = word, []
    while not Path(name).exists() and ":" in name:
        name, _, last = name.rpartition(":")
        words.append(last)
    types = [DTYPES[each] for each in words if each in DTYPES]
    how = [each for each in words if each not in DTYPES]
    if len(types) > 1 or len(how) > 1 or not set(how) <= {"fused", "transformers"}:
        raise InputError(
            f"{word}: write MODEL, MODEL:bfloat16, MODEL:fused or FOLDER:transformers, such as gpt2:float64"
        )
    dtype = types[0] if types else torch.float32
    if how == ["transformers"]:
        opened = open_checkpoint(fetch(name))
        return Side(transformers(opened.path, dtype), opened.tokenizer(), opened.record)
    loaded = load_model(name, dtype)
    return Side(taps_of(loaded.model, fused=bool(how)), loaded.tokenizer, loaded.spec)


def prompt_of(tokenizers: Sequence[Tokenizer | None], record: spec.Model, text: str) -> Prompt:
    """A text as ids, by tokenizers that agree on them; without any, ids from all over the vocabulary.

    An encoder-decoder reads them as its source and as its target.

    Raises InputError for a text without a tokenizer, and where two tokenizers read it differently.
    """
    read = [tokenizer.encode(text or TEXT) for tokenizer in tokenizers if tokenizer is not None]
    if not read:
        if text:
            raise InputError("there is no tokenizer that could read the text; leave it out to compare on plain ids")
        return any_prompt(record)
    if any(ids != read[0] for ids in read):
        raise InputError(f"the tokenizers read the text differently: {read[0][:8]} ... and {read[1][:8]} ...")
    if not read[0]:
        raise InputError(f"{text!r} is no token; give a text of at least one")
    ids = torch.tensor([read[0]])
    return Prompt(ids, ids if isinstance(record, spec.EncoderDecoder) else None)
