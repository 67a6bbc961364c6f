"""Lab `small-gpt`: a GPT that learns in front of you (see `toy_gpt`), with or without one of its parts.

State: `step` 0 to 300, a multiple of 10: the moment that is looked at; `lr` 0.001 to 0.1; `layers` 1 or 2; `heads` 1, 2
or 4; `seed`; `without` none, positions, mask, attn, ffn, residual or norms (that part is never there); `prompt` 1 to 24
of the lab's characters; `temperature` 0 to 2; `sample_seed`. The first run of a new recipe takes about a second, as all
300 steps are trained; moving `step` afterwards is quick.

Result: `characters`; `losses` [301] on each step's batch; `held_out` [{`step`, `loss`}] every tenth step, on sentences
never trained on; `baselines`: `uniform` (ln of the number of characters) and `pairs` (guessing from the character
before, by counts); `loss`, `held_out_loss` at the step; `probabilities` [V] and `top` [[character, probability] five]
after the prompt; `sample` 60 characters written after it; `plain_losses` and `plain_held_out` of the same recipe with
every part, where one is missing (else null); `parameters` [[name, shape, number]] and `total`; `sentences` and
`held_out_sentences`; `gradients` [[part, root mean square]] at the step; `numbers` loss, held_out, next, perplexity,
parameters, sample.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.lab.labs.toy_gpt import (
    CHARACTERS,
    CONTEXT,
    HELD_OUT,
    PARTS,
    STEPS,
    TRAINING,
    Parameters,
    Recipe,
    Run,
    encode,
    gradient,
    next_character,
    train,
)
from cutaway.reference.functions import Array
from cutaway.reference.sampling import Sampling, distribution, draw

DEFAULT: dict[str, Any] = {
    "step": 300, "lr": 0.01, "layers": 2, "heads": 2, "seed": 0, "without": "none", "prompt": "a cat ",
    "temperature": 0.7, "sample_seed": 0,
}  # fmt: skip
WRITTEN = 60


def run(state: dict, say: Say) -> dict:
    """The run of the recipe, seen at one step."""
    values = State("small-gpt", DEFAULT, state)
    recipe, step, prompt = _recipe(values), values.whole("step", 0, STEPS, step=10), _prompt(values)
    found = train(recipe)
    plain = None if recipe.without == "none" else train(replace(recipe, without="none"))
    model = found.models[step // 10]
    probabilities = next_character(model, prompt, recipe)
    result = {
        "characters": CHARACTERS, "losses": found.losses, "held_out": _held_out(found), "baselines": baselines(),
        "loss": found.losses[step], "held_out_loss": found.held_out[step // 10], "probabilities": probabilities,
        "top": _top(probabilities), "sample": _write(model, prompt, recipe, values),
        "plain_losses": plain and plain.losses, "plain_held_out": plain and _held_out(plain),
        "parameters": [[name, show.shape(each.shape), each.size] for name, each in model.items()],
        "total": sum(each.size for each in model.values()), "sentences": TRAINING, "held_out_sentences": HELD_OUT,
        "gradients": _gradients(model, recipe),
    }  # fmt: skip
    character, probability = result["top"][0]
    numbers = {
        "loss": show.fixed(result["loss"], 3),
        "held_out": show.fixed(result["held_out_loss"], 3),
        "perplexity": show.fixed(math.exp(result["held_out_loss"])),
        "next": f"{character!r} {show.fixed(probability)}",
        "parameters": f"{result['total']:,}",
        "sample": result["sample"],
    }
    model_name = say(f"model.{recipe.without}")
    text = say("seen", step=step, model=model_name, prompt=repr(prompt), **numbers)
    return show.plain(result | {"numbers": numbers, "text": text})


def baselines() -> dict[str, float]:
    """What knowing nothing costs, and what knowing the character before costs, in nats."""
    ids = encode("".join(TRAINING))
    pairs = np.zeros((len(CHARACTERS), len(CHARACTERS)))
    np.add.at(pairs, (ids[:-1], ids[1:]), 1)
    seen = pairs[ids[:-1], ids[1:]] / pairs.sum(-1)[ids[:-1]]
    return {"uniform": math.log(len(CHARACTERS)), "pairs": float(-np.log(seen).mean())}


def _recipe(values: State) -> Recipe:
    heads = values.whole("heads", 1, 4)
    if heads == 3:
        raise values.refuse("heads", "1, 2 or 4: they share a width of 16 equally")
    return Recipe(
        values.whole("layers", 1, 2), heads, values.number("lr", 0.001, 0.1), values.whole("seed", 0, 2**32 - 1),
        values.choice("without", ("none", *PARTS)),
    )  # fmt: skip


def _prompt(values: State) -> str:
    prompt = values.values["prompt"]
    if not isinstance(prompt, str) or not 1 <= len(prompt) <= 24 or any(each not in CHARACTERS for each in prompt):
        raise values.refuse("prompt", f"1 to 24 of the characters {CHARACTERS!r}")
    return prompt


def _held_out(run_: Run) -> list[dict[str, float]]:
    return [{"step": 10 * i, "loss": loss} for i, loss in enumerate(run_.held_out)]


def _top(probabilities: Array) -> list[list[Any]]:
    order = np.argsort(-probabilities, kind="stable")[:5]
    return [[CHARACTERS[i], float(probabilities[i])] for i in order]


def _write(model: Parameters, text: str, recipe: Recipe, values: State) -> str:
    how = Sampling(temperature=values.number("temperature", 0, 2))
    rng = np.random.default_rng(values.whole("sample_seed", 0, 2**32 - 1))
    start = len(text)
    for _ in range(WRITTEN):
        logits = np.log(next_character(model, text, recipe))
        text += CHARACTERS[draw(distribution(logits, how), rng.random())]
    return text[start:]


def _gradients(model: Parameters, recipe: Recipe) -> list[list[Any]]:
    """On one fixed row of the training text."""
    row = encode("".join(TRAINING)[: CONTEXT + 1])[None]
    found = gradient(model, row[:, :-1], row[:, 1:], recipe)[1]
    return [[name, float(np.sqrt((each**2).mean()))] for name, each in found.items()]
