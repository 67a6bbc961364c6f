"""A spec as one plain torch file: what a reader would write by hand for this model and for no other.

Each record has its lines in the file of its name; what the spec does not use does not appear. Weights have the names
of the built model, so that its `state_dict` loads. Rows hold no padding, and there is no cache.
"""

from __future__ import annotations

import re

from cutaway.spec.head import LanguageHead, MaskedHead
from cutaway.spec.model import Decoder, Encoder, EncoderDecoder, ImageEncoder, Model, PrefixDecoder
from cutaway.spec.source.ends import head
from cutaway.spec.source.stack import Stack
from cutaway.spec.source.writing import File, docstring, module, returned
from cutaway.spec.weights import size, weights

__all__ = ["source"]

MAIN = """if __name__ == "__main__":
    model = Model()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    READS
    print(tuple(model(INPUTS).shape))"""


def source(spec: Model) -> str:
    """The model of a spec as a Python file that needs torch alone; its class is `Model`.

    The file's weights have the names of `build(spec)`: `Model().load_state_dict(model.state_dict())`. Not in it:
    padding, caches and the load-balance loss of experts.

    >>> from cutaway.spec.presets import preset
    >>> "class RMSNorm" in source(preset("gpt2"))
    False
    """
    file = File()
    inputs = _two_stacks(file, spec) if isinstance(spec, EncoderDecoder) else _one_stack(file, spec)
    reads = "ids = torch.tensor([[1, 0, 2]])"
    if isinstance(spec, ImageEncoder):
        image = spec.embedding
        reads = f"images = torch.randn(2, {image.n_channels}, {image.image_height}, {image.image_width})"
    body = file.text() + "\n\n\n" + MAIN.replace("READS", reads).replace("INPUTS", inputs)
    modules = ["import math\n"] if "math." in body else []
    modules += (
        ["import torch"] + (["import torch.nn.functional as F"] if " F." in body else []) + ["from torch import nn"]
    )
    return "\n".join([*docstring(_about(spec)), "", *modules]) + "\n\n\n" + body + "\n"


def _one_stack(file: File, spec: Decoder | PrefixDecoder | Encoder | ImageEncoder) -> str:
    stack = Stack(file, spec, spec.d_model, spec.dropout)
    last = head(file, spec.head, spec.d_model, spec.vocab_size)
    attributes = [*stack.attributes, f"self.head = {last.make}"]
    forward = [*stack.forward, f"return {_read(last.call('self.head', 'x'), 'self.embedding.tokens')}"]
    read = "images [B C H W]" if stack.reads == "images" else "ids [B T]"
    file.define(module(f"{_result(spec)} of {read}.", attributes, forward, ", ".join(stack.takes)), "Model")
    more = ", prefix=torch.tensor([1])" if "prefix" in stack.takes else ""
    return f"{stack.reads}{more}"


def _two_stacks(file: File, spec: EncoderDecoder) -> str:
    shared = spec.shared_embedding
    encoder = Stack(file, spec.encoder, spec.d_model, spec.dropout, role="Encoder")
    read = file.define(_stack_text("The source, read once.", encoder), "Encoder")
    decoder = Stack(file, spec.decoder, spec.d_model, spec.dropout, own_table=not shared, role="Decoder")
    write = file.define(_stack_text("The target's states.", decoder), "Decoder")
    last = head(file, spec.head, spec.d_model, spec.decoder.vocab_size)
    attributes = [f"self.encoder = {read}()", f"self.decoder = {write}()", f"self.head = {last.make}"]
    table = f"self.{'encoder' if shared else 'decoder'}.embedding.tokens"
    given = ["memory"] if "memory" in decoder.takes else []
    call = ", ".join(["ids", *given, *(["table"] if shared else [])])
    forward = [f"table = {table}"] if shared or "table" in last.takes else []
    forward += [f"memory = self.encoder(source)  # B S {spec.d_model}"] if given else []
    forward += [f"x = self.decoder({call})  # B T {spec.d_model}", f"return {last.call('self.head', 'x')}"]
    text = module(f"{_result(spec)} of target ids [B T] after source ids [B S].", attributes, forward, "ids, source")
    file.define(text, "Model")
    return "ids, source=ids"


def _stack_text(doc: str, stack: Stack) -> str:
    return module(doc, stack.attributes, returned(stack.forward), ", ".join(stack.takes))


def _read(call: str, table: str) -> str:
    return re.sub(r"\btable\b", table, call)


def _result(spec: Model) -> str:
    if isinstance(spec.head, (LanguageHead, MaskedHead)):
        return "Logits [B T V]"
    return "Classes" if spec.head.kind == "classes" else "Vectors"


def _about(spec: Model) -> str:
    name = re.sub(r'[\s"\\]+', " ", spec.name).strip() or "A model"
    return "\n".join([
        f"{name}: {size(weights(spec)):,} parameters in plain PyTorch.", "",
        "Written from its spec by `cutaway show --code`. Shapes stand in comments:",
        f"B rows, T tokens{', S source tokens' if isinstance(spec, EncoderDecoder) else ''}. Rows hold no padding.", "",
        "    model = Model()",
        '    model.load_state_dict(safetensors.torch.load_file("model.safetensors"))',
    ])  # fmt: skip
