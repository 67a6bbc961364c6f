"""Recordings: what is kept is what the model computes, under every name, for every way to run it."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from cutaway import build, preset, spec
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.safetensors_write import outputs, write_file
from cutaway.errors import InputError
from cutaway.generation import generate
from cutaway.parts.step import Given
from cutaway.tap import heard as listened_to
from cutaway.tap import listening, matcher
from cutaway.tracing.edit import edit, zero
from cutaway.tracing.names import describe, ours
from cutaway.tracing.record import META, Recording, Taken, record

IDS = torch.tensor([[5, 3, 9, 1], [2, 2, 8, 0]])


@pytest.fixture(scope="module")
def model():
    return build(preset("modern-tiny"), seed=0).eval()


def test_a_recording_changes_no_bit_and_is_what_runs(model):
    with torch.no_grad():
        plain = model(IDS)
        with record(model, "blocks.*.resid_post", "head.logits") as run:
            assert torch.equal(model(IDS), plain)
    assert run.names == ["blocks.0.resid_post", "blocks.1.resid_post", "head.logits"]
    assert torch.equal(run["head.logits"], plain)
    with torch.no_grad():
        assert torch.equal(model.head(model.final_norm(run["blocks.1.resid_post"]), None), plain)


def test_it_goes_on_when_one_inside_it_ends(model):
    with record(model, "blocks.0.attn.pattern") as outer:
        with record(model, "final") as inner:
            model(IDS)
        model(IDS)
    model(IDS)
    assert (inner.names, outer.names) == (["final"], ["blocks.0.attn.pattern"])
    assert (len(inner.steps("final")), len(outer.steps("blocks.0.attn.pattern"))) == (1, 2)


def test_what_a_listener_runs_itself_is_not_heard(model):
    names = []

    def hear(name, x):
        names.append(name)
        model(IDS)

    with torch.no_grad(), listening(model, hear, "final"):
        model(IDS)
    assert names == ["final"]


def test_what_the_backward_pass_computes_again_is_recorded_once():
    model = build(preset("modern-tiny"), seed=0)
    block = model.blocks[1].forward
    model.blocks[1].forward = lambda *given: checkpoint(block, *given, use_reentrant=False)
    with record(model, "blocks.*.resid_mid", taken=Taken(gradients=True)) as run:
        model(IDS).sum().backward()
    assert run.n_steps == 1 and run["blocks.1.resid_mid"].shape == (2, 4, 64)
    assert run.gradient("blocks.1.resid_mid").abs().max() > 0


def test_patterns_mean_layers_as_in_a_list():
    paths = [f"blocks.{i}" for i in range(12)]
    names = [f"blocks.{i}.resid_post" for i in range(12)]

    def layers(pattern):
        test = matcher([pattern], paths)
        return [i for i, name in enumerate(names) if test(name)]

    assert layers("blocks[3:7].resid_post") == [3, 4, 5, 6]
    assert layers("blocks[-1].resid_post") == [11]
    assert layers("blocks[-2:].resid_post") == [10, 11]
    assert layers("blocks[::5].resid_post") == [0, 5, 10]
    assert layers("blocks.1.resid_post") == [1]
    assert layers("*.resid_post") == list(range(12))
    assert layers("blocks[3].attn.q") == []
    with pytest.raises(InputError, match=re.escape("[x]")):
        matcher(["blocks[x].resid_post"])


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        ("blocks.1.hook_resid_pre", "blocks.1.resid_pre"),
        ("blocks.0.attn.hook_attn_scores", "blocks.0.attn.scores"),
        ("blocks.0.mlp.hook_post", "blocks.0.ffn.hidden"),
        ("blocks.0.ln2.hook_normalized", "blocks.0.ffn.norm_in.normed"),
        ("ln_final.hook_scale", "final_norm.scale"),
        ("model.layers.1.self_attn", "blocks.1.attn.out"),
        ("hidden_states.1", "blocks.1.resid_pre"),
        ("attentions[1]", "blocks[1].attn.pattern"),
        ("lm_head", "head.logits"),
    ],
)
def test_names_of_other_tools(model, theirs, wanted):
    assert ours(theirs) == wanted
    with record(model, theirs) as run:
        model(IDS)
    assert run.names == [wanted.replace("[1]", ".1")]
    assert torch.equal(run[theirs], run[run.names[0]])


@pytest.mark.parametrize("name", ["modern-tiny", "gpt2-tiny"])
def test_steps_of_a_generation_join_to_the_run_without_a_cache(name):
    model = build(preset(name), seed=0, dtype=torch.float64).eval()
    with record(model, "blocks.*.attn.*", "blocks.*.resid_post") as run:
        out = generate(model, [[5, 3, 9]], spec.Generation(max_tokens=5)).ids[0]
    with torch.no_grad(), record(model, "blocks.*.attn.*", "blocks.*.resid_post") as whole:
        model(torch.tensor([[5, 3, 9, *out[:-1]]]))
    assert run.n_steps == 5
    assert run.names == whole.names
    for tap in run:
        torch.testing.assert_close(run[tap], whole[tap], rtol=1e-9, atol=1e-9, msg=tap)
    assert run.positions.tolist() == [list(range(7))]


def test_memory_is_bounded_by_what_is_kept(model):
    with torch.no_grad(), record(model, "blocks.*.resid_post", taken=Taken(reduce=lambda x: x[:, -1:])) as run:
        model(IDS)
    kept = run["blocks.0.resid_post"]
    assert kept.shape == (2, 1, 64)
    assert kept.untyped_storage().nbytes() == kept.nbytes
    with torch.no_grad(), record(model, "blocks.0.ffn.hidden", taken=Taken(dtype=torch.bfloat16)) as run:
        model(IDS)
    assert run["blocks.0.ffn.hidden"].dtype == torch.bfloat16


def test_what_is_taken_is_moved_and_reduced_as_it_comes(model):
    """A device that holds no numbers stands for any other: what is moved there has left this one."""
    kept = Taken(reduce=lambda x: x.norm(dim=-1), device="meta", dtype=torch.float64)
    with record(model, "blocks.*.resid_post", taken=kept) as run:
        out = generate(model, [[5, 3, 9]], spec.Generation(max_tokens=4)).ids[0]
    assert out == generate(model, [[5, 3, 9]], spec.Generation(max_tokens=4)).ids[0]
    steps = run.steps("blocks.1.resid_post")
    assert [tuple(step.shape) for step in steps] == [(1, 3), (1, 1), (1, 1), (1, 1)]
    assert {(step.device.type, step.dtype) for step in steps} == {("meta", torch.float64)}
    assert run.positions.device.type == "cpu" and run.positions.tolist() == [list(range(6))]
    with pytest.raises(InputError, match="reduced as they were taken"):
        run["blocks.1.resid_post"]


def test_a_long_recording_holds_no_more_than_what_was_kept(model):
    last = Taken(reduce=lambda x: x[:, -1:, :4])
    with record(model, "blocks.*.resid_post", taken=last) as run:
        generate(model, [list(range(1, 20))], spec.Generation(max_tokens=6, stop_ids=()))
    held = sum(step.untyped_storage().nbytes() for name in run for step in run.steps(name))
    assert held == 2 * 6 * 4 * 4


def test_a_ragged_batch_is_recorded_with_the_positions_of_its_rows(model):
    with record(model, "blocks.1.resid_post") as run:
        generate(model, [[5, 3, 9, 1], [7, 2]], spec.Generation(max_tokens=3, stop_ids=()))
    for row, prompt in enumerate(([5, 3, 9, 1], [7, 2])):
        with record(model, "blocks.1.resid_post") as alone:
            generate(model, [prompt], spec.Generation(max_tokens=3, stop_ids=()))
        first = 4 - len(prompt)
        assert run.positions[row, first:].tolist() == alone.positions[0].tolist()
        torch.testing.assert_close(run["blocks.1.resid_post"][row, first:], alone["blocks.1.resid_post"][0],
                                   rtol=1e-4, atol=1e-5)  # fmt: skip


def test_gradients_of_named_tensors_are_differences(model):
    model = build(preset("modern-tiny"), seed=0, dtype=torch.float64)
    name = "blocks.0.resid_post"
    with record(model, name, taken=Taken(gradients=True)) as run:
        model(IDS)[:, -1, 7].sum().backward()
    gradient, step = run.gradient(name), torch.zeros_like(run[name])
    step[1, 2, 5] = 1e-6
    ends = []
    for sign in (1, -1):
        with torch.no_grad(), listening(model, lambda _, x, sign=sign: x + sign * step, name):
            ends.append(model(IDS)[:, -1, 7].sum())
    assert abs((ends[0] - ends[1]) / 2e-6 - gradient[1, 2, 5]) < 1e-8
    with pytest.raises(InputError, match="no gradient"):
        with record(model, name) as run:
            model(IDS)
        run.gradient(name)


def test_it_is_saved_and_loaded(model, tmp_path):
    with record(model, "blocks.0.attn.pattern", "blocks.*.resid_post") as run:
        generate(model, [[5, 3, 9]], spec.Generation(max_tokens=3))
    run.save(tmp_path / "run.safetensors")
    again = Recording.load(tmp_path / "run.safetensors")
    assert again.names == run.names
    for tap in run:
        assert all(torch.equal(a, b) for a, b in zip(run.steps(tap), again.steps(tap), strict=True))
    assert torch.equal(again.positions, run.positions)
    model_file = tmp_path / "other.safetensors"
    from cutaway.checkpoints.safetensors_write import outputs, write_file

    write_file(model_file, outputs({"x": torch.zeros(2)})[0])
    with pytest.raises(InputError, match="no recording"):
        Recording.load(model_file)


def test_names_that_nothing_answers_to_are_refused(model):
    with pytest.raises(InputError, match="the nearest is blocks.0.attn.q$"), record(model, "blocks.0.attn.queries"):
        model(IDS)
    with record(model, "blocks.0.attn.q") as run:
        model(IDS)
    with pytest.raises(InputError, match=r"did you mean blocks\.0\.attn\.q"):
        run["blocks.0.attn.k"]


KINDS = ["modern-tiny", "original-2017-tiny", "bert-tiny", "t5-tiny", "gpt2-tiny"]


@pytest.mark.parametrize("name", KINDS)
def test_the_glossary_knows_every_tap_and_its_shape(name):
    model = build(preset(name), seed=0).eval()
    heard = {}
    with torch.no_grad(), listening(model, lambda tap, x: heard.update({tap: x.shape})):
        if hasattr(model, "encode"):
            model(IDS, Given(memory=model.encode(IDS[:, :3])))
        else:
            model(IDS)
    assert heard
    for tap, shape in heard.items():
        axes = describe(tap).axes
        assert axes[0] == "..." or len(axes) == len(shape), tap
        assert axes[0] != "B" or shape[0] == 2, tap
        if "T" in axes:
            assert shape[axes.index("T")] == (
                3 if tap.startswith("encoder.") or ".cross.k" in tap or ".cross.v" in tap else 4
            ), tap


def test_a_part_under_two_names_is_heard_under_the_first_that_is_asked_for():
    model = build(preset("modern-tiny"), seed=0).eval()
    model.blocks[1] = model.blocks[0]
    for asked, heard in (
        ("blocks[1].attn.q", "blocks.1.attn.q"),
        ("blocks.1.attn.q", "blocks.1.attn.q"),
        ("blocks[-1].attn.q", "blocks.1.attn.q"),
        ("blocks.*.attn.q", "blocks.0.attn.q"),
    ):
        with torch.no_grad(), record(model, asked) as run:
            model(IDS)
        assert run.names == [heard] and len(run.steps(heard)) == 2


def test_a_listening_is_begun_once(model):
    again = listening(model, print, "blocks.0.attn.q")
    with again, pytest.raises(InputError, match="begun a second time; make another"), again:
        pass
    with torch.no_grad(), record(model, "blocks.0.attn.q") as run:  # and the first has ended as it should
        model(IDS)
    assert run.names == ["blocks.0.attn.q"]


def test_slices_of_one_product_are_kept_apart_and_change_no_bit(tmp_path):
    native.save(build(preset("llama-tiny"), seed=0), tmp_path)
    model = open_checkpoint(tmp_path).load(torch.float64)  # q, k and v lie side by side, and are one product
    with torch.inference_mode():
        plain = model(IDS)
        with record(model, "blocks.*.attn.q", "blocks.*.attn.k", "blocks.*.attn.v") as run:
            assert torch.equal(model(IDS), plain)
    assert all(step.untyped_storage().nbytes() == step.nbytes for name in run for step in run.steps(name))


def test_a_model_inside_another_is_heard_by_its_names_there_and_no_other(model):
    outer = torch.nn.ModuleDict({"lm": model})
    for name in ("blocks.0.attn.q", "blocks[0].attn.q", "blocks.*.attn.q"):
        with torch.no_grad(), record(outer, f"lm.{name}") as run:
            model(IDS)
        assert run.names[0] == "lm.blocks.0.attn.q"
        with torch.no_grad(), pytest.raises(InputError, match="no tap of the model has that name"), record(outer, name):
            model(IDS)
    with record(model, "blocks.0.attn.q", "final", "*.scores") as run:
        pass
    with record(model.blocks[0], "resid.0", "attn.q"):
        pass
    assert not run.names


def _stance():
    return torch._dynamo.eval_frame._stance.stance


def test_listeners_may_end_in_another_order_than_they_began(model):
    def recorded():
        with record(model, "blocks.0.attn.z") as run:
            yield run

    first = recorded()
    held = next(first)
    with record(model, "blocks.1.attn.z") as run:
        first.close()
        model(IDS)
        assert listened_to() and _stance() == "force_eager"
    assert not listened_to() and not held.names and run.names == ["blocks.1.attn.z"] and _stance() == "default"


def test_what_listens_from_within_a_listener_hears(model):
    inner = []

    def hear(name, x):
        with record(model, "blocks.0.attn.z") as run, edit(model, {"blocks.0.attn.v": zero()}):
            model(IDS)
        inner.append(run["blocks.0.attn.z"])

    with listening(model, hear, "blocks.1.attn.z"), record(model, "blocks.*.attn.z") as outer:
        model(IDS)
    assert [float(x.abs().max()) for x in inner] == [0.0] and len(outer.steps("blocks.0.attn.z")) == 1


def test_negative_layers_are_those_of_each_stack_and_the_recording_knows_them_too():
    paths = ["encoder.blocks.0", "encoder.blocks.1", *(f"decoder.blocks.{i}" for i in range(4))]
    names = [f"{path}.resid_post" for path in paths]
    last = matcher(["*.blocks[-1].resid_post"], paths)
    assert list(filter(last, names)) == [names[1], names[5]]
    assert list(filter(matcher(["encoder.blocks[-2:].*"], paths), names)) == names[:2]
    run = Recording()
    run.taken = {name: [torch.full((1, 1, 2), float(i))] for i, name in enumerate(names)}
    assert float(run["encoder.blocks[-1].resid_post"][0, 0, 0]) == 1.0


@pytest.mark.parametrize(
    "about",
    ["no json", "[]", "3", '"steps"', '{"steps": 3, "reduced": false}', '{"steps": {"a": 1}}', "[" * 100000,
     '{"steps": {"a": "x"}, "reduced": false}', '{"steps": {"a": 0}, "reduced": false}',
     '{"steps": {"a": true}, "reduced": false}', '{"steps": {"a": 1}, "reduced": "no"}'],
)  # fmt: skip
def test_what_is_no_recording_is_one_line(tmp_path, about):
    tensors, _ = outputs({"a": torch.ones(2)})
    write_file(tmp_path / "a", tensors, {META: about})
    with pytest.raises(InputError, match="but no recording"):
        Recording.load(tmp_path / "a")


def test_what_nobody_can_mean_is_refused(model):
    with pytest.raises(InputError, match="names are texts"), record(model, ["blocks.0.attn.z"]):
        model(IDS)
    with pytest.raises(InputError, match="with gradients tensors stay as they are"):
        Taken(reduce=lambda x: x[:, -1:], gradients=True)
    with (
        pytest.raises(InputError, match="reduce made a NoneType"),
        record(model, "final", taken=Taken(reduce=lambda x: None)),
    ):
        model(IDS)


def test_names_of_what_a_run_may_pass_by_are_not_refused(model):
    mixture = spec.MixtureOfExperts(n_experts=4, n_active=1, expert=spec.Gated(d_ff=16))
    stages = tuple(spec.Stage(branches=(spec.Branch(part=part),)) for part in (spec.MultiHead(n_heads=4), mixture))
    layers = (spec.Block(stages=stages),)
    chosen = build(spec.Decoder(d_model=64, vocab_size=16, context_length=8, layers=layers), seed=0).eval()
    both = build(preset("original-2017-tiny"), seed=0).eval()
    expert = "blocks.0.ffn.experts"
    with torch.no_grad(), record(chosen, *(f"{expert}.{i}.hidden" for i in range(4))) as run:
        chosen(IDS[:1, :1])
    assert 0 < len(run) < 4  # one token goes to some of them
    with torch.no_grad(), record(chosen.blocks[0].ffn, *(f"experts.{i}.hidden" for i in range(4))) as run:
        chosen(IDS[:1, :1])
    assert 0 < len(run) < 4
    with torch.no_grad(), record(both, "decoder.blocks.0.attn.q", "encoder.blocks.0.attn.q", "head.logits") as run:
        memory = both.encode(IDS)
    assert run.names == ["encoder.blocks.0.attn.q"]
    with torch.no_grad(), record(both, "decoder.blocks.0.attn.q", "encoder.blocks.0.attn.q") as run:
        both(IDS, Given(memory=memory))
    assert run.names == ["decoder.blocks.0.attn.q"]
    model = build(preset("modern-tiny"), seed=0).eval()
    model.blocks[1] = model.blocks[0]
    for asked in (("blocks.0.attn.q", "blocks.1.attn.q"), ("blocks[0].attn.q", "blocks[1].*.q")):
        with torch.no_grad(), record(model, *asked) as run:
            model(IDS)
        assert run.names == ["blocks.0.attn.q"] and len(run.steps("blocks.0.attn.q")) == 2
    for own, name in ((chosen, f"{expert}.9.hidden"), (chosen, f"{expert}.0.hiden"), (both, "decodr.final")):
        with torch.no_grad(), pytest.raises(InputError, match="no tap of the model has that name"), record(own, name):
            own(IDS) if own is chosen else own.encode(IDS)


def test_names_of_a_module_of_others_and_patterns_wait_until_it_runs(model):
    with record(torch.nn.Linear(2, 2), "x"), record(model, "bl*.attn.q"):
        pass


def test_what_is_kept_is_no_part_of_a_graph(model):
    leaf = torch.zeros(2, 4, 64, requires_grad=True)
    with torch.no_grad(), listening(model, lambda name, x: leaf, "final"), record(model, "final") as run:
        model(IDS)
    assert not run["final"].requires_grad
