"""Where one head looks: as a table here, as a picture in a page, and measured against its kind. Some seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import cutaway
from cutaway.tracing.heads import attention, entropy, head_scores
from cutaway.tracing.tables import report

TEXT = "When Mary and John went to the store, John gave a drink to"


def main(name: str = "smollm2", page: str = "") -> None:
    model = cutaway.load(name)
    scores = head_scores(model.model, n_tokens=24, n_rows=2)
    ((layer, head),) = scores.top("previous", 1)
    print(f"the strongest previous-token head is head {head} of layer {layer}")

    prompt = model.prompt(TEXT)
    grid = attention(model.model, prompt, layer, head)
    print(grid)
    print(f"entropy of a query's weights: {entropy(grid.values).mean():.2f} nats on average")
    before = grid.values.diagonal(-1)
    print(f"weight on the previous token: {before.mean():.2f} on average")
    if page:
        Path(page).write_text(report("Attention", TEXT, grid), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
