"""What an answer comes from: which part wrote it, and which place or path it needs."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from cutaway.cli.trace.subject import Out, Reading, Subject

Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def attribution(
    model: str, text: str, /, *, by: Literal["branch", "head", "neuron"] = "branch", token: str = "",
    position: int | None = None, top: int = 20, reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Which parts wrote the logit of the next token.

    :param by: whole branches, or attention split into heads, or feed-forward networks into neurons
    :param token: whose logit, one token as text; without it the likeliest
    :param position: at which token, counted from 0 or from the end as -1; without it the mask, else the last
    :param top: how many parts
    """
    from cutaway.tracing.attribution import attribute

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    wanted = subject.token("--token", token) if token else None
    at = subject.position(position, prompt)
    loaded = subject.loaded.model
    found = attribute(loaded, prompt.ids, wanted, at, by, prompt.given(loaded))
    subject.tell("Direct logit attribution", [found.table(top)], out, repr(text))


def patch(
    model: str, clean: str, corrupted: str, /, *, right: str, wrong: str,
    what: Literal["stream", "attn", "cross", "ffn", "head"] = "stream", encoder: Flag = False,
    position: int | None = None, reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Where the difference between two prompts passes: each place of a clean run put into a corrupted one.

    :param clean: the prompt that the model answers rightly
    :param corrupted: the same prompt with something changed, of as many tokens
    :param right: the answer to the clean prompt, one token as text
    :param wrong: the answer to the corrupted one
    :param what: the stream before each block or what a branch adds, by token, or single heads
    :param encoder: in the encoder of an encoder-decoder
    :param position: after which token the answer is read; without it the mask, else the last
    """
    from cutaway.tracing.patching import Question, patch_sweep

    subject = Subject.of(model, reading)
    first, second = subject.prompt(clean, written=0), subject.prompt(corrupted, written=0)
    question = Question(
        subject.token("--right", right), subject.token("--wrong", wrong), subject.position(position, first)
    )
    side = "encoder" if encoder else ""
    sweep = patch_sweep(subject.loaded.model, first, second, question, what, side)
    subject.tell("Activation patching", [sweep.grid()], out, f"{clean!r} into {corrupted!r}; {right!r} over {wrong!r}")


def paths(
    model: str, clean: str, corrupted: str, /, *, right: str, wrong: str, to: str = "logits",
    position: int | None = None, reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Which heads pass the difference on straight to the logits, to a layer, or to the query, key or value of a head.

    :param clean: the prompt that the model answers rightly
    :param corrupted: the same prompt with something changed, of as many tokens
    :param right: the answer to the clean prompt, one token as text
    :param wrong: the answer to the corrupted one
    :param to: logits, a layer such as 20, or a head's input such as 20.3.q
    :param position: after which token the answer is read; without it the mask, else the last
    """
    from cutaway.tracing.patching import Question
    from cutaway.tracing.paths import Receiver, path_sweep

    receiver = Receiver.parse(to)
    subject = Subject.of(model, reading)
    first, second = subject.prompt(clean, written=0), subject.prompt(corrupted, written=0)
    question = Question(
        subject.token("--right", right), subject.token("--wrong", wrong), subject.position(position, first)
    )
    sweep = path_sweep(subject.loaded.model, first, second, question, receiver)
    subject.tell("Path patching", [sweep.grid()], out, f"{clean!r} into {corrupted!r}; {right!r} over {wrong!r}")
