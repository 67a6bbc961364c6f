"""`cutaway taps`: every tensor of a model that can be seen or changed."""

from __future__ import annotations

import re
from typing import Any

import torch
from rich.markup import escape

from cutaway import spec
from cutaway.cli.models import spec_of
from cutaway.cli.output import console, print_entry, print_filled, print_json
from cutaway.models import build
from cutaway.spec.facts import spans
from cutaway.tap import listening
from cutaway.tracing.names import LETTERS, Tap, aliases, describe
from cutaway.tracing.prompt import any_prompt

TOKENS = 3


def show_taps(name: str, as_json: bool) -> None:
    """Each tap that a pass of three tokens, or of an image, goes through: axes, formula, other tools' names."""
    record = spec_of(name)
    heard = shapes(record)
    if as_json:
        print_json({tap: _plain(tap, shape, record) for tap, shape in heard.items()})
        return
    entries = together(heard, record)
    used = {letter for entry, *_ in entries.values() for letter in entry.axes}
    for letter in [letter for letter in LETTERS if letter in used]:
        print_entry(letter, LETTERS[letter], 3)
    for (pattern, shape), (entry, layers) in entries.items():
        facts = f"{entry.letters}: {' × '.join(map(str, shape))}" + (f"  layers {spans(layers)}" if layers else "")
        console.print()
        if len(pattern) + 2 + len(facts) <= console.width:
            console.print(f"[bold]{escape(pattern)}[/]  {facts}", soft_wrap=True)
        else:
            print_filled(pattern, style="bold")
            print_filled(facts, "    ", "    ")
        for line in [entry.told, *(f"{tool}: {', '.join(names)}" for tool, names in aliases(pattern).items())]:
            print_filled(line, "    ", "      ")
    console.print()
    print_filled("Shapes are those of one short row. record, listening and edit take these names: docs/taps.md")


def shapes(record: spec.Model) -> dict[str, list[int]]:
    """Every tap by name with its shape, in the order of the pass. The weights are never filled: only shapes matter."""
    model, heard = build(record).to_empty(device="cpu").eval(), {}
    with torch.no_grad(), listening(model, lambda tap, x: heard.update({tap: list(x.shape)})):
        any_prompt(record, TOKENS).run(model)
    return heard


def together(
    heard: dict[str, list[int]], record: spec.Model
) -> dict[tuple[str, tuple[int, ...]], tuple[Tap, list[int]]]:
    """The taps of one shape, their layer written as `*` (the pattern that `listening` takes): entry and layers."""
    out: dict[tuple[str, tuple[int, ...]], tuple[Tap, list[int]]] = {}
    for name, shape in heard.items():
        layer = re.search(r"\bblocks\.(\d+)\.", name)
        pattern = re.sub(r"\bblocks\.\d+\.", "blocks.*.", name)
        _, layers = out.setdefault((pattern, tuple(shape)), (describe(name, record), []))
        layers.extend([int(layer[1])] if layer else [])
    return out


def _plain(name: str, shape: list[int], record: spec.Model) -> dict[str, Any]:
    entry = describe(name, record)
    return {
        "shape": shape, "letters": entry.letters, "formula": entry.formula, "when": entry.when,
        "aliases": [each for names in aliases(name).values() for each in names],
    }  # fmt: skip
