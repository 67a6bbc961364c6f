"""Activation and path patching equal loops written by hand over plain torch hooks."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from cutaway import build, preset, spec
from cutaway.errors import InputError
from cutaway.tracing.patching import Question, patch_sweep
from cutaway.tracing.paths import Receiver, path_sweep
from cutaway.tracing.prompt import Prompt

A, B = torch.tensor([[5, 3, 9, 1, 7]]), torch.tensor([[5, 8, 9, 2, 7]])
CLEAN, CORRUPTED, QUESTION = Prompt(A), Prompt(B), Question(11, 20)


def drawn(name, **settings):
    torch.manual_seed(1)
    model = build(spec.set_values(preset(name), settings), seed=0, dtype=torch.float64).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(scope="module", params=["none", "per_head", "per_element"])
def model(request):
    return drawn("modern-tiny", **{"output_gate": request.param})


class Hooks:
    """Plain torch hooks: what a module reads or gives is kept, or replaced."""

    def __init__(self, model):
        self.model = model

    def run(self, ids, inputs=None, outputs=None):
        """The question's logit difference with modules' inputs or outputs changed by functions."""
        with ExitStack() as stack:
            for module, change in (inputs or {}).items():
                handle = module.register_forward_pre_hook(lambda _, args, change=change: (change(args[0]), *args[1:]))
                stack.callback(handle.remove)
            for module, change in (outputs or {}).items():
                handle = module.register_forward_hook(lambda _, __, out, change=change: change(out))
                stack.callback(handle.remove)
            logits = self.model(ids)[0, -1]
        return float(logits[QUESTION.right] - logits[QUESTION.wrong])


def keep(store, name):
    def kept(x):
        store[name] = x.clone()
        return x

    return kept


def put(x, index, value):
    x = x.clone()
    x[index] = value[index]
    return x


@pytest.mark.parametrize("what", ["stream", "attn", "ffn"])
def test_a_sweep_over_positions_equals_hooks(model, what):
    hooks, clean = Hooks(model), {}
    module = {"stream": lambda i: model.blocks[i], "attn": lambda i: model.blocks[i].attn,
              "ffn": lambda i: model.blocks[i].ffn}[what]  # fmt: skip
    way = "inputs" if what == "stream" else "outputs"
    top = hooks.run(A, **{way: {module(i): keep(clean, i) for i in range(2)}})
    low = hooks.run(B)
    sweep = patch_sweep(model, CLEAN, CORRUPTED, QUESTION, what)
    assert (sweep.clean, sweep.corrupted) == pytest.approx((top, low), rel=1e-12)
    assert sweep.effects.shape == (2, 5)
    for layer in range(2):
        for position in range(5):
            change = lambda x, i=layer, t=position: put(x, (0, t), clean[i])
            wanted = (hooks.run(B, **{way: {module(layer): change}}) - low) / (top - low)
            assert float(sweep.effects[layer, position]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    if what == "stream":
        assert sweep.grid().columns == ("'<5>'", "'<3>'/'<8>'", "'<9>'", "'<1>'/'<2>'", "'<7>'")


def head_slice(model, layer, head):
    width = model.blocks[layer].attn.o_proj.weight.shape[1] // model.blocks[layer].attn.n_heads
    return (0, slice(None), slice(head * width, (head + 1) * width))


def test_a_sweep_over_heads_equals_hooks(model):
    hooks, clean = Hooks(model), {}
    joined = [block.attn.o_proj for block in model.blocks]
    top = hooks.run(A, inputs={module: keep(clean, i) for i, module in enumerate(joined)})
    low = hooks.run(B)
    sweep = patch_sweep(model, CLEAN, CORRUPTED, QUESTION, "head")
    assert sweep.effects.shape == (2, 4)
    for layer in range(2):
        for head in range(4):
            change = lambda x, i=layer, n=head: put(x, head_slice(model, i, n), clean[i])
            wanted = (hooks.run(B, inputs={joined[layer]: change}) - low) / (top - low)
            assert float(sweep.effects[layer, head]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("to", ["logits", "1", "1.2.q", "1.2.k", "1.3.v"])
def test_paths_equal_hooks(model, to):
    hooks, receiver = Hooks(model), Receiver.parse(to)
    joined = [block.attn.o_proj for block in model.blocks]
    clean, corrupted = {}, {}
    top = hooks.run(A, inputs={module: keep(clean, i) for i, module in enumerate(joined)})
    low = hooks.run(B, inputs={module: keep(corrupted, i) for i, module in enumerate(joined)})
    sweep = path_sweep(model, CLEAN, CORRUPTED, QUESTION, receiver)
    n_layers = 2 if receiver.layer is None else receiver.layer
    assert sweep.effects.shape == (n_layers, 4)
    for layer in range(n_layers):
        for head in range(4):
            held = {
                module: lambda x, i=i, at=head_slice(model, layer, head), sends=i == layer: (
                    put(corrupted[i], at, clean[i]) if sends else corrupted[i]
                )
                for i, module in enumerate(joined)
            }
            wanted = (received(hooks, receiver, held) - low) / (top - low)
            assert float(sweep.effects[layer, head]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def received(hooks, receiver, held):
    """The answer with what the receiver read in a run of held heads."""
    if receiver.layer is None:
        return hooks.run(B, inputs=held)
    store, block = {}, hooks.model.blocks[receiver.layer]
    if receiver.head is None:
        hooks.run(B, inputs={block: keep(store, "x"), **held})
        return hooks.run(B, inputs={block: lambda x: store["x"]})
    module = {"q": block.attn.q_proj, "k": block.attn.k_proj, "v": block.attn.v_proj}[receiver.side]
    n = block.attn.n_heads if receiver.side == "q" else block.attn.n_kv_heads
    width = module.weight.shape[0] // n
    head = receiver.head * n // block.attn.n_heads
    hooks.run(B, inputs=held, outputs={module: keep(store, "x")})
    at = (0, slice(None), slice(head * width, (head + 1) * width))
    return hooks.run(B, outputs={module: lambda x: put(x, at, store["x"])})


def test_patching_the_whole_stream_brings_everything_back(model):
    one = Prompt(torch.tensor([[4]])), Prompt(torch.tensor([[6]]))
    effects = patch_sweep(model, *one, QUESTION).effects
    torch.testing.assert_close(effects, torch.ones(2, 1, dtype=torch.float64))


def test_direct_paths_of_a_linear_end_add_up():
    """Without feed-forward networks and final norm the direct effects of all parts of the difference sum to 1."""
    model = drawn("modern-tiny")
    for block in model.blocks:
        block.ffn.down_proj.weight.zero_()
    model.final_norm = None
    alike = Prompt(torch.cat((B[:, :-1], A[:, -1:]), 1))  # the last token, and so the embedding there, is the same
    effects = path_sweep(model, CLEAN, alike, QUESTION).effects
    assert float(effects.sum()) == pytest.approx(1.0, rel=1e-9)


def test_answers_that_are_no_numbers_are_refused():
    model = drawn("modern-tiny")
    model.blocks[1].ffn.up_proj.weight[3, 0] = torch.nan
    for sweep in (patch_sweep, path_sweep):
        with pytest.raises(InputError, match="nan on the clean prompt.*trace numerics"):
            sweep(model, CLEAN, CORRUPTED, QUESTION)


def test_both_sides_of_an_encoder_decoder():
    model = drawn("t5-tiny")
    clean, corrupted = Prompt(A, torch.tensor([[4, 8, 15]])), Prompt(A, torch.tensor([[4, 16, 15]]))
    last = patch_sweep(model, clean, corrupted, QUESTION, encoder=True)
    assert last.effects.shape == (2, 3)
    assert float(last.effects[0, 1]) == pytest.approx(1.0)  # the sources differ there alone
    assert float(last.effects[0, [0, 2]].abs().max()) < 1e-9
    cross = patch_sweep(model, clean, corrupted, QUESTION, "cross").effects
    assert cross.shape == (2, 5) and float(cross[1, :-1].abs().max()) < 1e-9  # too late to reach the last token
    assert path_sweep(model, clean, corrupted, QUESTION, Receiver(1, 0, "v")).effects.shape == (1, 4)


def test_a_masked_model_is_asked_at_its_mask():
    model = drawn("bert-tiny")
    sweep = patch_sweep(model, CLEAN, CORRUPTED, Question(11, 20, position=2), "head")
    assert sweep.effects.abs().max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corrupted": Prompt(B[:, :3])}, "5 tokens, the corrupted one 3"),
        ({"corrupted": CLEAN}, "on both prompts"),
        ({"question": Question(11, 9999)}, "ids 0 to 255"),
        ({"question": Question(11, 20, 5)}, "position 5"),
        ({"what": "cross"}, "model of one stack has no cross-attention"),
        ({"encoder": True}, "no encoder beside it"),
        ({"clean": Prompt(A, A)}, "no encoder"),
        ({"clean": Prompt(torch.cat((A, A)))}, "2 rows"),
    ],
)
def test_mistakes_are_named(model, change, message):
    given = {"clean": CLEAN, "corrupted": CORRUPTED, "question": QUESTION} | change
    with pytest.raises(InputError, match=message):
        patch_sweep(model, **given)


@pytest.mark.parametrize(
    ("to", "message"), [("0", "before it"), ("7", "end at 1"), ("1.9.q", "heads 0 to 3"), ("x", "write logits")]
)
def test_receivers_that_are_not_there(model, to, message):
    with pytest.raises(InputError, match=message):
        path_sweep(model, CLEAN, CORRUPTED, QUESTION, Receiver.parse(to))
