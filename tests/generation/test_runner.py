"""The short way of a decoded token gives what the forwards give, and is left wherever somebody looks or touches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway import build, listening, preset, spec
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.generation import Cache, Run, generate
from cutaway.generation.runner import Runner
from cutaway.parts.linear import Linear, joined, together
from cutaway.parts.step import Given

PLAIN = ["textbook-tiny", "course-gpt-tiny", "modern-tiny", "gpt2-tiny", "llama-tiny"]
IDS = torch.tensor([[5, 3, 9, 1, 7, 7]])


def drawn(name: str, dtype: torch.dtype = torch.float64):
    torch.manual_seed(0)
    model = build(preset(name), seed=0, dtype=dtype).eval()
    for parameter in model.parameters():  # gains and biases too
        parameter.data = torch.randn_like(parameter) * 0.3
    return model


def logits(model, runner, kind="growing"):
    """Of each token after the first, one at a time."""
    cache = Cache(model.spec.blocks, kind, 16)
    with torch.inference_mode():
        model(IDS[:, :1], cache=cache)
        step = model if runner is None else runner
        return [step(IDS[:, i : i + 1], Given(), cache) for i in range(1, IDS.shape[1])]


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
@pytest.mark.parametrize("name", PLAIN)
def test_it_gives_what_the_forwards_give(name, kind):
    model = drawn(name)
    runner = Runner.of(model)
    assert runner is not None
    for got, wanted in zip(logits(model, runner, kind), logits(model, None, kind), strict=True):
        assert got.shape == wanted.shape
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


def test_bfloat16_is_as_near_to_float64_as_the_forwards():
    exact = torch.cat(logits(drawn("llama-tiny"), None))
    model = drawn("llama-tiny", torch.bfloat16)
    short, long = (torch.cat(logits(model, runner)).double() for runner in (Runner.of(model), None))
    assert (short - exact).abs().mean() < 1.2 * (long - exact).abs().mean()


def test_weights_that_a_checkpoint_fills_are_one_matrix(tmp_path):
    native.save(drawn("llama-tiny", torch.float32), tmp_path)
    model = open_checkpoint(tmp_path).load(torch.float64)  # another type than the file's, so in memory of its own
    attn, ffn = model.blocks[0].attn, model.blocks[0].ffn
    maps = attn.q_proj, attn.k_proj, attn.v_proj
    one = joined(maps)
    assert torch.equal(one, torch.cat([each.weight for each in maps]))
    assert joined((ffn.gate_proj, ffn.up_proj)) is not None
    assert joined((ffn.up_proj, ffn.gate_proj)) is None
    x, seen = torch.randn(3, attn.q_proj.weight.shape[1], dtype=torch.float64), []
    with torch.inference_mode():
        for got, each in zip(together(x, *maps), maps, strict=True):
            assert got.untyped_storage().nbytes() == 3 * len(one) * 8  # a piece of the one product
            torch.testing.assert_close(got, each(x), rtol=1e-12, atol=1e-12)
        handle = attn.k_proj.register_forward_hook(lambda module, x, y: seen.append(y))
        assert together(x, *maps)[1] is seen[0]
        handle.remove()
    assert all(y.requires_grad for y in together(x, *maps))
    attn.v_proj.weight.data.mul_(2)
    assert torch.equal(one, torch.cat([each.weight for each in maps]))
    for got, wanted in zip(logits(model, Runner.of(model)), logits(model, None), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


def test_a_touched_or_odd_model_runs_by_its_forwards():
    model = drawn("llama-tiny")
    ffn = model.blocks[1].ffn
    for register in (ffn.register_forward_hook, ffn.register_forward_pre_hook):
        handle = register(lambda *given: None)
        assert Runner.of(model) is None
        handle.remove()
    assert Runner.of(model) is not None
    model.head.forward = model.head.forward
    assert Runner.of(model) is None
    odd = spec.set_values(preset("llama-tiny"), {"attn.soft_cap": 30.0})
    assert Runner.of(build(odd, seed=0)) is None


class Adapted(torch.nn.Module):
    """A map with a change of low rank beside it, which shows the map's own weight as adapters do."""

    def __init__(self, base: torch.nn.Module) -> None:
        super().__init__()
        self.base = base
        self.change = torch.nn.Linear(base.weight.shape[1], len(base.weight), bias=False, dtype=base.weight.dtype)

    def forward(self, x):
        return self.base(x) + self.change(x)

    weight, bias = property(lambda self: self.base.weight), property(lambda self: self.base.bias)


@pytest.mark.parametrize("name", ["attn.q_proj", "attn.o_proj", "ffn.up_proj", "ffn.down_proj"])
@pytest.mark.parametrize("wrap", [Adapted, lambda base: torch.nn.Sequential(base, torch.nn.Tanh())])
def test_what_stands_in_the_place_of_a_map_is_called(tmp_path, name, wrap):
    native.save(drawn("llama-tiny", torch.float32), tmp_path)
    model = open_checkpoint(tmp_path).load(torch.float64)  # q, k and v are one matrix
    path, _, leaf = name.partition(".")
    part = model.blocks[1].get_submodule(path)
    setattr(part, leaf, wrap(part.get_submodule(leaf)))
    assert Runner.of(model) is None
    whole = model(IDS)
    with torch.no_grad():
        torch.testing.assert_close(model(IDS), whole, rtol=1e-11, atol=1e-11)
    ids = generate(model, IDS.tolist(), spec.Generation(max_tokens=3), Run()).ids[0]
    with torch.no_grad():
        assert model(torch.cat((IDS, torch.tensor([ids])), 1))[0, -4:-1].argmax(-1).tolist() == ids


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_weights_of_several_models_at_once():
    models = [drawn("llama-tiny"), build(preset("llama-tiny"), seed=1, dtype=torch.float64).eval()]
    weights, _ = torch.func.stack_module_state(models)
    with torch.no_grad():
        got = torch.func.vmap(lambda each: torch.func.functional_call(models[0], each, (IDS,)))(weights)
        torch.testing.assert_close(got, torch.stack([model(IDS) for model in models]), rtol=1e-11, atol=1e-11)


def test_a_hook_on_every_module_hears_every_step():
    model, seen = drawn("llama-tiny"), []
    hook = lambda module, x, y: seen.append(y.shape[1]) if module is model.blocks[1].attn.k_proj else None
    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        generate(model, [[1, 2, 3]], spec.Generation(max_tokens=4), Run())
    finally:
        handle.remove()
    assert seen == [3, 1, 1, 1]


def test_a_listener_hears_every_step():
    model = drawn("llama-tiny")
    heard, options = [], spec.Generation(max_tokens=4)
    quiet = generate(model, [[1, 2, 3]], options, Run()).ids
    with listening(model, lambda name, x: heard.append(x.shape[2]), "blocks.0.attn.q"):
        assert generate(model, [[1, 2, 3]], options, Run()).ids == quiet
    assert heard == [3, 1, 1, 1]
    with listening(model, lambda name, x: torch.zeros_like(x), "blocks.*.update"):
        assert generate(model, [[1, 2, 3]], options, Run()).ids != quiet or len(set(quiet[0])) == 1


def test_only_weights_in_one_piece_of_memory_are_joined():
    def linear(weight: torch.Tensor) -> Linear:
        made = Linear(4, 3, bias=False)
        made.weight = torch.nn.Parameter(weight)
        return made

    whole, array = torch.zeros(24), np.zeros(24, np.float32)
    first, second = linear(whole[:12].view(3, 4)), whole[12:]
    assert joined((first, linear(second.view(3, 4)))) is not None
    assert joined((first, linear(second.view(4, 3).t()))) is None
    assert joined((first, linear(second[:6].view(torch.float16).view(3, 4)))) is None
    apart = [linear(torch.from_numpy(piece).view(3, 4)) for piece in (array[:12], array[12:])]
    assert joined(apart) is None  # neighbours by chance: each has memory of its own
