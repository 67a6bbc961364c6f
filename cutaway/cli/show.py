"""`cutaway show`: what a model is, before it runs: as a tree, as code, or against another."""

from __future__ import annotations

from rich.markup import escape
from rich.syntax import Syntax
from rich.tree import Tree

from cutaway import spec
from cutaway.checkpoints.pull import KNOWN, find
from cutaway.cli.models import spec_of
from cutaway.cli.output import change, console, print_entry, print_filled, print_json
from cutaway.cli.verify import state_words, verified_models
from cutaway.spec.facts import compared
from cutaway.spec.outline import Entry, filled, outline
from cutaway.spec.source import source
from cutaway.spec.words import counted

TOKENS = 1024
GUIDE = 4  # columns of the lines before a part


def show_model(name: str, sets: dict[str, str], as_json: bool) -> None:
    """The model as a tree: each part in words, with its shapes, parameters and cost."""
    record = spec_of(name, sets)
    cost = spec.count(record, tokens=TOKENS)
    if as_json:
        shapes = {path: list(shape) for path, shape in spec.weights(record).items()}
        print_json({"spec": record.plain(), "parameters": cost.parameters, "shapes": shapes})
        return
    whole = outline(record)
    tree = Tree(f"[bold]{escape(record.name or name)}[/]: {whole.figures}")
    for each in whole.inner:
        _grow(tree, each, console.width - GUIDE)
    console.print(tree)


def _grow(tree: Tree, entry: Entry, width: int) -> None:
    """Add a part and what is in it, in lines of `width`."""
    blocks = entry.name.startswith("block")
    head = f"{entry.name}: {entry.figures}" if blocks else f"[bold]{entry.name}[/]  {entry.figures}".rstrip()
    text, shapes = (escape("\n".join(filled(told, width))) for told in (entry.text, entry.shapes))
    told = [head, f"[dim]{text}[/]" if blocks and text else text, f"[dim]{shapes}[/]" if shapes else ""]
    node = tree.add("\n".join(filter(None, told)))
    for each in entry.inner:
        _grow(node, each, width - GUIDE)


def show_code(name: str, sets: dict[str, str], as_json: bool) -> None:
    """The model as one plain torch file, coloured on a terminal."""
    text = source(spec_of(name, sets))
    if as_json:
        print_json({"code": text})
    elif console.is_terminal:
        console.print(Syntax(text, "python", theme="ansi_dark").highlight(text), soft_wrap=True, end="")
    else:
        print(text, end="")


def show_diff(name: str, other: str, sets: dict[str, str], as_json: bool) -> None:
    """What differs between two models, in words, and what follows from it."""
    first, second = spec_of(name, sets), spec_of(other)
    found, costs = compared(first, second), [spec.count(record, tokens=TOKENS) for record in (first, second)]
    follows = {
        "parameters": [cost.parameters for cost in costs],
        "bytes of weights": [cost.weight_bytes for cost in costs],
        "bytes of cache a token": [cost.cache_bytes_per_token for cost in costs],
        f"bytes of cache at {TOKENS:,} tokens": [cost.cache_bytes for cost in costs],
        "FLOP a token": [cost.forward_flops for cost in costs],
    }
    if as_json:
        print_json({"differences": [each._asdict() for each in found], "consequences": follows})
        return
    if not found:
        console.print(f"{escape(name)} and {escape(other)} are the same model")
        return
    title = f"[bold]{escape(name)}{' with --set' if sets else ''} → {escape(other)}[/]"
    console.print(title)
    for aspect, before, after in found:
        _two(aspect, before, after)
    console.print("\nWhat follows, in float32", style="bold")
    changed = {what: pair for what, pair in follows.items() if pair[0] != pair[1]}
    for what, (before, after) in changed.items():
        percent = change(before, after)
        _two(what, counted(before), counted(after) + (f"  ({percent})" if percent else ""))
    if not changed:
        console.print("  nothing in parameters, bytes or FLOP")


def _two(aspect: str, before: str, after: str) -> None:
    """`aspect  before → after` in one line where it fits, else each on its own."""
    line = f"  {aspect}: {before} → {after}"
    if len(line) <= console.width:
        console.print(line, markup=False)
        return
    console.print(f"  {aspect}:", markup=False)
    for mark, text in (("    ", before), ("  → ", after)):
        print_filled(text, f"  {mark}", "      ")


def show_list(as_json: bool) -> None:
    """Known models and whether they are here, what was verified on this machine, and the presets."""
    models = {name: {"about": known.about, "here": find(name) is not None} for name, known in KNOWN.items()}
    checked = verified_models()
    if as_json:
        print_json({"models": models, "verified": checked, "presets": list(spec.names())})
        return
    console.print("Models", style="bold")
    for name, entry in models.items():
        print_entry(f"  {name}", f"{'here' if entry['here'] else 'not fetched yet'}: {entry['about']}", 16)
    here = [entry for entry in checked if entry["here"]]
    for entry in here:
        console.print(f"  {entry['path']}", markup=False, soft_wrap=True)
        print_entry("", f"{entry['family']}, {state_words(entry)}", 16)
    if gone := len(checked) - len(here):
        print_entry("", f"{gone} more verified, but gone since; --json names {'them' if gone > 1 else 'it'}", 16)
    console.print("\nPresets, and their sizes", style="bold")
    for family in spec.presets.families():
        sizes = [name.removeprefix(family) for name in spec.names() if name.startswith(f"{family}-")]
        print_entry(f"  {family}", f"{spec.about(family)} {' '.join(sizes)}", 16)
