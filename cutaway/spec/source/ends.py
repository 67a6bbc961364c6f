"""Both ends of a model: from ids to vectors, and from vectors to logits, classes or vectors."""

from __future__ import annotations

from typing import Any

from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, inner_width, table_width
from cutaway.spec.head import (
    ClassHead,
    Head,
    LanguageHead,
    MaskedHead,
    Transform,
    VectorHead,
    head_width,
    transform_width,
)
from cutaway.spec.positions import FromIds, NoPositions, Sinusoidal
from cutaway.spec.source.feedforward import ACTIVATIONS
from cutaway.spec.source.norms import norm, norms
from cutaway.spec.source.positions import sinusoids
from cutaway.spec.source.writing import File, Part, linear, module, number, returned, shape


def embedding(file: File, stack: Any, d_model: int, dropout: float, role: str, own_table: bool) -> Part:
    """norm(factor * table[id] + types[type] + position), projected where the table is narrower; or of patches."""
    if isinstance(stack.embedding, PatchEmbedding):
        return _patches(file, stack.embedding, d_model, dropout)
    record: TokenEmbedding = stack.embedding
    width, inner = table_width(record, d_model), inner_width(record, d_model)
    attributes = [f"self.tokens = nn.Embedding({stack.vocab_size}, {width})"] if own_table else []
    forward = [f"x = {'self.tokens' if own_table else 'table'}(ids){shape('B', 'T', width)}"]
    if record.factor == "sqrt_d_model":
        forward += [f"x = x * {d_model}**0.5  # sqrt(d_model)"]
    elif record.factor != 1.0:
        forward += [f"x = x * {number(record.factor)}"]
    if record.projection != "none":
        attributes += [f"self.projection = {linear(width, d_model, record.projection_bias)}"]
    projection = [f"x = self.projection(x){shape('B', 'T', d_model)}"]
    forward += projection if record.projection == "before_positions" else []
    if record.n_token_types:
        attributes += [f"self.types = nn.Embedding({record.n_token_types}, {inner})"]
        forward += ["x = x + self.types(torch.zeros_like(ids) if types is None else types)"]
    added, lines = _positions(file, record.positions, inner)
    attributes, forward = attributes + added, forward + lines
    attributes += norms(file, inner, norm=record.norm)
    forward += ["x = self.norm(x)"] if any(line.startswith("self.norm ") for line in attributes) else []
    forward += [f"x = F.dropout(x, {number(dropout)}, self.training)"] if dropout else []
    forward += projection if record.projection == "after_norm" else []
    takes = () if own_table else ("table",)
    types = ("types=None",) if record.n_token_types else ()
    text = module("From ids to vectors.", attributes, returned(forward), ", ".join(("ids", *takes, *types)))
    return Part(f"{file.define(text, 'Embedding', f'{role}Embedding')}()", takes + (("types",) if types else ()))


def _patches(file: File, record: PatchEmbedding, d_model: int, dropout: float) -> Part:
    """norm(W patch + b + position), a learned vector before the patches."""
    rows, columns = record.image_height // record.patch_height, record.image_width // record.patch_width
    attributes = [f"self.patches = {linear(record.patch_size, d_model, record.bias)}"]
    forward = [
        f"x = images.unflatten(3, ({columns}, {record.patch_width})).unflatten(2, ({rows}, {record.patch_height}))",
        f"x = x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2){shape('B', rows * columns, record.patch_size)}",
        f"x = self.patches(x){shape('B', rows * columns, d_model)}",
    ]
    if record.class_token:
        attributes += [f"self.class_token = nn.Parameter(torch.zeros({d_model}))"]
        forward += [
            f"x = torch.cat((self.class_token.expand(len(x), 1, -1), x), 1){shape('B', record.n_tokens, d_model)}"
        ]
    added, lines = _positions(file, record.positions, d_model, "x")
    attributes += added + norms(file, d_model, norm=record.norm)
    forward += lines
    forward += ["x = self.norm(x)"] if any(line.startswith("self.norm ") for line in attributes) else []
    forward += [f"x = F.dropout(x, {number(dropout)}, self.training)"] if dropout else []
    text = module("From images to vectors.", attributes, returned(forward), "images")
    return Part(f"{file.define(text, 'Embedding')}()", ("images",))


def _positions(file: File, record: Any, width: int, of: str = "ids") -> tuple[list[str], list[str]]:
    """Attributes, and the lines that add positions to x; `of` is what has a length."""
    if isinstance(record, NoPositions):
        return [], []
    plus = f" + {record.offset}" if record.offset else ""
    match record.counted:
        case FromIds(pad_id=pad):
            lines = [f"real = ids != {pad}  # padding is told by its id and has a row of its own"]
            lines += [f"at = torch.where(real, real.long().cumsum(1) - 1{plus}, {pad}){shape('B', 'T')}"]
        case _:
            lines = [f"at = torch.arange({of}.shape[1], device={of}.device){plus}{shape('T')}"]
    if isinstance(record, Sinusoidal):
        return [], [*lines, f"x = x + {sinusoids(file, record, width).format('at')}.to(x)"]
    rows = record.n_positions + record.offset
    return [f"self.positions = nn.Embedding({rows}, {width})"], [*lines, "x = x + self.positions(at)"]


def head(file: File, record: Head, d_model: int, vocab_size: int) -> Part:
    """What is done with the last states; a tied head takes the embedding's table."""
    width = head_width(record, d_model)
    attributes, transform = [], []
    if isinstance(record.transform, Transform):
        attributes = [f"self.transform = {_transform(file, record.transform, d_model)}"]
        transform = [f"h = self.transform(h){shape('...', width)}"]
    if isinstance(record, (LanguageHead, MaskedHead)):
        own, forward, takes = _tokens(record, d_model, width, vocab_size, transform)
    else:
        own, forward, takes = _pooled(file, record, d_model, transform)
    doc = {"language": "Logits of the next token", "masked": "Logits of each token", "classes": "Classes"}
    text = module(f"{doc.get(record.kind, 'Vectors')}.", attributes + own, forward, ", ".join(("h", *takes)))
    return Part(f"{file.define(text, 'Head')}()", takes)


def _tokens(
    record: LanguageHead | MaskedHead, d_model: int, width: int, vocab_size: int, transform: list[str]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    forward, factor, cap = [], 1.0, "none"
    if isinstance(record, LanguageHead):
        factor, cap = record.input_factor, record.soft_cap
    if factor == "1/sqrt_d_model":
        forward += [f"h = h * {d_model}**-0.5"]
    elif factor != 1.0:
        forward += [f"h = h * {number(factor)}"]
    own = [] if record.tied else [f"self.weight = nn.Parameter(torch.zeros({vocab_size}, {width}))"]
    own += [f"self.bias = nn.Parameter(torch.zeros({vocab_size}))"] if record.bias else []
    matrix = "table.weight" if record.tied else "self.weight"
    product = f"logits = F.linear(h, {matrix}{', self.bias' if record.bias else ''})"
    forward += [*transform, f"{product}{shape('B', 'T', vocab_size)}"]
    forward += [f"logits = {number(record.logit_factor)} * logits"] if record.logit_factor != 1.0 else []
    forward += [f"logits = {number(cap)} * torch.tanh(logits / {number(cap)})"] if cap != "none" else []
    return own, returned(forward, "logits"), ("table",) if record.tied else ()


def _pooled(
    file: File, record: ClassHead | VectorHead, d_model: int, transform: list[str]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    pools = {"first": "h[:, 0]", "last": "h[:, -1]", "mean": "h.mean(1)", "eos": "h[torch.arange(len(h)), at]"}
    forward = []
    if record.pool == "eos":
        forward += ["at = torch.arange(ids.shape[1], device=ids.device)"]
        forward += [f"at = torch.where(ids == {record.eos_id}, at, -1).amax(1)  # the last end token"]
    if record.pool != "none":
        forward += [f"h = {pools[record.pool]}  # one state a row"]
    forward += transform
    takes = ("ids",) if record.pool == "eos" else ()
    if isinstance(record, VectorHead):
        own = []
        if isinstance(record.pooler, Transform):
            own = [f"self.pooler = {_transform(file, record.pooler, d_model)}  # of the first state; not read here"]
        return own, returned(forward + (["h = F.normalize(h, dim=-1)"] if record.normalise else []), "h"), takes
    own = [f"self.projection = {linear(head_width(record, d_model), record.n_classes, record.bias)}"]
    return own, [*forward, f"return self.projection(h){shape('...', record.n_classes)}"], takes


def _transform(file: File, record: Transform, d_model: int) -> str:
    width = transform_width(record, d_model)
    made = norm(file, record.norm, width)
    attributes = [f"self.dense = {linear(d_model, width, record.bias)}"]
    forward = ["h = self.dense(h)"]
    if record.activation != "identity":
        forward += [f"h = {ACTIVATIONS[record.activation].format('h')}"]
    if made is not None:
        attributes += [f"self.norm = {made}"]
        forward += ["h = self.norm(h)"]
    text = module("What comes before the last matrix.", attributes, returned(forward, "h"), "h")
    return f"{file.define(text, 'Transform')}()"
