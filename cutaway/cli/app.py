"""The `cutaway` command: one verb a task. Commands import what they need when they run, so that --help is instant."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter

from cutaway import __version__
from cutaway.cli.options import Checkpoint, Flag, Json, Model, NotNegativeIfGiven, Out, Set, Texts, Word, Writing
from cutaway.errors import InputError, SpecError

app = cyclopts.App(name="cutaway", version=__version__, help="A Transformer you can see into, take apart and run.")
app.command("cutaway.cli.lab:app", name="lab", help="The lab in the browser, and its labs from the terminal.")
app.command("cutaway.cli.trace:app", name="trace", help="Look inside a model while it reads a text.")
app.command("cutaway.cli.learn:app", name="learn", help="Exercises: write the parts yourself, checked on hidden cases.")
specs = cyclopts.App(name="spec", help="Check, print or count a model's description.")
app.command(specs)

Losses = Annotated[str, Parameter(name="--text", show_default=False)]


@app.command
def run(
    model: Checkpoint = "smollm2", text: str = "The capital of France is", /, *, writing: Writing = Writing(),
    stdin: Flag = False, remove: Texts = (), losses: Losses = "", trace: bool | None = None, json: Json = False,
) -> None:  # fmt: skip
    """Continue a text; on a terminal, or with --trace, show below it what happened inside.

    A model that writes no text says what it makes of one: guesses for mask tokens, classes, or a vector.
    The text is sent as it is. What is not given is as the checkpoint has it.

    :param text: the text to continue
    :param stdin: read the text from standard input
    :param remove: a part to run without, such as mask, attn, blocks.3.ffn or blocks.2.attn.head.5; may be given several
        times; `--remove help` lists those of the model
    :param losses: the file whose loss is measured with and without what is removed, in place of the prompt
    :param trace: show what happened inside, or not
    """
    from cutaway.cli.run import Request, piped, show_run

    if writing.greedy and writing.temperature:
        raise InputError(f"--greedy and --temperature {writing.temperature}: choose one of the two")
    inside = sys.stdout.isatty() and not json if trace is None else trace
    show_run(Request(model, piped() if stdin else text, writing, remove, losses, inside, json))


@app.command
def chat(
    model: Checkpoint = "smollm2", /, *, max_tokens: int = 256, temperature: float | None = None, seed: int = 0,
    json: Json = False,
) -> None:  # fmt: skip
    """Talk with an instruct model; an empty line or Ctrl+D ends it. With --json a line an answer.

    :param max_tokens: most new tokens of an answer
    :param temperature: 0 is greedy; without it as the checkpoint has it
    :param seed: equal seeds give equal answers
    """
    from cutaway.cli.run import chat as talk

    talk(model, Writing(max_tokens, temperature=temperature, seed=seed), json)


@app.command
def show(
    model: Model, /, *, code: Flag = False, diff: Word = "", sets: Set = (), json: Json = False,
) -> None:  # fmt: skip
    """A model as a tree: each part with its shapes, parameters and cost.

    :param code: print the whole model as one plain torch file instead
    :param diff: say in words what differs from this other model instead
    """
    from cutaway.cli.show import show_code, show_diff, show_model

    if code and diff:
        raise InputError("--code and --diff: choose one of the two")
    if code:
        show_code(model, settings(sets), json)
    elif diff:
        show_diff(model, diff, settings(sets), json)
    else:
        show_model(model, settings(sets), json)


@app.command
def taps(model: Model, /, *, json: Json = False) -> None:
    """The name and shape of every tensor that can be seen or changed."""
    from cutaway.cli.taps import show_taps

    show_taps(model, json)


@app.command
def compare(
    first: str, second: str, text: Word = "", /, *, tolerance: NotNegativeIfGiven = None, each: Flag = False,
    out: Out = Out(),
) -> None:  # fmt: skip
    """The first tensor in which two models, types, kernels or programs part ways; exit status 1 where they do.

    :param first: a model, with a word behind it for another type (smollm2:bfloat16), for the fused kernels
        (smollm2:fused) or for what transformers makes of a Hugging Face folder (FOLDER:transformers)
    :param second: the same
    :param text: what both read; without it a sentence, or ids from all over the vocabulary
    :param tolerance: of the worst difference as a share of a tensor's largest number; else as the coarser type asks
    :param each: a row a tensor instead of the worst of each kind over all layers
    """
    from cutaway.cli.compare import show_compare

    sys.exit(0 if show_compare(first, second, text, tolerance, each, out) else 1)


@app.command
def eval(model: Checkpoint = "smollm2", /, *, text: str, json: Json = False) -> None:  # noqa: A001
    """Loss a token, perplexity and bits a byte of a text file.

    :param text: the file, in UTF-8
    """
    from cutaway.cli.evaluate import show_eval

    show_eval(model, text, json)


@app.command
def pull(name: str, /, *, json: Json = False) -> None:
    """Fetch a known model into the cache folder; afterwards no network is needed.

    :param name: as `cutaway list` shows it, or a name on the hub
    """
    from cutaway.cli.models import fetch_known
    from cutaway.cli.output import print_json

    path = fetch_known(name)
    print_json({"name": name, "path": str(path)}) if json else print(path)


@app.command
def convert(
    model: Checkpoint, /, *, to: Literal["hf", "gguf"], out: str, dtype: Word = "", family: Word = "",
    json: Json = False,
) -> None:  # fmt: skip
    """Write a checkpoint as a Hugging Face folder or a GGUF file; what no family can hold is refused.

    :param to: the format
    :param out: the new folder; a GGUF file is written into it
    :param dtype: F32, F16 or BF16; in GGUF also Q8_0, Q4_0, Q4_1, Q5_0, Q5_1; without it as stored
    :param family: the model type or architecture to write, where several could hold the model
    """
    from cutaway.cli.convert import show_convert

    show_convert(model, out, json, to=to, dtype=dtype.upper(), family=family)


@app.command
def verify(model: Checkpoint = "smollm2", /, *, peers: bool = True, json: Json = False) -> None:
    """Compare a checkpoint, layer by layer, with the float64 reference and with the peers that are installed.

    The record is kept beside the cache; the exit status is 1 where something is too far apart.

    :param peers: ask transformers (for folders) or llama.cpp (for GGUF files) too, where they are installed
    """
    from cutaway.cli.verify import show_verify

    sys.exit(0 if show_verify(model, peers, json) else 1)


@app.command(name="list")
def list_models(*, json: Json = False) -> None:
    """Known models, what was verified on this machine, and the presets."""
    from cutaway.cli.show import show_list

    show_list(json)


@app.command
def doctor(*, json: Json = False) -> None:
    """What this set-up has, what is wrong with it, and what to do."""
    from cutaway.cli.doctor import show_doctor

    sys.exit(show_doctor(json))


@specs.command(name="print")
def print_spec(model: Model, /, *, sets: Set = (), json: Json = False) -> None:
    """The description of a model, preset or file."""
    from cutaway import spec
    from cutaway.cli.models import spec_of

    record = spec_of(model, settings(sets))
    print((spec.to_json if json else spec.to_toml)(record).rstrip())


@specs.command
def check(model: Model, /, *, sets: Set = (), json: Json = False) -> None:
    """Whether the parts fit together; exit 2 where they do not."""
    from cutaway.cli.check import show_check

    show_check(model, settings(sets), json)


@specs.command
def count(
    model: Model, /, *, tokens: int = 1024, measure: Flag = False, sets: Set = (), json: Json = False,
) -> None:  # fmt: skip
    """Parameters, bytes of weights, cache and activations, FLOP a token forward and backward, part by part.

    :param tokens: length of the row
    :param measure: add tokens a second: what this machine's bandwidth and FLOP rate predict, and what the model does
    """
    from cutaway.cli.count import show_count
    from cutaway.cli.models import spec_of

    show_count(spec_of(model, settings(sets)), tokens, measure, json)


@specs.command
def schema(*, json: Json = False) -> None:
    """The JSON Schema of descriptions; with --json in one line."""
    import json as writer

    from cutaway import spec

    print(writer.dumps(spec.schema(), indent=None if json else 2))


def settings(sets: tuple[str, ...]) -> dict[str, str]:
    """`path=value` words as a table."""
    for word in sets:
        if "=" not in word:
            raise SpecError(f"--set {word}: write it as path=value, such as n_layers=4")
    return dict(word.split("=", 1) for word in sets)
