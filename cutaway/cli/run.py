"""`cutaway run` and `cutaway chat`: the text as it grows, then what happened inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from cutaway.ablation.surgery import remove
from cutaway.errors import InputError
from cutaway.loaded import Loaded, load
from cutaway.models import Transformer
from cutaway.parts.norms import normed
from cutaway.spec.count import count
from cutaway.tap import listening

console = Console(highlight=False, soft_wrap=False)


@dataclass(frozen=True)
class Request:
    """What the caller asked for."""

    model: str
    text: str
    options: dict[str, Any]
    seed: int
    chat: bool
    remove: str
    inside: bool


def show_run(request: Request) -> None:
    """Stream the continuation, then show the inside of the prompt's pass."""
    loaded = load(request.model)
    ids = _ids(loaded, request)
    if request.inside:
        kind = "as a chat turn" if request.chat else "as raw text (no chat template; --chat adds it)"
        console.print(f"[dim]{loaded.spec.name or request.model} reads {len(ids)} tokens {kind}[/]")
        console.print(request.text, style="bold", end="", markup=False)
    for piece in loaded.stream_ids(ids, request.seed, **request.options):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()
    if request.inside:
        Inside(loaded, ids).show(request.remove)


def chat(model: str, options: dict[str, Any], seed: int) -> None:
    """Read lines, answer each with the whole history before it."""
    loaded = load(model)
    if loaded.tokenizer is None or not loaded.tokenizer.templates:
        raise InputError(f"{model}: the model has no chat template; use `cutaway run`")
    history: list[dict[str, str]] = []
    while line := _asked():
        history.append({"role": "user", "content": line})
        pieces = []
        for piece in loaded.stream_ids(loaded.tokenizer.encode_chat(history), seed, **options):
            sys.stdout.write(piece)
            sys.stdout.flush()
            pieces.append(piece)
        print()
        history.append({"role": "assistant", "content": "".join(pieces)})


def _asked() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""


def _ids(loaded: Loaded, request: Request) -> list[int]:
    if loaded.tokenizer is None:
        raise InputError(f"{request.model}: it has no tokenizer, so it cannot read text; name a checkpoint")
    if request.chat:
        return loaded.tokenizer.encode_chat([{"role": "user", "content": request.text}])
    return loaded.tokenizer.encode(request.text)


class Inside:
    """One pass over the prompt with every tap heard."""

    def __init__(self, loaded: Loaded, ids: list[int]) -> None:
        self.loaded, self.ids = loaded, ids
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.depths: dict[str, Tensor] = {}
        with torch.no_grad(), listening(loaded.model, self._hear):
            loaded.model(torch.tensor([ids]))

    def show(self, knob: str) -> None:
        """Tokens, shapes, guesses by depth, sizes and speed, and one part removed."""
        assert self.loaded.tokenizer is not None
        shown = " ".join(f"{self.loaded.tokenizer.token(i)}·{i}" for i in self.ids[:16])
        console.print(f"\n[bold]Tokens[/] {shown}{' …' if len(self.ids) > 16 else ''}", markup=True)
        self._flow()
        self._lens()
        self._sizes()
        self._removal(knob)

    def _hear(self, name: str, value: Tensor) -> None:
        self.shapes[name] = tuple(value.shape)
        if name.endswith(".resid_post") or name == "embedded":
            self.depths[name] = value

    def _flow(self) -> None:
        table = Table(title="Shape at each stage", title_justify="left", box=None, padding=(0, 2, 0, 0))
        table.add_column("tensor")
        table.add_column("shape")
        first = [name for name in self.shapes if name.startswith("blocks.0.")]
        for name in ["embedded", *first, "final", "head.logits"]:
            if name in self.shapes and not name.endswith((".in", ".out", ".normed", ".scale", "resid.0", "resid.1")):
                table.add_row(name, " × ".join(map(str, self.shapes[name])))
        console.print(table)
        console.print(f"[dim]the same in each of {len(self.loaded.spec.blocks)} blocks[/]\n")

    def _lens(self) -> None:
        table = Table(title="Likeliest next token, by depth", title_justify="left", box=None, padding=(0, 2, 0, 0))
        table.add_column("after")
        for rank in range(1, 6):
            table.add_column(str(rank), no_wrap=True, overflow="ellipsis", max_width=11)
        names = list(self.depths)
        last = len(names) - 1
        for index in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
            label = "embedding" if index == 0 else f"block {index - 1}"
            table.add_row(label, *self._guesses(self.depths[names[index]]))
        console.print(table)

    def _guesses(self, state: Tensor) -> list[str]:
        model = self.loaded.model
        with torch.no_grad():
            step = model.begin(torch.tensor([self.ids]), spec_given(), None)
            shares = model.head(normed(model.final_norm, state), step)[0, -1].softmax(-1).topk(5)
        tokens = [self.loaded.tokenizer.decode([int(i)]) for i in shares.indices]
        return [f"{token!r:.7} {100 * float(p):.0f}%" for token, p in zip(tokens, shares.values, strict=True)]

    def _sizes(self) -> None:
        model, result = self.loaded.model, self.loaded.last
        n = sum(p.numel() for p in model.parameters())
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        console.print(f"\n[bold]Size[/]   {n:,} parameters, {size / 1e6:,.0f} MB of weights", end="")
        if result is not None:
            timing, n_tokens = result.timing, len(self.ids) + len(result.rows[0].ids)
            cache = count(model.spec, tokens=n_tokens).cache_bytes
            console.print(f", {cache / 1e6:.2f} MB of cache for {n_tokens} tokens")
            console.print(
                f"[bold]Speed[/]  {timing.n_prompt / max(timing.prefill, 1e-9):,.0f} tokens/s read, "
                f"{timing.tokens_per_second:.1f} tokens/s written; {result.rows[0].reason}"
            )

    def _removal(self, knob: str) -> None:
        model = self.loaded.model
        without = remove(model, knob)
        console.print(f"\n[bold]Without {knob}[/]")
        for label, each in (("whole", model), ("without", without)):
            loss, guess = prompt_loss(each, self.ids)
            token = self.loaded.tokenizer.decode([guess])
            console.print(f"  {label:8} next {token!r:14} loss on the prompt {loss:.3f} nats a token", markup=False)


def spec_given() -> Any:
    from cutaway.parts.step import Given

    return Given()


def prompt_loss(model: Transformer, ids: list[int]) -> tuple[float, int]:
    """Mean negative log-probability of the prompt's own tokens, and the likeliest next one."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0].double()
    guess = int(logits[-1].argmax())
    if len(ids) < 2:
        return float("nan"), guess
    shares = logits[:-1].log_softmax(-1)
    return -float(shares[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].mean()), guess
