"""`cutaway spec count`: what a model costs, part by part, and how fast this machine could run it."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator
from itertools import groupby

from cutaway import spec
from cutaway.cli.output import console, print_filled, print_json, print_table
from cutaway.errors import InputError
from cutaway.spec.count import Count, PartCount
from cutaway.spec.words import counted, scaled

COLUMNS = ("part", "parameters", "weights", "cache", "kept", "forward", "backward")


def show_count(record: spec.Model, tokens: int, measure: bool, as_json: bool) -> None:
    """What a model of this spec costs at a context of `tokens`, equal layers told once, and how fast it is here."""
    cost = spec.count(record, tokens=tokens)
    tokens = cost.tokens
    speed = measured(record, cost) if measure else None
    if as_json:
        print_json(dataclasses.asdict(cost) | ({} if speed is None else {"speed": dataclasses.asdict(speed)}))
        return
    for prefix in spec.stacks(record):
        if prefix:
            console.print(prefix.rstrip("."), style="bold")
        rows = [_row(_label(run).removeprefix(prefix), run[0], tokens) for run in _runs(cost, prefix)]
        if prefix != "encoder.":
            rows += [_row("head", cost.parts[-1], tokens), _total(cost)]
        print_table(COLUMNS, rows, total=prefix != "encoder.")
        console.print()
    print_filled(f"float32, one row of {counted(tokens)} tokens; where layers are alike, each alone.", style="dim")
    print_filled("kept: activations that the backward pass needs; forward, backward: FLOP a token.", style="dim")
    if speed is not None:
        _print_speed(speed, cost)


@dataclasses.dataclass(frozen=True)
class Speed:
    """This machine's limits (bytes and FLOP a second), and tokens a second, where there are any, beside them."""

    threads: int
    bandwidth: float
    flop_rate: float
    writing_predicted: float | None
    writing_measured: float | None
    reading_predicted: float | None
    reading_measured: float | None


def measured(record: spec.Model, cost: Count) -> Speed:
    """Tokens a second, predicted from the machine's limits and measured, by a model whose weights mean nothing."""
    from cutaway.bench.machine import measure_machine
    from cutaway.bench.speed import measure_speed
    from cutaway.models import build

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = cost.weight_bytes + cost.cache_bytes
    if needed > free:
        raise InputError(
            f"--measure: the model takes {scaled(needed, 'B')}, and {scaled(free, 'B')} of memory are free; "
            "choose a smaller size or fewer --tokens"
        )
    most = min((stack.context_length for stack in spec.stacks(record).values()), key=_length)
    if cost.tokens > _length(most):
        raise InputError(f"--measure: {cost.tokens} tokens, but the model's context is {most}; give fewer --tokens")
    machine = measure_machine()
    speed = measure_speed(build(record, seed=0).eval(), cost.tokens)
    writing = spec.predicted_tokens_per_s(cost, machine.bandwidth, machine.flop_rate) if cost.decode_flops else None
    reading = spec.predicted_reading_per_s(cost, machine.flop_rate)
    return Speed(machine.threads, machine.bandwidth, machine.flop_rate, writing, speed.writing, reading, speed.reading)


def _length(context: int | str) -> float:
    return math.inf if isinstance(context, str) else context


def _print_speed(speed: Speed, cost: Count) -> None:
    """Predicted beside measured."""
    console.print()
    print_filled(
        f"This machine, {speed.threads} thread{'s' if speed.threads != 1 else ''}: reads "
        f"{scaled(speed.bandwidth, 'B')}/s, multiplies {scaled(speed.flop_rate, 'FLOP')}/s (float32)"
    )
    rows = []
    for where, predicted, found in (
        (f"writing after {cost.tokens:,} tokens", speed.writing_predicted, speed.writing_measured),
        (f"reading {cost.tokens:,} tokens", speed.reading_predicted, speed.reading_measured),
    ):
        if predicted is not None and found is not None:
            rows.append((where, f"{predicted:,.1f}", f"{found:,.1f}", f"{100 * found / predicted:.0f}%"))
    print_table(("tokens a second", "predicted", "measured", "of it"), rows)


def _runs(cost: Count, prefix: str) -> Iterator[list[PartCount]]:
    """The parts of a stack that cost something, equal ones of neighbouring layers together."""
    parts = [part for part in cost.parts if part.path.startswith(prefix) and part.path != "head"]
    names = dict.fromkeys(re.sub(r"blocks\.\d+\.", "blocks.*.", part.path) for part in parts)
    for name in names:
        mine = [part for part in parts if re.sub(r"blocks\.\d+\.", "blocks.*.", part.path) == name]
        for _, run in groupby(mine, key=lambda part: dataclasses.replace(part, path="")):
            run = list(run)
            if run[0].parameters or run[0].forward_flops:
                yield run


def _label(run: list[PartCount]) -> str:
    first, last = (re.search(r"blocks\.(\d+)\.", part.path) for part in (run[0], run[-1]))
    if first is None or last is None or len(run) == 1:
        return run[0].path
    return re.sub(r"blocks\.\d+\.", f"blocks.{first[1]}–{last[1]}.", run[0].path)


def _row(name: str, part: PartCount, tokens: int) -> tuple[str, ...]:
    forward = part.forward_flops / tokens
    sizes = (part.weight_bytes, part.cache_bytes, part.activation_bytes)
    return (name, counted(part.parameters), *map(_size, sizes), _work(forward), _work(2 * forward))


def _total(cost: Count) -> tuple[str, ...]:
    sizes = (cost.weight_bytes, cost.cache_bytes, cost.activation_bytes)
    return ("all", counted(cost.parameters), *map(_size, sizes), _work(cost.forward_flops), _work(cost.backward_flops))


def _size(n: float) -> str:
    return scaled(n, "B") if n else ""


def _work(n: float) -> str:
    return scaled(n, "").strip() if n else ""
