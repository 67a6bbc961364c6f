"""Direct logit attribution: the logit is a sum, and each part's share of it is known. Some seconds."""

from __future__ import annotations

import sys

import cutaway
from cutaway.tracing.attribution import attribute


def main(name: str = "smollm2", text: str = "The capital of France is") -> None:
    model = cutaway.load(name)
    prompt = model.prompt(text)
    logits = model(prompt.ids)[0, -1]
    token = int(logits.argmax())
    for by in ("branch", "head"):
        found = attribute(model.model, prompt, token, by=by)
        print(found.table(top=6))
    print(f"logit of {model.decode([token])!r}: {logits[token]:.4f}, sum of the parts: {found.values.sum():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
