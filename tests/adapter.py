"""The public API in the shape that the handed cases' checker asks for: NumPy in, NumPy out."""

from __future__ import annotations

import numpy as np
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints.gguf_blocks import BY_ID
from cutaway.checkpoints.gguf_blocks import dequantize as unpack

torch.set_num_threads(1)


def load(path: str) -> cutaway.Loaded:
    """A folder in the Hugging Face layout."""
    return cutaway.load(path)


def load_gguf(path: str) -> cutaway.Loaded:
    """A GGUF file; the tiny ones' vocabularies are made up, so no tokenizer is read."""
    return cutaway.load(path, tokenizer=False)


def tensor(values: np.ndarray | None) -> torch.Tensor | None:
    return None if values is None else torch.tensor(values)


@torch.no_grad()
def logits(
    loaded: cutaway.Loaded, ids: np.ndarray, mask: np.ndarray | None = None, decoder_ids: np.ndarray | None = None,
    token_type_ids: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """What the head gives: logits, classes or states."""
    model, given = loaded.model, cutaway.Given(mask=tensor(mask), types=tensor(token_type_ids))
    if decoder_ids is None:
        out, head = model(tensor(ids), given), model.spec.head
        alone = isinstance(head, spec.ClassHead) and head.pool == "none" and head.n_classes == 1
        return out[..., 0].numpy() if alone else out.numpy()
    return model(tensor(decoder_ids), cutaway.Given(memory=model.encode(tensor(ids), given))).numpy()


def hidden(loaded: cutaway.Loaded, ids: np.ndarray) -> list[np.ndarray] | None:
    """The states after the embedding and each layer, the last one after the final norm."""
    if isinstance(loaded.spec, spec.EncoderDecoder):
        return None
    n_layers, seen = len(loaded.spec.blocks), {}
    names = ["embedded", *(f"blocks.{i}.resid_post" for i in range(n_layers - 1)), "final"]
    with torch.no_grad(), cutaway.listening(loaded.model, lambda name, x: seen.update({name: x}), *names):
        loaded.model(tensor(ids))
    head = loaded.spec.head
    if isinstance(head, (spec.LanguageHead, spec.VectorHead)) and isinstance(head.transform, spec.Transform):
        with torch.no_grad():  # the peer counts a narrowing before the table to the stack
            seen["final"] = loaded.model.head.transform(seen["final"])
    return [seen[name].numpy() for name in names]


def generate(loaded: cutaway.Loaded, ids: np.ndarray, n: int) -> list[int]:
    """Greedy new ids of one prompt."""
    return cutaway.generate(loaded.model, [ids.tolist()], greedy(loaded, n)).ids[0]


def generate_batch(loaded: cutaway.Loaded, ids: np.ndarray, mask: np.ndarray, n: int) -> list[list[int]]:
    """Greedy new ids of left-padded prompts."""
    return cutaway.generate(loaded.model, ids, greedy(loaded, n), mask=tensor(mask)).ids


def greedy(loaded: cutaway.Loaded, n: int) -> spec.Generation:
    return loaded.spec.generation.replace(max_tokens=n, temperature=0.0, n_beams=1)


def dequantize(raw: np.ndarray, name: str, number: int) -> np.ndarray:
    """float32 of packed blocks."""
    kind = BY_ID[number]
    assert kind.name == name
    blocks = raw.reshape(-1, kind.n_bytes)
    return unpack(blocks, kind, np.empty(len(blocks) * kind.size, np.float32))
