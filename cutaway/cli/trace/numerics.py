"""`cutaway trace numerics`: NaN and infinities, ranges, and the error of rounding."""

from __future__ import annotations

from typing import Literal

from cutaway.cli.options import Flag, Model, Out, Word

Dtype = Literal["float64", "float32", "float16", "bfloat16"]


def numerics(
    model: Model, text: Word = "", /, *, dtype: Dtype = "float32", each: Flag = False, out: Out = Out()
) -> None:  # fmt: skip
    """The first NaN or infinity, the range of every tensor, and the error of rounding by layer.

    :param text: what the model reads; without it a sentence, or ids from all over the vocabulary
    :param dtype: the type in which the ranges are measured
    :param each: a row a tensor instead of a row a kind of tensor over all layers
    """
    import torch

    from cutaway.cli.compare import DTYPES, prompt_of
    from cutaway.cli.models import load_model
    from cutaway.cli.tables import tell
    from cutaway.tracing.numerics import cast, errors, watch

    loaded = load_model(model)
    prompt = prompt_of([loaded.tokenizer], loaded.spec, text)
    measured = loaded.model if dtype == "float32" else cast(DTYPES[dtype])(loaded.model)
    with torch.no_grad(), watch(measured) as found:
        prompt.run(measured)
    tables = [found.table(each), *errors(loaded.model, prompt).tables()]
    asked = f"{model} in {dtype}, {prompt.size}"
    tell("Numerics", asked, tables, out, str(found))
