"""Rules from a table of names: one line a module says what a family calls it; the spec says which weights there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cutaway import spec
from cutaway.checkpoints.rules import Op, Rule, Split, same
from cutaway.errors import CheckpointError

Names = Mapping[str, str]

USUAL: Names = {
    "embedding.tokens": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "head.projection": "score",
    "blocks.*.attn.norm_in": "model.layers.*.input_layernorm",
    "blocks.*.ffn.norm_in": "model.layers.*.post_attention_layernorm",
    **{
        f"blocks.*.attn.{name}": f"model.layers.*.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")
    },
    **{f"blocks.*.attn.{name}": f"model.layers.*.self_attn.{name}" for name in ("q_norm", "k_norm")},
    **{f"blocks.*.ffn.{name}": f"model.layers.*.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
}
"""What most decoders' folders have in common."""


def table_rules(
    record: spec.Model, names: Names, ops: Mapping[str, tuple[Op, ...]] | None = None, prefix: str = "model.",
    others: Sequence[Rule] = (),
) -> list[Rule]:  # fmt: skip
    """A rule for every weight of a spec. A `*` in a name is the number of the layer (or expert) it stands for.

    Modules of ours that share a name of theirs are stacked in it, rows below rows. `ops` are what a weight goes
    through besides its renaming, by our name; under their name, all that it goes through, the cutting too. Files of a
    model without a head leave `prefix` out. `others` are rules that no table can say: for weights without a name in it,
    or for a second layout of named ones.

    Raises CheckpointError for a weight that has no name in the table and no other rule.
    """
    ops = {} if ops is None else ops
    bare = prefix if isinstance(record.head, spec.VectorHead) else ""
    stacked: dict[str, list[str]] = {}
    shapes, steps, whole = spec.weights(record), {}, {}
    elsewhere = {name for rule in others for name in rule.ours}
    for ours in shapes:
        key = re.sub(r"\.\d+(?=\.)", ".*", ours)
        module, _, leaf = key.rpartition(".")
        if key not in names and module not in names:
            if ours in elsewhere:
                continue
            raise CheckpointError(f"{ours}: such a weight has no name in the files of this family")
        pattern = theirs = names[key] if key in names else f"{names[module]}.{leaf}"
        for number in re.findall(r"\.(\d+)(?=\.)", ours):
            theirs = theirs.replace("*", number, 1)
        theirs = theirs.removeprefix(bare)
        stacked.setdefault(theirs, []).append(ours)
        steps[theirs] = ops.get(key, ops.get(module, ()))
        whole[theirs] = ops.get(pattern, ops.get(names.get(module, ""), ()))
    rules = []
    for theirs, ours in stacked.items():
        cut = (Split(tuple(shapes[name][0] for name in ours)),) if len(ours) > 1 else ()
        rules.append(Rule(theirs, tuple(ours), whole[theirs] or (*cut, *steps[theirs])))
    rules += [replace(rule, theirs=rule.theirs.removeprefix(bare)) for rule in others]
    if isinstance(record.head, spec.LanguageHead) and record.head.tied:
        rules.append(same(f"{names['head']}.weight", "head.weight"))  # some files hold the tied table twice
    return rules


def usual_rules(record: spec.Model) -> list[Rule]:
    """The rules of a family all of whose names are usual."""
    return table_rules(record, USUAL)
