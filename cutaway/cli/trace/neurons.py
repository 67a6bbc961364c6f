"""What a neuron answers to."""

from __future__ import annotations

from cutaway.cli.options import AtLeastOne, Flag, Ids, Model, Out
from cutaway.cli.trace.subject import Reading, Subject


def neuron(
    model: Model, /, *, text: str, layer: int, neuron: int, top: AtLeastOne = 20, window: AtLeastOne = 128,
    encoder: Flag = False, ids: Ids = False, out: Out = Out(),
) -> None:  # fmt: skip
    """The tokens of a text file at which a neuron's output is largest, in their context.

    :param text: the file, read a piece at a time; for an encoder-decoder a source a line, a tab, its target
    :param layer: counted from 0
    :param neuron: counted from 0
    :param top: how many tokens
    :param window: tokens that the model reads at a time, or that an encoder-decoder writes where a line has no target
    :param encoder: in the encoder of an encoder-decoder, which reads the file as one text
    """
    from cutaway.cli.output import busy
    from cutaway.tracing.neurons import top_activations

    subject = Subject.of(model, Reading(ids=ids))
    with busy(f"reading {text}"):
        prompts = subject.prompts(text, window, encoder)
        found = top_activations(subject.loaded.model, prompts, layer, neuron, top, encoder)
    subject.tell("Neuron", [found.table(subject.word)], out, text)
