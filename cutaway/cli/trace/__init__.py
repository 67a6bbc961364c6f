"""`cutaway trace`: one question a verb, answered by a table, as JSON, as a picture, or as an HTML page."""

from __future__ import annotations

import cyclopts

from cutaway.cli.trace import causes, heads, neurons, stream

app = cyclopts.App(name="trace", help="Look inside a model while it reads a text.")
for verb in (
    stream.lens, stream.tuned, stream.loss, stream.sizes, heads.attention, heads.heads, heads.rollout, heads.entropy,
    causes.attribution, causes.patch, causes.paths, causes.gradients, neurons.neuron,
):  # fmt: skip
    app.command(verb)
app.command(
    "cutaway.cli.numerics:numerics",
    name="numerics",
    help="The first NaN or infinity, the range of every tensor, and the error of rounding by layer.",
)
