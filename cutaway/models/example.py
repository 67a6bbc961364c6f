"""Something to try a model on."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway import spec


def example(record: spec.Model, n_tokens: int) -> Tensor:
    """What a model of this spec may be handed, the same each time: ids [1 T] from all over the vocabulary, in two
    stacks the smaller one, the end that a head looks for last; or an image [1 C H W] of normal numbers."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(record, spec.ImageEncoder):
        return torch.randn((1, *record.embedding.sizes), generator=generator)
    vocab_size = min(stack.vocab_size for stack in spec.stacks(record).values())
    ids = torch.randint(vocab_size, (1, n_tokens), generator=generator)
    if isinstance(record.head, (spec.ClassHead, spec.VectorHead)) and record.head.pool == "eos":
        ids[:, -1] = record.head.eos_id
    return ids
