"""The block lab: removing a part changes what the mathematics says, and nothing before it."""

from __future__ import annotations

import numpy as np
import pytest

from cutaway.lab import labs
from cutaway.lab.labs.block_run import DESIGNS, Run, Sizes, draw_weights
from cutaway.reference import attention, feedforward
from cutaway.reference import block as reference
from cutaway.reference.masks import causal
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.positions import rope_frequencies, rotate, sinusoidal

POST = {
    "positions": "resid_pre", "attn": "attn.update", "mask": "attn.pattern", "scale": "attn.scores",
    "attn.residual": "attn.sum", "attn.norm": "resid_mid", "ffn": "ffn.update", "ffn.residual": "ffn.sum",
    "ffn.norm": "resid_post", "layer": "resid_post",
}  # fmt: skip
PRE = {
    "positions": "resid_pre", "attn.norm": "attn.in", "attn": "attn.update", "mask": "attn.pattern",
    "scale": "attn.scores", "attn.residual": "resid_mid", "ffn.norm": "ffn.in", "ffn": "ffn.update",
    "ffn.residual": "resid_post", "final_norm": "final_norm", "layer": "resid_post",
}  # fmt: skip
MODERN = PRE | {"positions": "attn.q_rot", "gate": "ffn.hidden"}
TWO = {
    **{f"encoder.{part}": f"encoder.{tensor}" for part, tensor in POST.items() if part not in ("mask", "layer")},
    **POST, "attn.norm": "resid.0", "cross": "cross.update", "cross.residual": "cross.sum", "cross.norm": "resid.1",
}  # fmt: skip
FIRST = {"post": POST, "pre": PRE, "modern": MODERN, "encoder-decoder": TWO}
EVERY = [(design, part) for design, parts in FIRST.items() for part in parts]


@pytest.mark.parametrize(("design", "part"), EVERY)
def test_removing_a_part_changes_its_own_tensor_first(design: str, part: str) -> None:
    result = labs.run("block", {"design": design, "remove": [part]})
    assert result["first"]["name"] == FIRST[design][part]
    assert result["first"]["difference"] > 1e-3
    assert result["output_difference"] > 1e-4
    names = [tensor["name"] for tensor in result["tensors"]]
    for tensor in result["tensors"][: names.index(result["first"]["name"])]:
        assert tensor["difference"] in (0, None), f"{tensor['name']} changed before {part} was reached"
        assert tensor["gone"] == (tensor["difference"] is None)
    values = np.array(result["first"]["with"]) - np.array(result["first"]["without"])
    assert np.abs(values).max() == pytest.approx(result["first"]["difference"])


@pytest.mark.parametrize("design", FIRST)
def test_every_part_has_its_switch_and_removing_nothing_changes_nothing(design: str) -> None:
    result = labs.run("block", {"design": design})
    assert set(result["removable"]) == set(FIRST[design])
    assert result["first"] is None
    assert result["output"] == result["output_without"]
    assert not any(tensor["changed"] or tensor["gone"] for tensor in result["tensors"])


def _runs(design: str, *removed: str) -> tuple[dict, dict]:
    sizes = Sizes(2, 5, 4, 8, 2, bias=True)
    weights = draw_weights(DESIGNS[design], sizes, 7)
    x, source = np.random.default_rng(1).normal(size=(2, 5, 8)), np.random.default_rng(2).normal(size=(2, 4, 8))
    return tuple(Run(DESIGNS[design], 2, weights, frozenset(gone)).all(x, source) for gone in ((), removed))  # type: ignore[return-value]


def test_what_stands_in_place_of_a_removed_part() -> None:
    """The table of what remove means, one row at a time."""
    whole, cut = _runs("pre", "attn")
    np.testing.assert_array_equal(cut["resid_mid"], whole["resid_pre"])
    whole, cut = _runs("pre", "attn.residual")
    np.testing.assert_array_equal(cut["resid_mid"], whole["attn.update"])
    whole, cut = _runs("pre", "attn.norm")
    np.testing.assert_array_equal(cut["attn.in"], whole["resid_pre"])
    whole, cut = _runs("pre", "scale")
    np.testing.assert_allclose(cut["attn.scores"], whole["attn.scores"] * 2)  # d_k is 4
    whole, cut = _runs("pre", "layer")
    np.testing.assert_array_equal(cut["resid_post"], whole["resid_pre"])
    whole, cut = _runs("pre", "positions")
    np.testing.assert_array_equal(cut["resid_pre"], whole["embedding"])
    whole, cut = _runs("pre", "final_norm")
    np.testing.assert_array_equal(cut["final_norm"], whole["resid_post"])
    whole, cut = _runs("post", "attn.residual")
    np.testing.assert_allclose(cut["resid_mid"], layer_norm(whole["attn.update"], eps=1e-5))
    whole, cut = _runs("post", "attn.norm")
    np.testing.assert_array_equal(cut["resid_mid"], whole["attn.sum"])
    whole, cut = _runs("modern", "positions")
    np.testing.assert_array_equal(cut["attn.q_rot"], whole["attn.q"])
    whole, cut = _runs("modern", "gate")
    np.testing.assert_array_equal(cut["ffn.hidden"], whole["ffn.value"])
    whole, cut = _runs("encoder-decoder", "cross")
    np.testing.assert_allclose(cut["resid.1"], layer_norm(whole["resid.0"], eps=1e-5))


def test_without_the_mask_every_position_is_seen() -> None:
    whole, cut = _runs("pre", "mask")
    future = np.triu(np.ones((5, 5), dtype=bool), 1)
    assert (whole["attn.pattern"][..., future] == 0).all()
    assert (cut["attn.pattern"] > 0).all()


@pytest.mark.parametrize("design", FIRST)
def test_the_lab_runs_the_reference_block(design: str) -> None:
    """The recorded run against the reference's own block, put together apart from the lab."""
    sizes = Sizes(2, 5, 4, 8, 2, bias=True)
    weights = draw_weights(DESIGNS[design], sizes, 7)
    x, source = np.random.default_rng(1).normal(size=(2, 5, 8)), np.random.default_rng(2).normal(size=(2, 4, 8))
    modern, post = design == "modern", DESIGNS[design].post

    def norm(v: np.ndarray) -> np.ndarray:
        return rms_norm(v, eps=1e-5) if modern else layer_norm(v, eps=1e-5)

    def own(prefix: str) -> dict:
        return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}

    def turn(q: np.ndarray) -> np.ndarray:
        return rotate(q, np.arange(q.shape[-2])[:, None] * rope_frequencies(4))

    heads = attention.Heads(2, turn=turn) if modern else attention.Heads(2)
    place = np.arange(5)
    mask = causal(place[:, None], place)

    def attend(v: np.ndarray) -> np.ndarray:
        return attention.multi_head(v, own("attn."), heads, mask)

    def ffn(v: np.ndarray) -> np.ndarray:
        return feedforward.gated(v, own("ffn.")) if modern else feedforward.dense(v, own("ffn."))

    parts = [attend, ffn]
    start = x if modern else x + sinusoidal(place, 8)
    if DESIGNS[design].encoder:
        memory = reference.block(
            source + sinusoidal(np.arange(4), 8),
            reference.post_norm(
                [
                    lambda v: attention.multi_head(v, own("encoder.attn."), heads),
                    lambda v: feedforward.dense(v, own("encoder.ffn.")),
                ],
                norm,
            ),
        )
        parts.insert(1, lambda v: attention.multi_head(v, own("cross."), heads, memory=memory))
    stages = reference.post_norm(parts, norm) if post else reference.pre_norm(parts, norm)
    expected = reference.block(start, stages)
    tensors = Run(DESIGNS[design], 2, weights).all(x, source)
    np.testing.assert_allclose(tensors["resid_post"], expected, atol=1e-12)
    if not post:
        np.testing.assert_allclose(tensors["final_norm"], norm(expected), atol=1e-12)


@pytest.mark.parametrize("design", FIRST)
@pytest.mark.parametrize("bias", [False, True])
def test_the_counted_parameters_are_the_weights_that_are_there(design: str, bias: bool) -> None:
    sizes = Sizes(1, 4, 5, 8, 2, bias)
    weights = draw_weights(DESIGNS[design], sizes, 0)
    result = labs.run("block", {"design": design, "bias": bias})
    norms = sum(part["parameters"] for part in result["parts"] if part["id"].endswith("norm"))
    assert result["parameters"] == sum(weight.size for weight in weights.values()) + norms
    counted = {part["id"]: part["parameters"] for part in result["parts"]}
    for part in ("attn", "ffn"):
        assert counted[part] == sum(w.size for name, w in weights.items() if name.startswith(f"{part}."))


def test_what_each_token_sees_is_tried_out() -> None:
    whole = labs.run("block", {"remove": ["attn"]})
    assert whole["sees"] == np.tril(np.ones((4, 4), dtype=bool)).tolist()
    assert whole["sees_without"] == np.eye(4, dtype=bool).tolist()
    assert np.all(labs.run("block", {"remove": ["mask"]})["sees_without"])


def test_with_one_token_the_mask_hides_nothing_and_the_lab_says_so() -> None:
    result = labs.run("block", {"L": 1, "remove": ["mask"]})
    assert result["first"] is None
    assert "nothing changes" in result["text"]


@pytest.mark.parametrize("design", FIRST)
def test_the_drawing_holds_every_node_once_and_its_arrows_meet_nodes(design: str) -> None:
    result = labs.run("block", {"design": design})
    ids = [node["id"] for node in result["nodes"]]
    assert len(set(ids)) == len(ids)
    assert {edge[end] for edge in result["edges"] for end in ("from", "to")} <= set(ids)
    adds = [node["id"] for node in result["nodes"] if node["kind"] == "residual"]
    around = {edge["to"]: edge["from"] for edge in result["edges"] if edge["kind"] == "residual"}
    assert set(around) == set(adds)
    positions = [] if design == "modern" else ["positions"]
    assert around["attn.residual"] == [*positions, "input"][0]
    for node in result["nodes"]:
        shown = labs.run("block", {"design": design, "part": node["id"]})["part"]
        assert shown["purpose"].endswith(".")
        assert shown["breaks"] or node["kind"] == "input"


def test_heads_that_do_not_share_the_width_are_not_offered() -> None:
    result = labs.run("block", {"d_model": 12, "heads": 6})
    assert result["legal_heads"] == [1, 2, 3, 4, 6, 12]
    assert labs.run("block", {"d_model": 12, "design": "modern"})["legal_heads"] == [1, 2, 3, 6]
