"""A built model as it shows itself: the outline of its spec, with the type and the place of its weights."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from cutaway.spec import Model
from cutaway.spec.outline import Entry, outline


def shown(model: nn.Module, record: Model) -> Entry:
    """The outline of a model of this spec."""
    first = next(model.parameters())
    entry = outline(record, str(first.dtype).removeprefix("torch."))
    return replace(entry, figures=f"{entry.figures} on {first.device}")
