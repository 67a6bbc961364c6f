"""Tiny random encoder-decoders of transformers, and what ours must share with them: logits and texts."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoints.opened import open_checkpoint
from cutaway.generation import generate
from cutaway.models import EncoderDecoder
from cutaway.parts.step import Given
from tests.checkpoints.families.tiny import batches, peer, told

IDS = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
SMALL = {
    "vocab_size": 61, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 24, "max_position_embeddings": 40,
    "forced_eos_token_id": None,
} | IDS  # fmt: skip


def batch(pad: int, vocab_size: int, length: int = 14) -> tuple[Tensor, Tensor, Tensor]:
    """Sources padded on the right with their mask, and target ids."""
    target = torch.randint(4, vocab_size, (3, 9), generator=torch.Generator().manual_seed(2))
    return *batches(vocab_size, length, pad)["right"], target


def theirs(model: torch.nn.Module, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    return told(model, input_ids=source, attention_mask=mask, decoder_input_ids=target)["output"]


def ours(model: EncoderDecoder, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    with torch.no_grad():
        return model(target, Given(memory=model.encode(source, Given(mask=mask))))


def pad_of(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text())["pad_token_id"]


def same_outputs(folder: Path, tolerance: float = 1e-5) -> EncoderDecoder:
    """Ours equals theirs on padded sources, up to `tolerance` of the largest number."""
    model = open_checkpoint(folder).load()
    source, mask, target = batch(pad_of(folder), min(model.spec.encoder.vocab_size, model.spec.decoder.vocab_size))
    want, got = theirs(peer(folder), source, mask, target), ours(model, source, mask, target)
    assert got.shape == want.shape
    assert (got - want).abs().max() <= tolerance * want.abs().max()
    return model


def same_texts(folder: Path, n: int = 10, **options: object) -> list[list[int]]:
    """What is written after padded sources, with their options, greedily or by beams, equals theirs of each alone."""
    model, their = open_checkpoint(folder).load(), peer(folder)
    source, mask, _ = batch(pad_of(folder), model.spec.encoder.vocab_size)
    rows = [row[keep == 1].tolist() for row, keep in zip(source, mask, strict=True)]
    plain = {"max_new_tokens": n, "do_sample": False, "use_cache": False}  # its cache has as many layers as the encoder
    want = [their.generate(torch.tensor([row]), **plain, **options)[0, 1:] for row in rows]
    chosen = {OURS[key]: (value,) if key == "forced_bos_token_id" else value for key, value in options.items()}
    choice = model.spec.generation.replace(max_tokens=n, **chosen)
    got = generate(model, source, choice, mask=mask).ids
    assert got == [ids.tolist() for ids in want]
    assert got == [generate(model, [row], choice).ids[0] for row in rows]
    return got


OURS = {
    "num_beams": "n_beams", "forced_bos_token_id": "forced_ids", "length_penalty": "length_penalty",
    "forced_eos_token_id": "end_forced_id", "early_stopping": "early_stopping",
    "no_repeat_ngram_size": "no_repeat_ngram_size", "min_new_tokens": "min_tokens",
}  # fmt: skip
