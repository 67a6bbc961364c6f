"""Parts knocked out while a model runs: heads, neurons, experts, layers, tokens and edges between heads."""

from __future__ import annotations

import warnings

import pytest
import torch

from cutaway import build, preset, remove, spec
from cutaway.errors import InputError
from cutaway.generation import generate
from cutaway.parts.step import Given
from cutaway.tracing.edges import Edge, cut
from cutaway.tracing.edit import Part, add, edit, exclude, hide, knock_out, patch, scale, zero
from cutaway.tracing.record import record
from tests.conformance.models import Inputs, drawn

IDS = torch.tensor([[5, 3, 9, 1, 30], [2, 2, 8, 0, 17]])
KINDS = ["gpt2-tiny", "modern-tiny", "bert-tiny", "t5-tiny", "original-2017-tiny"]


def mixture(**router):
    part = spec.MixtureOfExperts(n_experts=6, n_active=2, expert=spec.Gated(d_ff=6), router=spec.Router(**router))
    latent = spec.Latent(n_heads=2, kv_rank=4, nope_dim=2, rope_dim=2, value_dim=3, positions=spec.RoPE())
    parts = tuple(spec.Stage(branches=(spec.Branch(part=each, norm_in=spec.RMSNorm()),)) for each in (latent, part))
    layers = (spec.Repeat(times=2, blocks=(spec.Block(stages=parts),)),)
    return spec.Decoder(d_model=8, vocab_size=32, context_length=16, layers=layers)


def grouped(times=2, **more):
    """Layers of attention alone, four heads on two of keys, with everything that stands between x and q."""
    attn = spec.MultiHead(n_heads=4, n_kv_heads=2, positions=spec.RoPE(), q_bias=True, **more)
    branch = spec.Branch(part=attn, norm_in=spec.RMSNorm())
    layers = (spec.Repeat(times=times, blocks=(spec.Block(stages=(spec.Stage(branches=(branch,)),)),)),)
    return drawn(spec.Decoder(d_model=16, vocab_size=32, context_length=16, layers=layers))


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_knocked_out_is_one_removed(name):
    record_ = preset(name)
    model, given = drawn(record_), Inputs.of(record_)
    side = "decoder" if isinstance(record_, spec.EncoderDecoder) else ""
    with torch.no_grad(), edit(model, knock_out(layers=[1], side=side)) as report:
        got = given.run(model)
        wanted = given.run(remove(model, f"{side}.blocks.1".strip(".")))
    torch.testing.assert_close(got, wanted)
    assert set(report.changes) == {f"{side}.blocks.1.resid_post".strip(".")}


@pytest.mark.parametrize("router", [{}, {"score": "sigmoid", "normalise": False, "choice_bias": True}, {"n_groups": 3,
                                    "n_active_groups": 2}, {"score": "softmax_after"}])  # fmt: skip
def test_an_expert_knocked_out_is_one_removed(router):
    model = drawn(mixture(**router))
    with torch.no_grad(), edit(model, knock_out(experts=[(0, 1), (1, 4), (1, 5)])) as report:
        got = model(IDS)
    left = remove(model, "blocks.0.ffn.expert.1", "blocks.1.ffn.experts[4:6]")
    torch.testing.assert_close(got, left(IDS))
    one_by_one = remove(model, "blocks.0.ffn.expert.1", "blocks.1.ffn.expert.4", "blocks.1.ffn.expert.5")
    torch.testing.assert_close(one_by_one(IDS), left(IDS))
    assert report.changes["blocks.0.ffn.router.ranked"].difference > 0
    with pytest.raises(InputError, match="may be left"), edit(model, {"*.ranked": exclude(range(5))}):
        model(IDS)


def test_experts_are_counted_in_the_groups_where_fewest_are_left():
    model = drawn(mixture(n_groups=3, n_active_groups=2))
    with pytest.raises(InputError, match="1 experts may be left"), edit(model, {"*.ranked": exclude([0, 1, 2])}):
        model(IDS)


def test_what_is_hidden_is_read_by_nobody():
    model = drawn(preset("modern-tiny"))
    other = IDS.clone()
    other[:, 2] += 1
    with torch.no_grad(), edit(model, knock_out(tokens=[2])), record(model, "*.pattern") as run:
        a, b = model(IDS), model(other)
    keep = [0, 1, 3, 4]
    assert torch.equal(a[:, keep], b[:, keep]) and not torch.equal(a, b)
    pattern = run.steps("blocks.1.attn.pattern")[0]
    assert not pattern[..., 2].any() and torch.allclose(pattern.sum(-1), torch.ones(()).double())

    with pytest.warns(UserWarning, match="changed nothing"), edit(model, {"*.scores": hide([-6, 5])}):
        model(IDS)  # neither is there


def test_tokens_that_do_not_stand_in_their_column_are_not_hidden():
    model = drawn(preset("modern-tiny"))
    rows, hidden = [[5, 3, 9, 1, 7], [4, 2]], knock_out(tokens=[1])
    with pytest.raises(InputError, match="padding before a row"), edit(model, hidden):
        generate(model, rows, spec.Generation(max_tokens=2))
    mask = torch.tensor([[False, True, True, True, True], [True] * 5])
    with torch.no_grad(), pytest.raises(InputError, match="padding before a row"), edit(model, hidden):
        model(IDS, Given(mask=mask))
    two = drawn(preset("t5-tiny"))
    with torch.no_grad(), pytest.raises(InputError, match="a token's number"), edit(two, {"*.cross.scores": hide([0])}):
        two(IDS, Given(memory=two.encode(IDS, Given(mask=mask & torch.tensor([False, False, True, True, True])))))


EDITS = {
    "a head": lambda model: {"blocks.0.attn.z": zero(Part(heads=[1]))},
    "a layer": lambda model: knock_out(layers=[1]),
    "tokens": lambda model: knock_out(tokens=[0, 4]),
    "steering": lambda model: {"blocks.0.resid_post": add(torch.arange(64).double(), 0.1)},
    "edges": lambda model: cut(model, [Edge((0, 1), (1, 2), "k"), Edge((0, 0), (1, 3), "v"), Edge((0, 2), (1, 1))]),
}


@pytest.mark.parametrize("which", EDITS)
def test_an_edited_generation_with_a_cache_is_the_edited_run_without(which):
    model = drawn(preset("modern-tiny"))
    with record(model, "head.logits") as plain:
        generate(model, [[5, 3, 9]], spec.Generation(max_tokens=4))
    with edit(model, EDITS[which](model)), record(model, "head.logits") as run:
        out = generate(model, [[5, 3, 9]], spec.Generation(max_tokens=4)).ids[0]
    with torch.no_grad(), edit(model, EDITS[which](model)):
        whole = model(torch.tensor([[5, 3, 9, *out[:-1]]]))
    steps = torch.stack([step[0, -1] for step in run.steps("head.logits")])
    torch.testing.assert_close(steps, whole[0, 2:], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(steps[0], plain.steps("head.logits")[0][0, -1])


def by_hand(model, edge, without):
    """The logits, with the reader's q, k or v of a stream that lacks a head's output, by plain torch hooks."""
    kept = {}
    handles = [
        model.blocks[0].register_forward_hook(lambda _, __, out: kept.update(x=out)),
        model.blocks[0].attn.o_proj.register_forward_pre_hook(lambda _, given: kept.update(z=given[0])),
    ]
    model(IDS)
    heads = kept["z"].unflatten(-1, (4, -1))
    alone = torch.zeros_like(heads)
    alone[:, :, without] = heads[:, :, without]
    attn = model.blocks[1].attn
    write = alone.flatten(2) @ model.blocks[0].attn.o_proj.weight.T
    linear = {"q": attn.q_proj, "k": attn.k_proj, "v": attn.v_proj}[edge.reads]
    other = linear(attn.norm_in(kept["x"] - write))
    if attn.norm_first and edge.reads != "v":  # the norm over the width sees all heads of the other input
        linear = {"q": attn.q_norm, "k": attn.k_norm}[edge.reads]
        other = linear(other)
    width = other.shape[-1] // (4 if edge.reads == "q" else 2)
    head = edge.reader[1] if edge.reads == "q" else edge.reader[1] // 2

    def change(_, __, out):
        out = out.clone()
        out[..., head * width : (head + 1) * width] = other[..., head * width : (head + 1) * width]
        return out

    handles.append(linear.register_forward_hook(change))
    try:
        return model(IDS)
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("reads", ["q", "k", "v"])
@pytest.mark.parametrize("more", [{}, {"qk_norm": spec.QKNorm(), "clip": 0.7}, {"qk_norm": spec.QKNorm(over="width")}])
def test_an_edge_is_cut_as_by_hand(reads, more):
    model, edge = grouped(**more), Edge((0, 2), (1, 3), reads)
    with torch.no_grad(), edit(model, cut(model, [edge])) as report:
        got = model(IDS)
    with torch.no_grad():
        torch.testing.assert_close(got, by_hand(model, edge, 2), rtol=1e-10, atol=1e-12)
        assert not torch.allclose(got, model(IDS))
    assert list(report.changes) == [f"blocks.1.attn.{reads}"]


@pytest.mark.parametrize("gate", ["none", "per_head", "per_element"])
def test_with_every_edge_cut_a_head_reaches_the_end_alone(gate):
    """Then the final state is that of the model without the head, plus what the head writes."""
    model = grouped(output_gate=gate)
    edges = [Edge((0, 1), (1, head), reads) for head in range(4) for reads in ("q", "k", "v", "gate")]
    edges = [edge for edge in edges if gate != "none" or edge.reads != "gate"]
    with torch.no_grad():
        with edit(model, cut(model, edges)), record(model, "final", "blocks.0.attn.update") as run:
            model(IDS)
        with edit(model, knock_out(heads=[(0, 1)])), record(model, "final", "blocks.0.attn.update") as without:
            model(IDS)
    update = run["blocks.0.attn.update"] - without["blocks.0.attn.update"]
    assert update.abs().max() > 1e-3
    torch.testing.assert_close(run["final"], without["final"] + update)


def test_a_head_whose_gate_lost_an_edge_writes_with_what_is_left():
    model = grouped(3, output_gate="per_head")
    first, second = Edge((0, 1), (1, 2), "gate"), Edge((1, 2), (2, 0), "q")
    with torch.no_grad():
        with edit(model, cut(model, [first])), edit(model, cut(model, [second])):
            wanted = model(IDS)
        with edit(model, cut(model, [first, second])):
            assert torch.equal(model(IDS), wanted)
        with edit(model, cut(model, [second])):
            assert not torch.allclose(model(IDS), wanted)


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (Edge((1, 0), (1, 1)), "a later layer"),
        (Edge((0, 9), (1, 1)), "layer 0 has heads 0 to 3"),
        (Edge((0, 0), (1, 1), "gate"), "no output gate"),
        (Edge((0, 0), (7, 1)), "the model has layers 0 to 1"),
        (Edge((0, 0), (1, 1), "z"), "reads by q, k, v or gate"),
    ],
)
def test_edges_that_are_not_there_are_refused(edge, message):
    with pytest.raises(InputError, match=message):
        cut(grouped(), [edge])


def test_edges_through_a_norm_on_the_stream_are_refused():
    with pytest.raises(InputError, match="normed before the reader"):
        cut(build(preset("bert-tiny"), seed=0), [Edge((0, 0), (1, 0))])
    with pytest.raises(InputError, match="no multi-head attention"):
        cut(drawn(mixture()), [Edge((0, 0), (1, 0))])


@pytest.mark.parametrize("name", [*KINDS, "mixture"])
def test_a_null_edit_changes_no_bit_and_everything_patched_gives_the_other_output(name):
    record_ = mixture() if name == "mixture" else preset(name)
    model, given = drawn(record_), Inputs.of(record_)
    other = Inputs.of(record_, seed=8)
    with torch.no_grad(), record(model) as run:
        plain = given.run(model)
    warned = pytest.warns(UserWarning, match="changed nothing")
    with torch.no_grad(), warned, edit(model, {"*": scale(1.0)}), record(model) as edited:
        assert torch.equal(given.run(model), plain)
    assert run.names == edited.names
    for tap in run:
        assert all(torch.equal(a, b) for a, b in zip(run.steps(tap), edited.steps(tap), strict=True)), tap
    with torch.no_grad(), record(model) as theirs:
        wanted = other.run(model)
    routed = {tap: patch(theirs) for tap in theirs if "experts" not in tap}  # an expert's rows are those routed to it
    with torch.no_grad(), warnings.catch_warnings(), edit(model, routed):
        warnings.simplefilter("ignore")  # what was patched before leaves the later taps nothing to change
        assert torch.equal(given.run(model), wanted)


def test_what_an_edit_computes_is_not_heard():
    model = drawn(preset("modern-tiny"))

    def change(x):
        return model.blocks[1].ffn(x, None, None)

    with record(model, "*") as run, edit(model, {"blocks.0.resid_post": change}):
        model(IDS)
    assert len(run.steps("blocks.1.ffn.hidden")) == 1 and "blocks.1.resid_post" in run


def test_each_edit_says_how_much_it_changed():
    model = drawn(preset("modern-tiny"))
    with edit(model, {"blocks.*.attn.z": scale(3.0), "blocks.0.attn.*": hide_nothing}) as report:
        model(IDS)
    taps = [report.changes[f"blocks.{i}.attn.z"].difference ** 2 for i in range(2)]
    assert report.edits["blocks.*.attn.z"].difference == pytest.approx(sum(taps) ** 0.5)
    assert report.edits["blocks.*.attn.z"].calls == 2
    assert "changed by" in str(report)


def hide_nothing(x):
    return x * 1.5 if x.dim() == 3 else x


def test_hidden_tokens_have_scores():
    model = drawn(preset("modern-tiny"))
    with pytest.raises(InputError, match="no scores of keys"), edit(model, {"blocks.0.attn.z": hide([0])}):
        model(IDS)


def test_memory_may_be_hidden_from_cross_attention():
    model = drawn(preset("t5-tiny"))
    ids, source = IDS, torch.tensor([[5, 3, 9], [4, 4, 1]])
    with torch.no_grad():
        memory = model.encode(source)
        short = model.encode(source)
        states = short.states.clone()
        states[:, 1] = 7.0
        with edit(model, {"*.cross.scores": hide([1])}):
            a, b = model(ids, Given(memory=memory)), model(ids, Given(memory=type(short)(states, short.owners, True)))
    assert torch.equal(a, b)
