"""`cutaway show`: what a model is, before it runs: as a tree, as code, or against another."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Any

from rich.markup import escape
from rich.syntax import Syntax
from rich.tree import Tree

from cutaway import spec
from cutaway.checkpoints.pull import KNOWN, find
from cutaway.cli.models import spec_of
from cutaway.cli.output import change, console, print_entry, print_json, scaled
from cutaway.cli.verify import state_words, verified_models
from cutaway.spec import words
from cutaway.spec.facts import block_facts, compared
from cutaway.spec.source import source
from cutaway.spec.weights import part_weights

TOKENS = 1024


def show_model(name: str, sets: dict[str, str], as_json: bool) -> None:
    """The model as a tree: each part in words, with its shapes, parameters and cost."""
    record = spec_of(name, sets)
    cost = spec.count(record, tokens=TOKENS)
    if as_json:
        shapes = {path: list(shape) for path, shape in spec.weights(record).items()}
        print_json({"spec": record.plain(), "parameters": cost.parameters, "shapes": shapes})
        return
    kind = spec.facts.KINDS[record.kind]
    tree = Tree(f"[bold]{escape(record.name or name)}[/]: {kind}, {cost.parameters:,} parameters, "
                f"{scaled(cost.weight_bytes, 'B')} in float32")  # fmt: skip
    grow = _Grow(record, {part.path: part for part in cost.parts})
    for prefix, stack in spec.stacks(record).items():
        grow.stack(tree.add(f"[bold]{prefix.rstrip('.')}[/]") if prefix else tree, prefix, stack)
    grow.part(tree, "head", words.head(record.head))
    console.print(tree)


class _Grow:
    """Adds the parts of a model to a tree."""

    def __init__(self, record: spec.Model, costs: dict[str, Any]) -> None:
        self.record, self.costs, self.held = record, costs, part_weights(record)

    def stack(self, tree: Tree, prefix: str, stack: Any) -> None:
        said = words.embedding(stack.embedding, self.record.d_model)
        norm, places = said["embedding norm"], said["positions"]
        text = words.joined(said["embedding"], places, "" if norm == "none" else norm)
        self.part(tree, f"{prefix}embedding", text)
        for _, run in groupby(enumerate(stack.blocks), key=lambda pair: pair[1]):
            self.blocks(tree, prefix, list(run))
        if self.held[f"{prefix}relative_bias"]:
            self.part(tree, f"{prefix}relative_bias", "the table of T5 biases that all layers read")
        self.part(tree, f"{prefix}final_norm", words.norm(stack.final_norm))

    def blocks(self, tree: Tree, prefix: str, run: list[tuple[int, spec.Block]]) -> None:
        (first, block), times = run[0], len(run)
        paths = [f"{prefix}blocks.{first}.{branch.name}" for branch in block.branches]
        each = sum(self.costs[path].parameters for path in paths)
        label = f"blocks {first} to {run[-1][0]}, alike: {each:,} each" if times > 1 else f"block {first}: {each:,}"
        facts = block_facts(block, self.record.d_model)
        norms = "no norms" if facts["norm"] == "none" else f"{facts['norm']} {facts['norm placement']}"
        told = "" if facts["residual"] == "x + the branch" else f"residual {facts['residual']}"
        node = tree.add(f"{label}\n[dim]{escape(words.joined(facts['order'], norms, told))}[/]")
        for path, branch in zip(paths, block.branches, strict=True):
            self.part(node, path, words.part(branch.part, self.record.d_model))

    def part(self, tree: Tree, path: str, text: str) -> None:
        """One part: its parameters and cost, what it is, and its weights by shape."""
        cost, name = self.costs[path], path.rsplit(".", 1)[-1]
        work = [f"{scaled(cost.forward_flops / TOKENS, 'FLOP')} a token"] if cost.forward_flops else []
        work += [f"{cost.cache_bytes_per_token:,.0f} bytes of cache a token"] if cost.cache_bytes_per_token else []
        lines = [", ".join([f"[bold]{name}[/]  {cost.parameters:,}", *work]), escape(text)]
        shapes = _shapes(self.held[path])
        tree.add("\n".join([*lines, *([f"[dim]{shapes}[/]"] if shapes else [])]))


def _shapes(held: dict[str, tuple[int, ...]]) -> str:
    """Weights by shape in one line, those of experts once."""
    alike = {name: shape for name, shape in held.items() if not name.startswith("experts.") or ".0." in name}
    return ", ".join(
        f"{name.removesuffix('.weight').replace('experts.0.', 'experts.*.')} {'×'.join(map(str, shape))}"
        for name, shape in alike.items()
    )


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
    first, second = spec_of(name, sets), spec_of(other, {})
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
        _two(what, f"{before:,.0f}", f"{after:,.0f}" + (f"  ({percent})" if percent else ""))
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
        filled = textwrap.fill(text, console.width, initial_indent=f"  {mark}", subsequent_indent="      ")
        console.print(filled, markup=False, soft_wrap=True)


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
    for entry in checked:
        console.print(f"  {entry['path']}", markup=False, soft_wrap=True)
        print_entry("", f"{entry['family']}, {state_words(entry)}", 16)
    console.print("\nPresets, and their sizes", style="bold")
    for family in spec.presets.families():
        sizes = [name.removeprefix(family) for name in spec.names() if name.startswith(f"{family}-")]
        print_entry(f"  {family}", f"{spec.about(family)} {' '.join(sizes)}", 16)
