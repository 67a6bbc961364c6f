"""The glossary of taps holds for any model: each tensor has the axes that it tells, and none is told in vain."""

from __future__ import annotations

import re

import pytest
import torch

from cutaway import spec
from cutaway.tap import listening
from cutaway.tracing.names import GLOSSARY, TOOLS, aliases, describe, ours
from tests.conformance.alone import SPECS as ALONE
from tests.conformance.models import Inputs, drawn
from tests.conformance.test_properties import EVERY, SOME_FAST, SPECS


def heard(record):
    """Every tap that fires, with its tensor."""
    model, given, found = drawn(record), Inputs.of(record), {}
    with torch.no_grad(), listening(model, lambda name, x: found.update({name: x})):
        given.run(model)
    return found, given


def sizes(name, record, given):
    """How long the axes of a tap are, by letter, read off the spec. An expert may get any number of rows."""
    prefix = re.match(r"(?:(?:encoder|decoder)\.)?", name)[0]
    stack = spec.stacks(record).get(prefix) or spec.last_stack(record)
    image = stack.embedding if isinstance(stack.embedding, spec.PatchEmbedding) else None
    n_rows, n_target = (len(given.ids), image.n_tokens) if image else given.ids.shape
    n_source = 0 if given.source is None else given.source.shape[1]
    n_tokens = n_source if prefix == "encoder." else n_target
    found = {"B": n_rows, "T": n_tokens, "S": n_tokens, "D": record.d_model, "1": 1, "V": stack.vocab_size}
    if isinstance(record.head, spec.ClassHead):
        found["C"] = record.head.n_classes
    found["W"] = record.d_model
    if image:
        found["P"] = image.n_tokens - image.class_token
    elif name.endswith("tokens") or stack.embedding.projection == "after_norm":
        found["W"] = spec.table_width(stack.embedding, record.d_model)
    if name.startswith("head.") and isinstance(record.head, spec.VectorHead):
        made = record.head.pooler if name == "head.pooled" else record.head.transform
        found["D"] = made.width if isinstance(made, spec.Transform) and made.width != "d_model" else record.d_model
    where = re.search(r"blocks\.(\d+)\.(attn|cross|ffn)", name)
    if where is None:
        return found
    part = next(branch.part for branch in stack.blocks[int(where[1])].branches if branch.name == where[2])
    if isinstance(part, (spec.MultiHead, spec.Cross, spec.Latent)):
        of = spec.sizes(part, record.d_model)
        found |= {"N": of.n_heads, "K": of.n_kv_heads}
        found["H"] = of.value_dim if name.rpartition(".")[2] in ("v", "z", "gate") else of.head_dim
        if isinstance(part, spec.Latent):
            found["R"] = part.kv_rank
        if isinstance(part, spec.Cross):
            found |= {"S": n_source, "T": n_source if name.endswith((".k", ".v")) else n_target}
    if isinstance(part, spec.MixtureOfExperts):
        found |= {"E": part.n_experts, "A": part.n_active, "M": n_rows * n_tokens}
        part = part.shared.expert if ".shared." in name else part.expert
        if ".experts." in name:
            del found["M"]
    if isinstance(part, (spec.Dense, spec.Gated)):
        found["F"] = part.d_ff
    return found


@SOME_FAST
def test_each_tensor_has_the_axes_that_the_glossary_tells(index):
    record = SPECS[index]
    found, given = heard(record)
    for name, x in found.items():
        entry, size = describe(name, record), sizes(name, record, given)
        if entry.axes[0] == "...":
            assert entry.axes[-1] == "D" or x.shape[-1] == 1, name
            continue
        assert len(entry.axes) == x.dim(), (name, entry.letters, x.shape)
        for letter, n in zip(entry.axes, x.shape, strict=True):
            assert letter not in size or size[letter] == n, (name, entry.letters, tuple(x.shape), letter)
            assert letter in size or letter == "M", (name, letter)
        assert describe(name).name == entry.name, name
        assert len(describe(name).axes) == len(entry.axes) or name.startswith("head."), name


def test_each_entry_of_the_glossary_is_some_models_tensor():
    seen = {describe(name, record) for record in [*SPECS[::EVERY], *ALONE.values()] for name in heard(record)[0]}
    assert set(GLOSSARY) - seen == set()


@pytest.mark.parametrize("tool", TOOLS)
def test_each_name_of_another_tool_is_one_of_ours_and_back(tool):
    for theirs, form in TOOLS[tool]:
        for layer, index in ((".1", "[1]"), (".*", "[i]")):
            called, name = theirs.replace("{L}", layer).replace("{I}", layer), form.replace("{L}", layer)
            assert ours(called) == name
            assert describe(name.replace("*", "1")).formula
            assert theirs.replace("{L}", layer).replace("{I}", index) in aliases(name)[tool]
