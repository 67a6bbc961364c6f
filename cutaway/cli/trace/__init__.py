"""`cutaway trace`: one question a verb, answered by a table, as JSON, as a picture, or as an HTML page."""

from __future__ import annotations

import cyclopts

from cutaway.cli.trace import causes, heads, neurons, numerics, stream

app = cyclopts.App(name="trace", help="Look inside a model while it reads a text.")
for verb in (
    stream.lens, stream.tuned, stream.loss, stream.sizes, heads.attention, heads.heads, heads.rollout, heads.entropy,
    causes.attribution, causes.patch, causes.paths, causes.gradients, neurons.neuron, numerics.numerics,
):  # fmt: skip
    app.command(verb)
