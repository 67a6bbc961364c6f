"""Small models with weights that matter, and what they write by the plainest definition: read all, choose, again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutaway import spec
from cutaway.models import EncoderDecoder, Transformer, build
from cutaway.parts.step import Given


def drawn(record: spec.Model, seed: int = 1) -> Transformer:
    """The model in float64, its weights far enough from 0 that every part shows."""
    model = build(record, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def writer(record: spec.Model) -> spec.Model:
    """The same model with a head that gives next tokens, if it has none."""
    fits = isinstance(record.head, spec.LanguageHead)
    return record if fits else record.replace(head=spec.LanguageHead(tied=False))


def masks_of(record: spec.Model) -> set[str]:
    """The kinds of mask in the stack that writes."""
    stack = record.decoder if isinstance(record, spec.EncoderDecoder) else record
    return {part.mask.kind for part in attentions(stack)}


def attentions(stack: spec.Decoder | spec.Side) -> list[spec.MultiHead | spec.Latent]:
    parts = [branch.part for block in stack.blocks for branch in block.branches]
    return [part for part in parts if isinstance(part, (spec.MultiHead, spec.Latent))]


def logits_alone(model: Transformer, row: Sequence[int], n_prompt: int, source: Sequence[int] = ()) -> torch.Tensor:
    """The last logits of one row, read in one piece without a cache."""
    given = Given(prefix=torch.tensor([n_prompt]))
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            given = Given(memory=model.encode(torch.tensor([list(source)])))
        return model(torch.tensor([list(row)]), given)[0, -1]


def greedy_alone(model: Transformer, prompt: Sequence[int], n: int, source: Sequence[int] = ()) -> list[int]:
    """n tokens after a prompt, each the argmax of everything read anew."""
    row = list(prompt)
    for _ in range(n):
        row.append(int(logits_alone(model, row, len(prompt), source).argmax()))
    return row[len(prompt) :]


def plain(vocab_size: int = 23, context_length: int | str = 64, **attention: object) -> spec.Decoder:
    """A small decoder; the keywords are fields of its attention."""
    heads = spec.MultiHead(**({"n_heads": 4, "n_kv_heads": 2, "positions": spec.RoPE()} | attention))
    stages = tuple(
        spec.Stage(branches=(spec.Branch(part=part, norm_in=spec.RMSNorm()),)) for part in (heads, spec.Gated(d_ff=20))
    )
    return spec.Decoder(
        d_model=16, vocab_size=vocab_size, context_length=context_length, final_norm=spec.RMSNorm(),
        layers=(spec.Repeat(times=2, blocks=(spec.Block(stages=stages),)),),
    )  # fmt: skip


def translator(vocab_size: int = 23) -> spec.EncoderDecoder:
    """A small encoder-decoder."""

    def side(*parts: object) -> spec.Side:
        stages = tuple(spec.Stage(branches=(spec.Branch(part=part, norm_in=spec.LayerNorm()),)) for part in parts)
        table = spec.TokenEmbedding(positions=spec.Sinusoidal())
        return spec.Side(
            vocab_size=vocab_size, context_length=40, embedding=table, final_norm=spec.LayerNorm(),
            layers=(spec.Repeat(times=2, blocks=(spec.Block(stages=stages),)),),
        )  # fmt: skip

    heads, ffn = spec.MultiHead(n_heads=2), spec.Dense(d_ff=20)
    encoder = side(heads.replace(mask=spec.FullMask()), ffn)
    return spec.EncoderDecoder(d_model=16, encoder=encoder, decoder=side(heads, spec.Cross(n_heads=2), ffn))
