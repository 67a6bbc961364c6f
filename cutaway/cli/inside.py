"""What happened inside one pass over a prompt: tokens, shapes, guesses by depth, sizes."""

from __future__ import annotations

import re
from typing import Any

import torch
from rich.markup import escape
from torch import Tensor

from cutaway import spec
from cutaway.cli.output import console, print_entry, print_table
from cutaway.loaded import Loaded
from cutaway.models import EncoderDecoder
from cutaway.parts.step import Given
from cutaway.spec.count import count
from cutaway.spec.words import scaled
from cutaway.tap import listening
from cutaway.tracing.stacks import read_out, stack_of

GUESSES = 5
AROUND = (".in", ".out", ".normed", ".scale", "resid.0", "resid.1", "resid.2", "positions")
"""Ends of taps that the overview leaves out."""


class Inside:
    """One pass over the prompt with every tap heard. An encoder-decoder reads it and writes its first token."""

    def __init__(self, loaded: Loaded, ids: list[int]) -> None:
        self.loaded, self.ids, self.writes = loaded, ids, isinstance(loaded.spec.head, spec.LanguageHead)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.depths: list[Tensor] = []
        model = loaded.model
        with torch.no_grad(), listening(model, self._hear):
            if isinstance(model, EncoderDecoder):
                memory = model.encode(torch.tensor([ids]))
                self.target, self.given = [int(model.spec.generation.start_id)], Given(memory=memory)
                model(torch.tensor([self.target]), self.given)
            else:
                self.target, self.given = ids, Given()
                model(torch.tensor([ids]))

    def _hear(self, name: str, value: Tensor) -> None:
        self.shapes[name] = tuple(value.shape)
        if name.endswith(("resid_post", "embedded")) and not name.startswith("encoder."):
            self.depths.append(value)

    def plain(self) -> dict[str, Any]:
        """All of it as data."""
        return {
            "tokens": [self.loaded.decode([i]) for i in self.ids],
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "sizes": self._sizes(),
        } | ({"likeliest": {label: self._guesses(state) for label, state in self._by_depth()}} if self.writes else {})

    def show(self) -> None:
        """The same for people, within 80 columns."""
        shown = ", ".join(f"{self.loaded.decode([i])!r} {i}" for i in self.ids[:12])
        console.print(f"\n[bold]Tokens[/]  {escape(shown)}{' …' if len(self.ids) > 12 else ''}")
        self._show_flow()
        if self.writes:
            self._show_depths()
        self._show_sizes()

    def _show_flow(self) -> None:
        console.print("\nShape at each stage", style="bold")
        for name, shape in self.shapes.items():
            later = re.search(r"blocks\.(\d+)\.", name)
            if (later is None or later[1] == "0") and not name.endswith(AROUND):
                print_entry(f"  {name}", " × ".join(map(str, shape)), 35)
        console.print(f"  [dim]and so in each of {len(stack_of(self.loaded.model)[0].blocks)} blocks[/]")

    def _show_depths(self) -> None:
        rows = []
        for label, state in self._by_depth():
            guesses = [f"{token!r} {100 * share:.0f}%" for token, share in self._guesses(state)]
            rows.append((f"  after {label}", *guesses))
        console.print("\nLikeliest next token, by depth", style="bold")
        print_table(("", *map(str, range(1, GUESSES + 1))), rows, left=range(GUESSES + 1))

    def _show_sizes(self) -> None:
        sizes = self._sizes()
        cache = f", {scaled(sizes['cache_bytes'], 'B')} of cache" if sizes["cache_bytes"] else ""
        console.print(f"\n[bold]Size[/]   {sizes['parameters']:,} parameters, {scaled(sizes['weight_bytes'], 'B')} of "
                      f"weights{cache}")  # fmt: skip
        last = self.loaded.last
        if last is not None:
            read, written = last.timing.prompt_tokens_per_second, last.timing.tokens_per_second
            console.print(f"[bold]Speed[/]  {read:,.1f} tokens/s read, {written:,.1f} tokens/s written")
            console.print(f"[bold]Ended[/]  because {last.rows[0].reason}", highlight=False)

    def _by_depth(self) -> list[tuple[str, Tensor]]:
        last = len(self.depths) - 1
        chosen = sorted({0, last // 4, last // 2, 3 * last // 4, last})
        return [("embedding" if i == 0 else f"block {i - 1}", self.depths[i]) for i in chosen]

    def _guesses(self, state: Tensor) -> list[tuple[str, float]]:
        """The likeliest tokens if the model ended here: final norm and head on a state of the stream."""
        model = self.loaded.model
        with torch.no_grad():
            step = stack_of(model)[0].begin(torch.tensor([self.target]), self.given, None)
            shares = read_out(model, state, step)[0, -1].softmax(-1).topk(GUESSES)
        return [(self.loaded.decode([int(i)]), float(p)) for i, p in zip(shares.indices, shares.values, strict=True)]

    def _sizes(self) -> dict[str, Any]:
        model, last = self.loaded.model, self.loaded.last
        weights = list(model.parameters())
        n_tokens = len(self.ids) + (len(last.rows[0].ids) if last is not None else 0)
        dtype = str(weights[0].dtype).removeprefix("torch.")
        return {
            "parameters": sum(p.numel() for p in weights), "weight_bytes": sum(p.nbytes for p in weights),
            "cache_bytes": count(model.spec, tokens=n_tokens, dtype=dtype).cache_bytes, "cached_tokens": n_tokens,
        }  # fmt: skip
