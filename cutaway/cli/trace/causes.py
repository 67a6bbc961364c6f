"""What an answer comes from: which part wrote it, and which place or path it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cutaway.cli.options import AtLeastOne, Flag, Model, NotNegative, Out, Position, Text, Word
from cutaway.cli.trace.subject import Reading, Subject

if TYPE_CHECKING:
    from cutaway.tracing.patching import Question
    from cutaway.tracing.prompt import Prompt


def attribution(
    model: Model, text: Text, /, *, by: Literal["branch", "head", "neuron"] = "branch", token: Word = "",
    position: Position = None, top: AtLeastOne = 20, reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Which parts wrote the logit of the next token.

    :param by: whole branches, or attention split into heads, or feed-forward networks into neurons
    :param token: whose logit, one token as text; without it the likeliest
    :param top: how many parts
    """
    from cutaway.tracing.attribution import attribute

    subject = Subject.of(model, reading)
    prompt = subject.prompt(text)
    wanted = subject.token("--token", token) if token else None
    at = subject.position(position, prompt)
    found = attribute(subject.loaded.model, prompt, wanted, at, by)
    subject.tell("Direct logit attribution", [found.table(top)], out, repr(text))


@Parameter(name="*")
@dataclass(frozen=True)
class Answers:
    """What two prompts, alike but for the thing asked about, are answered with, and where."""

    right: Annotated[str, Parameter(help="the answer to the clean prompt, one token as text")]
    wrong: Annotated[str, Parameter(help="the answer to the corrupted one")]
    position: Position = None

    def of(self, subject: Subject, prompt: Prompt) -> Question:
        """As ids of tokens, and a column of the prompt."""
        from cutaway.tracing.patching import Question

        right, wrong = subject.token("--right", self.right), subject.token("--wrong", self.wrong)
        return Question(right, wrong, subject.position(self.position, prompt))

    def about(self, clean: str, corrupted: str) -> str:
        return f"{clean!r} into {corrupted!r}; {self.right!r} over {self.wrong!r}"


Clean = Annotated[str, Parameter(help="the prompt that the model answers rightly")]
Corrupted = Annotated[str, Parameter(help="the same prompt with something changed, of as many tokens")]


def patch(
    model: Model, clean: Clean, corrupted: Corrupted, /, *, answers: Answers,
    what: Literal["stream", "attn", "cross", "ffn", "head"] = "stream", encoder: Flag = False,
    reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Where the difference between two prompts passes: each place of a clean run put into a corrupted one.

    :param what: the stream before each block or what a branch adds, by token, or single heads
    :param encoder: in the encoder of an encoder-decoder
    """
    from cutaway.cli.output import busy
    from cutaway.tracing.patching import patch_sweep

    subject = Subject.of(model, reading)
    first, second = subject.prompt(clean, written=0), subject.prompt(corrupted, written=0)
    question = answers.of(subject, first)
    with busy("patching"):
        sweep = patch_sweep(subject.loaded.model, first, second, question, what, encoder)
    subject.tell("Activation patching", [sweep.grid()], out, answers.about(clean, corrupted))


def paths(
    model: Model, clean: Clean, corrupted: Corrupted, /, *, answers: Answers, to: str = "logits",
    reading: Reading = Reading(), out: Out = Out(),
) -> None:  # fmt: skip
    """Which heads pass the difference on straight to the logits, to a layer, or to the query, key or value of a head.

    :param to: logits, a layer such as 20, or a head's input such as 20.3.q
    """
    from cutaway.cli.output import busy
    from cutaway.tracing.paths import Receiver, path_sweep

    receiver = Receiver.parse(to)
    subject = Subject.of(model, reading)
    first, second = subject.prompt(clean, written=0), subject.prompt(corrupted, written=0)
    question = answers.of(subject, first)
    with busy("patching"):
        sweep = path_sweep(subject.loaded.model, first, second, question, receiver)
    subject.tell("Path patching", [sweep.grid()], out, answers.about(clean, corrupted))


def gradients(
    model: Model, text: Text, /, *, token: Word = "", than: Word = "", baseline: str = "mean",
    tolerance: NotNegative = 0.05, most: AtLeastOne = 1024, position: Position = None, reading: Reading = Reading(),
    out: Out = Out(),
) -> None:  # fmt: skip
    """What each token adds to the logit of the next one, by integrated gradients from a baseline.

    :param token: whose logit, one token as text; without it the likeliest
    :param than: a second token, whose logit is taken off
    :param baseline: mean (of the table of embeddings), zero, or one token as text
    :param tolerance: how far the sum may be off, as a share
    :param most: gradients to take at most
    """
    import torch

    from cutaway.cli.output import busy
    from cutaway.tracing.gradients import integrated_gradients
    from cutaway.tracing.patching import Question
    from cutaway.tracing.stacks import check_token_head

    subject = Subject.of(model, reading)
    prompt, loaded = subject.prompt(text), subject.loaded.model
    check_token_head(loaded)
    at = subject.position(position, prompt)
    with torch.no_grad():
        right = subject.token("--token", token) if token else int(prompt.run(loaded)[0, at].argmax())
    wrong = subject.token("--than", than) if than else None
    start = baseline if baseline in ("mean", "zero") else subject.token("--baseline", baseline)
    with busy("integrating"):
        found = integrated_gradients(loaded, prompt, Question(right, wrong, at), start, tolerance, most)
    what = f"the logit of {subject.word(right)!r}" + ("" if wrong is None else f" less that of {subject.word(wrong)!r}")
    subject.tell("Integrated gradients", [found.table(what)], out, repr(text))
