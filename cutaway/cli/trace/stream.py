"""The stream by depth: what it would say, what each token costs, how large it is."""

from __future__ import annotations

from cutaway.cli.options import AtLeastOne, Model, Out, Position, Seed, Text
from cutaway.cli.trace.subject import Reading, Subject


def lens(
    model: Model, text: Text, /, *, top: AtLeastOne = 5, position: Position = None, reading: Reading = Reading(),
    out: Out = Out(),
) -> None:  # fmt: skip
    """The likeliest tokens, if the model ended after each block.

    :param top: how many of them
    """
    from cutaway.tracing.lens import logit_lens

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    at = subject.position(position, prompt)
    found = logit_lens(subject.loaded.model, prompt)
    subject.tell("Logit lens", [found.table(at, top)], out, repr(text))


def tuned(
    model: Model, text: Text, /, *, train: str, steps: AtLeastOne = 10, batch: AtLeastOne = 32,
    tokens: AtLeastOne = 2048, window: AtLeastOne = 64, seed: Seed = 0, top: AtLeastOne = 5, position: Position = None,
    reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """The logit lens with a translator for each depth, trained first on a text; how much that helped is shown.

    :param train: a text file, its last fifth held out; for an encoder-decoder a source a line, a tab, its target
    :param steps: of training, for each depth
    :param batch: tokens a step
    :param tokens: how many of the file are read
    :param window: tokens that the model reads at a time, or that an encoder-decoder writes where a line has no target
    :param seed: of the order of tokens
    :param top: how many tokens a depth
    """
    from cutaway.cli.output import busy, progress
    from cutaway.tracing.tuned import tune

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    at = subject.position(position, prompt)
    with busy(f"reading {train}"):
        prompts, read = [], 0
        for each in subject.prompts(train, window):
            prompts.append(each)
            if (read := read + each.ids.shape[1]) >= tokens:
                break
    with progress("training translators") as report:
        found = tune(subject.loaded.model, prompts, steps, batch, seed, report)
    said = found.read(subject.loaded.model, prompt).table(at, top)
    subject.tell("Tuned lens", [found.table(), said], out, repr(text))


def loss(model: Model, text: Text, /, *, reading: Reading = Reading(), out: Out = Out()) -> None:
    """What each token of a text costs, in nats; with a masked model, each token masked in turn."""
    from cutaway import spec
    from cutaway.cli.evaluate import masked_losses
    from cutaway.errors import InputError
    from cutaway.tracing.lens import next_token_losses
    from cutaway.tracing.tables import Table

    subject = Subject.of(model, reading)
    prompt, tokenizer = subject.prompt(text), subject.loaded.tokenizer
    if isinstance(subject.loaded.spec.head, spec.MaskedHead):
        losses = masked_losses(subject.loaded, prompt)
        assert tokenizer is not None
        pairs = zip(prompt.words, prompt.ids[0].tolist(), strict=True)
        names = [word for word, i in pairs if i not in tokenizer.special_ids]
    else:
        losses = next_token_losses(subject.loaded.model, prompt)
        names = list(prompt.words[1:])
    if not names:
        raise InputError(f"{text!r}: no token of it can be predicted; give a text of at least two")
    rows = list(zip(names, losses.tolist(), strict=True))
    note = f"mean {float(losses.mean()):.3f}"
    subject.tell("Loss by token", [Table("Loss of each token", ("token", "nats"), rows, note, (1,), "bars")], out,
                 repr(text))  # fmt: skip


def sizes(model: Model, text: Text, /, *, reading: Reading = Reading(), out: Out = Out()) -> None:
    """How large the stream is, and what each branch adds to it."""
    import torch

    from cutaway.tracing.lens import stream_sizes
    from cutaway.tracing.record import record

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    with torch.no_grad(), record(subject.loaded.model, "*blocks.*.resid_post", "*blocks.*.update") as run:
        prompt.run(subject.loaded.model)
    subject.tell("Sizes", [stream_sizes(run)], out, repr(text))
