"""Activation patching: which state of a clean run brings the answer back into a corrupted one? Half a minute."""

from __future__ import annotations

import sys

import cutaway
from cutaway.tracing.patching import Question, patch_sweep

CLEAN, CORRUPTED = "The capital of France is", "The capital of Russia is"


def main(name: str = "smollm2") -> None:
    model = cutaway.load(name)
    clean, corrupted = model.prompt(CLEAN), model.prompt(CORRUPTED)
    right, wrong = (model.encode(word)[-1] for word in (" Paris", " Moscow"))
    sweep = patch_sweep(model.model, clean, corrupted, Question(right, wrong))
    print(sweep.grid())

    layer, column = divmod(int(sweep.effects.argmax()), sweep.effects.shape[1])
    print(f"the stream before block {layer} at {sweep.columns[column]} restores {sweep.effects.max():.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
