"""Learning a vocabulary from text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, trainers
from tokenizers import pre_tokenizers as pre

from cutaway.errors import InputError
from cutaway.tokenizers.tokenizer import Tokenizer


def train(
    texts: Iterable[str], vocab_size: int, *, special: Sequence[str] = ("<|endoftext|>",), min_frequency: int = 2
) -> Tokenizer:
    """A byte-level BPE tokenizer: joins the most frequent pair until the vocabulary is full or no pair is frequent.

    Every text can be encoded and comes back as it was. The special tokens get the first ids; the first of them ends a
    text. (Sennrich et al. 2016, arXiv:1508.07909; over bytes: GPT-2, 2019.)

    Raises InputError when the vocabulary has no room for the 256 bytes and the special tokens.
    """
    least = 256 + len(special)
    if vocab_size < least:
        raise InputError(f"vocab_size is {vocab_size}, but 256 bytes and {len(special)} special tokens need {least}")
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=list(special),
        initial_alphabet=pre.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, {"eos": 0} if special else {})
