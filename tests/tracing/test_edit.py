"""Edits: what they do to a tensor, what they report, and that they are equal to hooks written by hand."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from cutaway import build, preset, spec
from cutaway.errors import InputError
from cutaway.generation import generate
from cutaway.tracing.edit import Part, add, edit, hide, knock_out, mean, patch, resample, scale, zero
from cutaway.tracing.record import record

A, B = torch.tensor([[5, 3, 9, 1]]), torch.tensor([[7, 7, 2, 4]])


@pytest.fixture(scope="module")
def model():
    return build(preset("modern-tiny"), seed=0, dtype=torch.float64).eval().requires_grad_(False)


def hooked(model, module, change, ids):
    handle = module.register_forward_hook(lambda _, __, out: change(out))
    try:
        return model(ids)
    finally:
        handle.remove()


def test_patching_equals_hooks_written_by_hand(model):
    kept = []
    hooked(model, model.blocks[0], lambda out: kept.append(out.clone()), A)
    for token in range(4):

        def change(out, token=token):
            out = out.clone()
            out[:, token] = kept[0][:, token]
            return out

        wanted = hooked(model, model.blocks[0], change, B)
        with record(model, "blocks.0.resid_post") as run:
            model(A)
        with edit(model, {"blocks.0.resid_post": patch(run, Part(tokens=[token]))}):
            assert torch.equal(model(B), wanted)


def test_everything_patched_gives_the_other_output_and_a_null_edit_no_other_bit(model):
    with record(model, "embedded") as run:
        wanted = model(A)
    with edit(model, {"embedded": patch(run)}):
        assert torch.equal(model(B), wanted)
    plain = model(B)
    with pytest.warns(UserWarning, match="changed nothing"), edit(model, {"blocks.*.resid_*": scale(1.0)}):
        assert torch.equal(model(B), plain)


def test_each_ready_edit_touches_its_part_alone(model):
    with record(model, "blocks.0.attn.z") as run:
        model(A)
    z, part = run["blocks.0.attn.z"], Part(heads=[1], tokens=[-1])
    vector = torch.arange(z.shape[-1]).double()
    edits = {
        "zero": (zero(part), torch.zeros_like(z)),
        "scale": (scale(-2.0, part), -2.0 * z),
        "add": (add(vector, 0.5, part), z + 0.5 * vector),
        "mean": (mean(part), z.mean((0, 2), keepdim=True).expand_as(z)),
    }
    for name, (change, wanted) in edits.items():
        with edit(model, {"blocks.0.attn.z": change}) as report, record(model, "blocks.0.attn.z") as after:
            model(A)
        got = after["blocks.0.attn.z"]
        torch.testing.assert_close(got[:, 1, -1], wanted[:, 1, -1], msg=name)
        left = torch.ones(z.shape, dtype=torch.bool)
        left[:, 1, -1] = False
        assert torch.equal(got[left], z[left]), name
        difference = (got - z).norm()
        assert report.changes["blocks.0.attn.z"].difference == pytest.approx(float(difference)), name


@pytest.mark.parametrize(("pool", "axes"), [("first", [0]), ("none", [0, 1])])
@pytest.mark.parametrize("kind", [spec.ClassHead, spec.VectorHead])
def test_the_mean_of_a_head_that_pools_is_over_rows_alone(kind, pool, axes):
    head = kind(pool=pool, **({"n_classes": 3} if kind is spec.ClassHead else {}))
    model = build(preset("bert-tiny").replace(head=head), seed=0).eval().requires_grad_(False)
    ids, name = torch.cat((A, B)), "head.logits" if kind is spec.ClassHead else "head.vectors"
    plain = model(ids)
    with edit(model, {name: mean()}):
        torch.testing.assert_close(model(ids), plain.mean(axes, keepdim=True).expand_as(plain))


def test_resampling_takes_vectors_of_the_other_text(model):
    with record(model, "blocks.1.resid_pre") as run:
        model(A)
    with edit(model, {"blocks.1.resid_pre": resample(run, seed=3)}), record(model, "blocks.1.resid_pre") as after:
        model(B)
    pool = run["blocks.1.resid_pre"][0]
    assert all(any(torch.equal(x, y) for y in pool) for x in after["blocks.1.resid_pre"][0])


def test_edits_compose_and_nest(model):
    name = "blocks.0.ffn.update"
    with edit(model, {name: scale(2.0), "blocks.0.ffn.*": scale(3.0)}), record(model, name) as run:
        model(A)
    with edit(model, {"blocks.0.ffn.*": scale(3.0)}), edit(model, {name: scale(2.0)}), record(model, name) as nested:
        model(A)
    torch.testing.assert_close(run[name], nested[name], rtol=1e-12, atol=0)


def test_an_edit_that_changed_nothing_is_named_beside_one_that_did(model):
    edits = {"blocks.0.ffn.update": scale(2.0), "blocks.0.ffn.upd*": scale(1.0)}
    with pytest.warns(UserWarning, match=r"^edit: blocks\.0\.ffn\.upd\* changed nothing"), edit(model, edits):
        model(A)


def test_knocked_out_heads_neurons_and_layers(model):
    edits = knock_out(heads=[(0, 1), (0, 2)], neurons=[(1, 7)], layers=[1])
    with edit(model, edits), record(model, "*") as run:
        model(A)
    assert not run["blocks.0.attn.z"][:, 1:3].any()
    assert run["blocks.0.attn.z"][:, 0].any()
    assert not run["blocks.1.ffn.hidden"][..., 7].any()
    assert torch.equal(run["blocks.1.resid_post"], run["blocks.1.resid_pre"])


def test_during_a_generation_each_step_is_edited(model):
    options = spec.Generation(max_tokens=5)
    plain = generate(model, [[5, 3, 9]], options).ids[0]
    other = next(i for i in range(model.spec.vocab_size) if i not in plain)
    row = torch.nn.functional.one_hot(torch.tensor(other), model.spec.vocab_size) * 1e4
    with edit(model, {"head.logits": add(row)}) as report:
        assert generate(model, [[5, 3, 9]], options).ids[0] == [other] * 5
    assert report.changes["head.logits"].calls == 5
    assert generate(model, [[5, 3, 9]], options).ids[0] == plain


def test_a_generation_is_patched_step_by_step(model):
    options = spec.Generation(max_tokens=5)
    with record(model, "blocks.1.resid_post") as run:
        wanted = generate(model, [[5, 3, 9]], options).ids
    assert generate(model, [[7, 7, 2]], options).ids != wanted
    with edit(model, {"blocks.1.resid_post": patch(run)}):
        assert generate(model, [[7, 7, 2]], options).ids == wanted


def test_a_frozen_pattern_is_the_recorded_one(model):
    with record(model, "blocks.*.attn.pattern") as run:
        model(A)
    with edit(model, {"blocks.*.attn.pattern": patch(run)}), record(model, "blocks.1.attn.pattern") as after:
        model(B)
    assert torch.equal(after["blocks.1.attn.pattern"], run["blocks.1.attn.pattern"])


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"blocks.0.attn.zz": zero()}, "no tap of the model has that name; the nearest is blocks.0.attn.z"),
        ({"blocks.0.attn.z": zero(Part(heads=[9]))}, "4 heads, not 9"),
        ({"blocks.0.resid_post": zero(Part(heads=[0]))}, "has no heads"),
        ({"blocks.0.resid_post": lambda x: x[:, :1]}, "keep both"),
        ({"blocks.0.resid_post": lambda x: x.to("meta")}, "moved blocks.0.resid_post from cpu to meta"),
        ({"blocks.0.resid_post": 0}, "a int is no edit"),
        ([("blocks.0.resid_post", zero())], "a list; give a mapping"),
        ({"positions": lambda x: x + 1}, "positions can be seen, not changed"),
        ({"blocks.0.resid_post": add(torch.ones(7))}, r"a vector of \(7,\) does not fit blocks.0.resid_post"),
        ({"blocks.0.resid_post": add(torch.ones(5, 1, 1, 64))}, "does not fit"),
        ({"blocks.0.attn.z": zero(Part(heads=2))}, "heads of blocks.0.attn.z: 2; give a list"),
        ({"blocks.0.attn.z": zero(Part(heads=[1.7]))}, r"\[1.7\]; give a list of whole numbers"),
        ({"blocks.0.attn.z": zero(Part(heads=[True, False, False, True]))}, "give a list of whole numbers"),
        ({"blocks.0.attn.z": zero(Part(tokens=slice(0.5, 2)))}, "give a list of whole numbers"),
        ({"blocks.0.attn.scores": hide("1")}, "give a list of whole numbers"),
    ],
)
def test_mistakes_are_named(model, edits, message):
    plain = model(A)
    with pytest.raises(InputError, match=message), edit(model, edits):
        model(A)
    assert torch.equal(model(A), plain)


def test_activation_checkpointing_is_refused():
    model = build(preset("modern-tiny"), seed=0)
    block = model.blocks[1].forward
    model.blocks[1].forward = lambda *given: checkpoint(block, *given, use_reentrant=False)
    with edit(model, {"blocks.1.resid_mid": scale(2.0)}):
        loss = model(A).sum()
        with pytest.raises(InputError, match="activation checkpointing"):
            loss.backward()


def test_edits_beside_busy_threads_change_nobody_elses_output(model):
    plain, stop, wrong = model(A), threading.Event(), []

    def busy():
        while not stop.is_set():
            if not torch.equal(model(A), plain):
                wrong.append(1)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for i in range(60):
                with edit(model, {f"blocks.{i % 2}.attn.z": scale(2.0 + i)}) as report:
                    assert not torch.equal(model(A), plain)
                assert report.changes[f"blocks.{i % 2}.attn.z"].calls == 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert torch.equal(model(A), plain)


def test_what_is_written_into_a_tensor_is_an_edit_of_that_tap_alone(model):
    def silence(z):
        z[:, 2] = 0.0
        return z

    def silence_only(z):
        z[:, 2] = 0.0

    with edit(model, {"blocks.0.attn.z": zero(Part(heads=[2]))}) as wanted:
        out = model(A)
    with record(model, "blocks.0.attn.z") as before:
        model(A)
    for change in (silence, silence_only):
        with (
            warnings.catch_warnings(), record(model, "blocks.0.attn.z") as outer,
            edit(model, {"blocks.0.attn.z": change}) as report,
        ):  # fmt: skip
            warnings.simplefilter("error")
            assert torch.equal(model(A), out)
        assert torch.equal(outer["blocks.0.attn.z"], before["blocks.0.attn.z"])
        assert report.changes["blocks.0.attn.z"] == wanted.changes["blocks.0.attn.z"]


def test_what_is_written_into_the_stream_leaves_its_other_taps(model):
    with edit(model, {"blocks.0.resid_post": lambda x: x.zero_()}), record(model, "blocks.0.resid.1") as run:
        model(A)
    assert run["blocks.0.resid.1"].abs().min() > 0


def test_a_module_is_an_edit(model):
    coder = torch.nn.Linear(64, 64, dtype=torch.float64).requires_grad_(False)
    with edit(model, {"blocks.0.resid_post": coder}):
        made = model(A)
    assert torch.equal(made, hooked(model, model.blocks[0], coder, A))


def test_a_report_tells_of_nan_and_not_of_what_was_nan_before(model):
    edits = {"blocks.0.attn.z": lambda z: z * torch.nan, "blocks.0.attn.out": lambda x: 1.0 * x}
    with pytest.warns(UserWarning, match="attn.out changed nothing"), edit(model, edits) as report:
        model(A)
    assert str(report).startswith("blocks.0.attn.z: 1 call, changed by nan of")
    assert report.edits["blocks.0.attn.out"].difference == 0.0


def test_norms_have_rows_and_tokens(model):
    with edit(model, {"final_norm.normed": mean()}), record(model, "final_norm.normed") as run:
        model(A)
    with edit(model, {"final_norm.normed": mean()}):
        made = model(A)
    average = run["final_norm.normed"].mean((0, 1), keepdim=True).expand(1, 4, -1)
    assert torch.equal(made, hooked(model, model.final_norm, lambda _: average * model.final_norm.weight, A))
    with edit(model, {"final_norm.normed": zero(Part(tokens=[0]))}):
        assert torch.equal(model(A)[:, 1:], model(A)[:, 1:]) and not model(A)[:, 0].any()


def test_a_model_within_a_module_answers_for_its_names(model):
    whole = torch.nn.Sequential(model)
    with edit(whole, {"0.embedded": scale(2.0), "0.final": scale(2.0)}) as report:
        whole(A)
    assert list(report.changes) == ["0.embedded", "0.final"]
    with pytest.raises(InputError, match="blocks.0.attn.z: no tap"), edit(whole, {"blocks.0.attn.z": zero()}):
        whole(A)
    with pytest.warns(UserWarning, match="attn.zz: no tap"), edit(model.blocks[0], {"attn.zz": zero()}):
        model(A)
