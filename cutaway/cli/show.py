"""`cutaway show`, `taps`, `list` and `spec`: what a model is, before it runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.tree import Tree

from cutaway import spec
from cutaway.checkpoints.pull import KNOWN, find
from cutaway.errors import InputError

console = Console(highlight=False)


def spec_of(name: str, sets: dict[str, str]) -> spec.Model:
    """The spec of a preset, a spec file or a checkpoint, with `--set` applied."""
    path = Path(name)
    if name in spec.names():
        record = spec.preset(name)
    elif path.suffix in (".toml", ".json") and path.is_file():
        record = spec.load(path)
    else:
        record = _checkpoint_spec(name, path)
    return spec.set_values(record, sets) if sets else record


def _checkpoint_spec(name: str, path: Path) -> spec.Model:
    from cutaway.checkpoints.opened import open_checkpoint

    path = find(name) or path if name in KNOWN else path
    if not path.exists():
        raise InputError(f"{name}: no such preset, file or folder; `cutaway list` names what is there")
    return open_checkpoint(path).record


def show_model(name: str, sets: dict[str, str], as_json: bool) -> None:
    """The block as a tree, with the parameters of each part."""
    from cutaway.models import build

    record = spec_of(name, sets)
    model = build(record)
    sizes: dict[str, int] = {}
    for path, parameter in model.named_parameters():
        sizes[path] = parameter.numel()
    if as_json:
        shapes = {path: list(p.shape) for path, p in model.named_parameters()}
        print(json.dumps({"spec": record.plain(), "parameters": sum(sizes.values()), "shapes": shapes}))
        return
    tree = Tree(f"[bold]{record.name or name}[/] {record.kind}, {sum(sizes.values()):,} parameters")
    for prefix, stack in spec.stacks(record).items():
        _grow(tree, prefix, stack, dict(model.named_parameters()))
    head = {k: v for k, v in sizes.items() if k.startswith("head.")}
    tree.add(f"head  {sum(head.values()):,}" + ("" if head else " (tied to the embedding)"))
    console.print(tree)


def _grow(tree: Tree, prefix: str, stack: Any, weights: dict[str, Any]) -> None:
    def total(start: str) -> int:
        return sum(p.numel() for name, p in weights.items() if name.startswith(start))

    side = tree.add(f"[bold]{prefix.rstrip('.')}[/]") if prefix else tree
    side.add(f"embedding  {total(prefix + 'embedding'):,}  {_words(stack.embedding)}")
    runs: list[tuple[int, int, spec.Block]] = []
    for i, block in enumerate(stack.blocks):
        if runs and runs[-1][2] == block:
            runs[-1] = (runs[-1][0], i, block)
        else:
            runs.append((i, i, block))
    for first, last, block in runs:
        label = f"blocks {first}–{last}" if last > first else f"block {first}"
        node = side.add(f"{label}, {total(f'{prefix}blocks.{first}.'):,} each")
        for branch in block.branches:
            start = f"{prefix}blocks.{first}.{branch.name}"
            part = node.add(f"{branch.name}  {total(start + '.'):,}  {_words(branch.part)}")
            for name, weight in weights.items():
                if name.startswith(start + "."):
                    part.add(f"[dim]{name.removeprefix(start + '.')}  {' × '.join(map(str, weight.shape))}[/]")
    side.add(f"final_norm  {total(prefix + 'final_norm'):,}  {_words(stack.final_norm)}")


def _words(record: Any) -> str:
    plain = {k: v for k, v in record.plain().items() if k != "kind" and not isinstance(v, (dict, list))}
    inner = {k: v["kind"] for k, v in record.plain().items() if isinstance(v, dict) and "kind" in v}
    return " ".join([record.kind, *(f"{k}={v}" for k, v in (plain | inner).items())])


def show_code(name: str, sets: dict[str, str], as_json: bool) -> None:
    """The model as one plain torch file, coloured on a terminal."""
    from cutaway.spec.source import source

    text = source(spec_of(name, sets))
    if as_json:
        print(json.dumps({"code": text}))
    elif console.is_terminal:
        console.print(Syntax(text, "python", theme="ansi_dark").highlight(text), soft_wrap=True, end="")
    else:
        print(text, end="")


def show_diff(name: str, other: str) -> None:
    """Each field in which two specs differ, a line a field."""
    first, second = (_flat(spec_of(each, {}).plain(full=True)) for each in (name, other))
    differing = [key for key in first | second if first.get(key) != second.get(key) and key != "name"]
    for key in differing:
        print(f"{key}: {first.get(key, 'absent')} in {name}, {second.get(key, 'absent')} in {other}")
    if not differing:
        print(f"{name} and {other} are the same model")


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, dict):
        return {k: v for key, value in data.items() for k, v in _flat(value, f"{path}.{key}".strip(".")).items()}
    if isinstance(data, list):
        return {k: v for i, value in enumerate(data) for k, v in _flat(value, f"{path}.{i}").items()}
    return {path: data}


def show_taps(name: str) -> None:
    """Every tap that one pass of three tokens goes through, with its shape."""
    import torch

    from cutaway.models import EncoderDecoder, build
    from cutaway.parts.step import Given
    from cutaway.tap import listening

    model = build(spec_of(name, {}), seed=0).eval()
    ids = torch.tensor([[0, 0, 0]])
    with torch.no_grad(), listening(model, lambda n, x: print(f"{n:40} {' × '.join(map(str, x.shape))}")):
        if isinstance(model, EncoderDecoder):
            model(ids, Given(memory=model.encode(ids)))
        else:
            model(ids)


def show_list(as_json: bool) -> None:
    """Known models, whether they are here, and the presets."""
    models = {name: {"about": known.about, "here": find(name) is not None} for name, known in KNOWN.items()}
    if as_json:
        print(json.dumps({"models": models, "presets": list(spec.names())}))
        return
    for name, entry in models.items():
        print(f"{name:10} {'here   ' if entry['here'] else 'not yet'} {entry['about']}")
    print("presets:", ", ".join(spec.names()))


def show_count(record: spec.Model, tokens: int, as_json: bool) -> None:
    """What a model of this spec costs, at a context of `tokens`."""
    cost = spec.count(record, tokens=tokens)
    if as_json:
        print(json.dumps(dataclasses.asdict(cost)))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("part", "parameters", "MFLOP a token", "weights MB", "cache MB"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for part in cost.parts:
        flops, weights, cache = part.decode_flops / 1e6, part.weight_bytes / 1e6, part.cache_bytes / 1e6
        table.add_row(part.path, f"{part.parameters:,}", f"{flops:,.2f}", f"{weights:,.2f}", f"{cache:,.2f}")
    flops, weights, cache = cost.decode_flops / 1e6, cost.weight_bytes / 1e6, cost.cache_bytes / 1e6
    table.add_row("all", f"{cost.parameters:,}", f"{flops:,.2f}", f"{weights:,.2f}", f"{cache:,.2f}", style="bold")
    console.print(table)
    back = cost.backward_flops / cost.forward_flops
    console.print(f"float32, at {tokens} tokens; the backward pass takes {back:.1f} times the forward FLOPs")
