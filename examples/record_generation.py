"""Record a generation step by step, keep little of it, save it, and read it back. Some seconds."""

from __future__ import annotations

import sys
import tempfile

import torch

import cutaway
from cutaway.tracing.record import Taken


def main(name: str = "smollm2", text: str = "Once upon a time") -> None:
    model = cutaway.load(name)
    with cutaway.record(model.model, "blocks[-1].attn.pattern", "blocks.*.resid_post") as run:
        written = model.generate(text, max_tokens=6)
    print(repr(text), "->", repr(written))
    steps = run.steps("blocks.0.resid_post")
    print(f"{run.n_steps} steps: {[tuple(step.shape) for step in steps]}")
    print(f"positions of the columns: {run.positions[0].tolist()}")

    def norms(x: torch.Tensor) -> torch.Tensor:
        return x.norm(dim=-1)

    with cutaway.record(model.model, "blocks.*.resid_post", taken=Taken(reduce=norms)) as small:
        model.generate(text, max_tokens=6)
    print(small)
    with tempfile.TemporaryDirectory() as folder:
        run.save(f"{folder}/run.safetensors")
        again = cutaway.Recording.load(f"{folder}/run.safetensors")
    print(f"read back: {len(again)} taps, equal: {all(torch.equal(again[tap], x) for tap, x in run.items())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
