"""Change a model, write it as a Hugging Face folder, and compare it tensor by tensor with transformers. A minute."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import cutaway
from cutaway.tracing.compare import compare
from cutaway.tracing.foreign import transformers


def main(name: str = "smollm2", family: str = "llama") -> None:
    model = cutaway.load(name)
    with torch.no_grad():
        model.model.blocks[0].ffn.down_proj.weight *= 0.9
    with tempfile.TemporaryDirectory() as folder:
        own, theirs = Path(folder, "own"), Path(folder, "theirs")
        model.save(own)
        written = cutaway.convert(own, "hf", theirs, family=family)
        print(f"written as {written.label}: {sorted(path.name for path in theirs.iterdir())}")

        prompt = model.prompt("The capital of France is")
        found = compare(model.model, transformers(theirs), prompt)
        print(found.table())
        print(f"ours and theirs are {found}")


if __name__ == "__main__":
    main(*sys.argv[1:])
