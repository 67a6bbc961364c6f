"""Models with weights that matter, what they are given, what they write by the plainest definition (read all, choose,
again), and their slopes by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.generation import Cache
from cutaway.models import EncoderDecoder, Transformer, build
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from tests.conformance.strategies import EOS


def drawn(record: spec.Model, seed: int = 1) -> Transformer:
    """The model in float64, every weight far enough from 0 that its part shows."""
    model = build(record, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def images_for(record: spec.PatchEmbedding, seed: int, n_images: int = 2) -> Tensor:
    """Random images, float64."""
    return torch.randn((n_images, *record.sizes), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ids_for(n_tokens: int, vocab_size: int, seed: int, n_rows: int = 2) -> Tensor:
    """Random ids that end with EOS, so that every kind of pool finds its token."""
    ids = torch.randint(1, vocab_size, (n_rows, n_tokens), generator=torch.Generator().manual_seed(seed))
    ids[:, -1] = EOS
    return ids


@dataclass(frozen=True)
class Inputs:
    """What a model of any kind reads: ids [B, T] (or images in their place) and, where it takes them, a source and the
    lengths of prefixes."""

    ids: Tensor
    source: Tensor | None = None
    prefix: Tensor | None = None
    mask: Tensor | None = None
    source_mask: Tensor | None = None

    @staticmethod
    def of(record: spec.Model, n_tokens: int = 7, seed: int = 3) -> Inputs:
        if isinstance(record, spec.ImageEncoder):
            return Inputs(images_for(record.embedding, seed))
        source = ids_for(5, record.encoder.vocab_size, seed + 1) if isinstance(record, spec.EncoderDecoder) else None
        prefix = torch.tensor([3, 2]) if isinstance(record, spec.PrefixDecoder) else None
        return Inputs(ids_for(n_tokens, spec.last_stack(record).vocab_size, seed), source, prefix)

    def columns(self, first: int, end: int) -> Inputs:
        """The same source, and these columns of the ids."""
        mask = None if self.mask is None else self.mask[:, first:end]
        return replace(self, ids=self.ids[:, first:end], mask=mask)

    def run(self, model: Transformer, cache: Cache | None = None, aux: list[Tensor] | None = None) -> Tensor:
        given = Given(mask=self.mask, prefix=self.prefix, aux=aux)
        if isinstance(model, EncoderDecoder):
            assert self.source is not None
            memory = model.encode(self.source, Given(mask=self.source_mask, aux=aux))
            given = Given(mask=self.mask, memory=memory, aux=aux)
        return model(self.ids, given, cache)

    def define(self, record: spec.Model, weights: dict[str, Tensor]) -> reference.Result:
        """The same by definition, in NumPy."""
        names = ("source", "prefix", "mask", "source_mask")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        arrays = {name: weight.detach().numpy() for name, weight in weights.items()}
        more = reference.Given(**{name: each.numpy() for name, each in given.items()})
        return reference.forward(record, arrays, self.ids.numpy(), given=more)


def writer(record: spec.Model) -> spec.Model:
    """The same model with a head that gives next tokens, if it has none."""
    fits = isinstance(record.head, spec.LanguageHead)
    return record if fits else record.replace(head=spec.LanguageHead(tied=False))


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


def check_slopes(f: Callable[[], Tensor], model: nn.Module, tolerance: float = 1e-6) -> None:
    """Every parameter's gradient of f() along a random direction is the central difference."""
    model.zero_grad(set_to_none=True)
    f().backward()
    generator = torch.Generator().manual_seed(4)
    for name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        slope = difference(f, {name: parameter}, {name: direction})
        gradient = 0.0 if parameter.grad is None else float((parameter.grad * direction).sum())
        assert abs(slope - gradient) <= tolerance * max(1.0, abs(slope)), (name, slope, gradient)


def difference(f: Callable[[], Tensor | float], at: dict[str, Tensor], along: dict[str, Tensor]) -> float:
    """(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, f(h) with all parameters moved by h at once: exact but for h^4."""
    h, total = 1e-7, 0.0  # small, lest a ReLU or a choice of experts turn within it
    before = {name: parameter.detach().clone() for name, parameter in at.items()}
    with torch.no_grad():
        for n, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            for name, parameter in at.items():
                parameter.copy_(before[name] + n * h * along[name])
            total += weight * float(f())
        for name, parameter in at.items():
            parameter.copy_(before[name])
    return total / (12 * h)
