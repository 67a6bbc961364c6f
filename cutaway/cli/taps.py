"""`cutaway taps`: every tensor of a model that can be seen or changed."""

from __future__ import annotations

import re

import torch

from cutaway import spec
from cutaway.cli.models import spec_of
from cutaway.cli.output import print_json, print_table
from cutaway.models import EncoderDecoder, build
from cutaway.parts.step import Given
from cutaway.spec.facts import spans
from cutaway.tap import listening

TOKENS = 3


def show_taps(name: str, as_json: bool) -> None:
    """Each tap that one pass of three tokens goes through, with the layers that have it and its shape."""
    heard = shapes(spec_of(name, {}))
    if as_json:
        print_json(heard)
        return
    rows = [(tap, " × ".join(map(str, shape)), spans(layers)) for (tap, shape), layers in together(heard).items()]
    print_table(("tap", f"shape, {TOKENS} tokens", "layers"), rows, left=3)


def shapes(record: spec.Model) -> dict[str, list[int]]:
    """Every tap by name with its shape, in the order of the pass. The weights are never filled: only shapes matter."""
    model, heard = build(record).to_empty(device="cpu").eval(), {}
    end = record.head.eos_id if isinstance(record.head, (spec.ClassHead, spec.VectorHead)) else 0
    ids = torch.full((1, TOKENS), end)
    with torch.no_grad(), listening(model, lambda tap, x: heard.update({tap: list(x.shape)})):
        if isinstance(model, EncoderDecoder):
            model(ids, Given(memory=model.encode(torch.zeros_like(ids))))
        else:
            model(ids)
    return heard


def together(heard: dict[str, list[int]]) -> dict[tuple[str, tuple[int, ...]], list[int]]:
    """The layers that have a tap of one shape, its layer written as `*`: the pattern that `listening` takes."""
    out: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for name, shape in heard.items():
        layer = re.search(r"\bblocks\.(\d+)\.", name)
        pattern = re.sub(r"\bblocks\.\d+\.", "blocks.*.", name)
        out.setdefault((pattern, tuple(shape)), []).extend([int(layer[1])] if layer else [])
    return out
