"""One pass over ids through a model of any kind."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.models import EncoderDecoder
from cutaway.parts.step import Given


def read(model: nn.Module, ids: Int[Tensor, "B T"]) -> Tensor:
    """What the model makes of ids, without gradients; an encoder-decoder reads them as its source and as its target."""
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            return model(ids, Given(memory=model.encode(ids)))
        return model(ids)


def any_ids(record: spec.Model, n_tokens: int = 12) -> Int[Tensor, "1 T"]:
    """Ids from all over the vocabulary, for a model without a tokenizer: the same each time, the pool's token last."""
    vocab_size = min(stack.vocab_size for stack in spec.stacks(record).values())
    ids = torch.randint(vocab_size, (1, n_tokens), generator=torch.Generator().manual_seed(0))
    if isinstance(record.head, (spec.ClassHead, spec.VectorHead)):
        ids[:, -1] = record.head.eos_id
    return ids
