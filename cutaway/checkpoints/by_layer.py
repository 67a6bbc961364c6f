"""A model that holds the weights of one layer at a time, so that it may be larger than the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import nn

from cutaway.checkpoints.fill import assign
from cutaway.checkpoints.opened import Opened
from cutaway.models import Transformer, build

LAYER = re.compile(r"(?:\w+\.)?blocks\.\d+(?=\.)")


def by_layer(opened: Opened, dtype: torch.dtype = torch.float32) -> Transformer:
    """The model of a checkpoint: each block reads its weights when it is called and forgets them afterwards.

    Embedding, final norm and head stay. It computes what the whole model computes, and cannot be trained.
    """
    model = build(opened.record).eval()
    layers: dict[str, list[str]] = {}
    for name in opened.shapes:
        layer = LAYER.match(name)
        layers.setdefault(layer[0] if layer else "", []).append(name)
    _read(model, opened, layers.pop("", []), dtype)
    for path, names in layers.items():
        block = model.get_submodule(path)
        block.register_forward_pre_hook(lambda module, inputs, names=names: _read(model, opened, names, dtype))
        block.register_forward_hook(lambda module, inputs, output, names=names: _forget(model, names))
    return model


def _read(model: nn.Module, opened: Opened, names: list[str], dtype: torch.dtype) -> None:
    for name in names:
        assign(model, name, opened.read(name).to(dtype).contiguous())


def _forget(model: nn.Module, names: list[str]) -> None:
    for name in names:
        assign(model, name, model.get_parameter(name).to("meta"))


class Float64(Mapping[str, np.ndarray]):
    """The weights of a checkpoint as float64, each made when it is asked for; the last one is kept."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.last: tuple[str, np.ndarray] = ("", np.empty(0))

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.opened.shapes:
            raise KeyError(name)
        if self.last[0] != name:
            self.last = (name, self.opened.read(name).double().numpy())
        return self.last[1]

    def __contains__(self, name: object) -> bool:
        return name in self.opened.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened.shapes)

    def __len__(self) -> int:
        return len(self.opened.shapes)
