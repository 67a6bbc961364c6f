"""What a neuron answers to."""

from __future__ import annotations

from cutaway.cli.options import AtLeastOne, Ids, Model, Out
from cutaway.cli.trace.subject import Reading, Subject


def neuron(
    model: Model, /, *, text: str, layer: int, neuron: int, top: AtLeastOne = 20, window: AtLeastOne = 128,
    ids: Ids = False, out: Out = Out(),
) -> None:  # fmt: skip
    """The tokens of a text file at which a neuron's output is largest, in their context.

    :param text: the file; it is read a piece at a time, so it may be long
    :param layer: counted from 0
    :param neuron: counted from 0
    :param top: how many tokens
    :param window: tokens that the model reads at a time
    """
    from cutaway.cli.output import busy
    from cutaway.tracing.neurons import top_activations

    subject = Subject.of(model, Reading(ids=ids))
    with busy(f"reading {text}"):
        found = top_activations(subject.loaded.model, subject.windows(text, window), layer, neuron, top)
    subject.tell("Neuron", [found.table(subject.word)], out, text)
