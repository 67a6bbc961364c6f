"""Where heads look."""

from __future__ import annotations

import math

from cutaway.cli.options import AtLeastOne, Flag, Model, Out, Seed, Text
from cutaway.cli.trace.subject import Reading, Subject


def attention(
    model: Model, text: Text, /, *, layer: int = 0, head: int = 0, cross: Flag = False, encoder: Flag = False,
    reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Where each token looks, in one head.

    :param layer: counted from 0
    :param head: counted from 0
    :param cross: from the tokens of a decoder to those of its source
    :param encoder: in the encoder of an encoder-decoder
    """
    from cutaway.errors import InputError
    from cutaway.tracing.heads import attention as view

    if cross and encoder:
        raise InputError("--cross and --encoder: choose one of the two")
    subject = Subject.of(model, reading)
    where = "cross" if cross else "encoder" if encoder else "self"
    grid = view(subject.loaded.model, subject.prompt(text), layer, head, where)
    subject.tell("Attention", [grid], out, repr(text))


def heads(model: Model, /, *, top: AtLeastOne = 5, seed: Seed = 0, out: Out = Out()) -> None:
    """Which heads look at the previous token, an earlier copy, what followed it, or the first token.

    :param top: how many of each kind
    :param seed: of the random tokens that the model is given twice
    """
    from cutaway.tracing.heads import head_scores

    subject = Subject.of(model)
    subject.tell("Heads", [head_scores(subject.loaded.model, seed=seed).table(top)], out)


def rollout(
    model: Model, text: Text, /, *, encoder: Flag = False, reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """How much of each token reaches each output, through all layers' attention.

    :param encoder: in the encoder of an encoder-decoder
    """
    from cutaway.tracing.heads import patterns
    from cutaway.tracing.heads import rollout as product
    from cutaway.tracing.tables import Grid

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    words = prompt.source_words if encoder else prompt.words
    shares = product(patterns(subject.loaded.model, prompt, "encoder" if encoder else "self"))[0]
    title = "Attention rollout: what reaches each token's last state"
    subject.tell("Rollout", [Grid(title, words, words, shares, ("token", "from"), tops=True)], out, repr(text))


def entropy(
    model: Model, text: Text, /, *, cross: Flag = False, encoder: Flag = False, reading: Reading = Reading(),
    out: Out = Out(),
) -> None:  # fmt: skip
    """How widely each head looks: 0 nats at one token, log n at n alike, the mean over the text's tokens.

    :param cross: from the tokens of a decoder to those of its source
    :param encoder: in the encoder of an encoder-decoder
    """
    from cutaway.errors import InputError
    from cutaway.tracing.heads import by_head, patterns
    from cutaway.tracing.heads import entropy as nats

    if cross and encoder:
        raise InputError("--cross and --encoder: choose one of the two")
    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    weights = patterns(subject.loaded.model, prompt, "cross" if cross else "encoder" if encoder else "self")
    note = (
        f"nats, mean over {weights.shape[3]} tokens; at most log {weights.shape[4]} = {math.log(weights.shape[4]):.2f}"
    )
    grid = by_head("Entropy of attention", nats(weights[:, 0]).mean(-1), note)
    subject.tell("Entropy", [grid], out, repr(text))
