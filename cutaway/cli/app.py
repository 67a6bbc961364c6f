"""The `cutaway` command: one verb a task. Commands import what they need when they run, so that --help is instant."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter

from cutaway import __version__
from cutaway.errors import CutawayError, SpecError

app = cyclopts.App(name="cutaway", version=__version__, help="A Transformer you can see into, take apart and run.")
app.command("cutaway.cli.lab:app", name="lab", help="The lab in the browser, and its labs from the terminal.")
app.command("cutaway.cli.learn:app", name="learn", help="Exercises: write the parts yourself, checked on hidden cases.")
specs = cyclopts.App(name="spec", help="Check, print or count a model's description.")
app.command(specs)

Set = Annotated[tuple[str, ...], Parameter(name="--set", help="Change any field: --set n_layers=4.", negative="")]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON for programs.", negative="")]


@app.command
def run(
    model: str = "smollm2", text: str = "The capital of France is", /, *,
    max_tokens: int = 24, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
    seed: int = 0, chat: bool = False, remove: str = "ffn", trace: bool | None = None,
) -> None:  # fmt: skip
    """Continue a text; on a terminal (or with --trace) show below it what happened inside.

    Plain run sends the text as it is; --chat puts it into the model's chat template.
    """
    from cutaway.cli.run import Request, show_run

    options = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    inside = sys.stdout.isatty() if trace is None else trace
    show_run(Request(model, text, options, seed, chat, remove, inside))


@app.command
def chat(model: str = "smollm2", /, *, max_tokens: int = 256, temperature: float = 0.0, seed: int = 0) -> None:
    """Talk with an instruct model; an empty line or Ctrl+D ends it."""
    from cutaway.cli.run import chat as talk

    talk(model, {"max_tokens": max_tokens, "temperature": temperature}, seed)


@app.command
def show(model: str, /, *, code: bool = False, diff: str = "", sets: Set = (), json: Json = False) -> None:
    """The model as a tree with shapes, parameters and cost.

    --code prints it as one plain torch file; --diff OTHER says what differs.
    """
    from cutaway.cli.show import show_code, show_diff, show_model

    if code:
        show_code(model, settings(sets), json)
    elif diff:
        show_diff(model, diff, settings(sets), json)
    else:
        show_model(model, settings(sets), json)


@app.command
def taps(model: str, /, *, json: Json = False) -> None:
    """The name and shape of every tensor that can be seen or changed."""
    from cutaway.cli.taps import show_taps

    show_taps(model, json)


@app.command
def eval(model: str = "smollm2", /, *, text: str, json: Json = False) -> None:  # noqa: A001
    """Loss a token, perplexity and bits a byte of a text file."""
    from cutaway.cli.evaluate import show_eval

    show_eval(model, text, json)


@app.command
def pull(name: str, /) -> None:
    """Fetch a known model into the cache folder; afterwards no network is needed."""
    from cutaway.checkpoints.pull import pull as fetch

    print(fetch(name))


@app.command
def convert(
    model: str, /, *, to: Literal["hf", "gguf"], out: str, dtype: str = "", family: str = "", json: Json = False,
) -> None:  # fmt: skip
    """Write a checkpoint as a Hugging Face folder or a GGUF file; what no family can hold is refused.

    Parameters
    ----------
    to: the format
    out: the new folder; a GGUF file is written into it
    dtype: F32, F16 or BF16; in GGUF also Q8_0, Q4_0, Q4_1, Q5_0, Q5_1; without it as stored
    family: the model type or architecture to write, where several could hold the model
    """
    from cutaway.cli.convert import show_convert

    show_convert(model, out, json, to=to, dtype=dtype.upper(), family=family)


@app.command(name="list")
def list_models(*, json: Json = False) -> None:
    """Known models and presets."""
    from cutaway.cli.show import show_list

    show_list(json)


@app.command
def doctor() -> None:
    """What this set-up has, and what is wrong with it."""
    from cutaway.cli.doctor import examine

    sys.exit(examine())


@specs.command(name="print")
def print_spec(model: str, /, *, sets: Set = (), json: Json = False) -> None:
    """The description of a model, preset or file."""
    from cutaway import spec
    from cutaway.cli.models import spec_of

    record = spec_of(model, settings(sets))
    print(spec.to_json(record) if json else spec.to_toml(record))


@specs.command
def check(model: str, /, *, sets: Set = ()) -> None:
    """Whether the parts fit together."""
    from cutaway import spec
    from cutaway.cli.models import spec_of

    spec.check(spec_of(model, settings(sets)))
    print(f"{model}: sound")


@specs.command
def count(model: str, /, *, tokens: int = 1024, measure: bool = False, sets: Set = (), json: Json = False) -> None:
    """Parameters, bytes of weights, cache and activations, FLOP a token forward and backward, part by part.

    --measure adds tokens a second: what this machine's bandwidth and FLOP rate predict, and what the model does.
    """
    from cutaway.cli.count import show_count
    from cutaway.cli.models import spec_of

    show_count(spec_of(model, settings(sets)), tokens, measure, json)


@specs.command
def schema() -> None:
    """The JSON Schema of descriptions."""
    import json

    from cutaway import spec

    print(json.dumps(spec.schema(), indent=2))


def settings(sets: tuple[str, ...]) -> dict[str, str]:
    """`path=value` words as a table."""
    for word in sets:
        if "=" not in word:
            raise SpecError(f"--set {word}: write it as path=value, such as n_layers=4")
    return dict(word.split("=", 1) for word in sets)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit 2."""
    try:
        app(result_action="return_none")
    except CutawayError as error:
        print(f"cutaway: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
