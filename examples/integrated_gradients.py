"""Integrated gradients: how much each token of a text adds to one logit more than to another. Some seconds."""

from __future__ import annotations

import sys

import cutaway
from cutaway.tracing.gradients import integrated_gradients
from cutaway.tracing.patching import Question


def main(name: str = "smollm2", text: str = "The capital of France is") -> None:
    model = cutaway.load(name)
    prompt = model.prompt(text)
    right, wrong = (model.encode(word)[-1] for word in (" Paris", " London"))
    found = integrated_gradients(model.model, prompt, Question(right, wrong))
    print(found.table("the logit of ' Paris' less that of ' London'"))
    share = float(found.values.sum()) / (found.top - found.base)
    print(f"together the tokens account for {share:.0%} of what sets the text apart from the mean embedding")


if __name__ == "__main__":
    main(*sys.argv[1:])
