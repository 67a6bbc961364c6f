"""Listening beside compiled code: nothing is missed, nothing is compiled again, and nobody else notices."""

from __future__ import annotations

import threading
import time
import warnings

import pytest
import torch

from cutaway import Cache, Given, build, preset, spec
from cutaway.errors import InputError
from cutaway.tap import listening, tap
from cutaway.tracing.compiled import CompiledRecording
from cutaway.tracing.edit import edit, scale
from cutaway.tracing.record import record
from tests.conformance.models import drawn, plain, translator

IDS = torch.tensor([[5, 3, 9, 1], [2, 2, 8, 0]])


class Compiled:
    """A model compiled into whole graphs, and how many graphs that took."""

    def __init__(self, name="modern-tiny"):
        torch._dynamo.reset()
        self.model = build(spec.set_values(preset(name), {"n_layers": 2}), seed=0).eval().requires_grad_(False)
        self.n_graphs = 0
        self.run = torch.compile(self.model, fullgraph=True, backend=self._count, dynamic=False)

    def _count(self, graph, inputs):
        self.n_graphs += 1
        return graph.forward


@pytest.fixture
def compiled():
    warnings.simplefilter("ignore")
    yield Compiled()
    torch._dynamo.reset()


@pytest.mark.slow
def test_forty_different_recordings_add_no_graph_and_miss_nothing(compiled):
    plain = compiled.run(IDS)
    n_graphs = compiled.n_graphs
    assert n_graphs >= 1
    heard = []
    with listening(compiled.model, lambda name, x: heard.append(name)):
        compiled.run(IDS)
    names = list(dict.fromkeys(heard))[:40]
    assert len(names) == 40
    for name in names:
        with record(compiled.model, name) as run:
            compiled.run(IDS)
        assert run.names == ([name] if not name.endswith("positions") else [])
        with record(compiled.model, name) as eager:
            compiled.model(IDS)
        if run.names:
            assert torch.equal(run[name], eager[name])
        assert torch.equal(compiled.run(IDS), plain)
    assert compiled.n_graphs == n_graphs


@pytest.mark.slow
def test_edits_in_compiled_code_all_fire_beside_busy_threads(compiled):
    """Three threads run the same compiled model all the while."""
    plain = compiled.run(IDS)
    n_graphs, stop, wrong, ran = compiled.n_graphs, threading.Event(), [], [0, 0, 0]

    def busy(index):
        while not stop.is_set():
            try:
                if not torch.equal(compiled.run(IDS), plain):
                    wrong.append(index)
            except Exception as error:  # a thread's own end would not be seen
                wrong.append(error)
            ran[index] += 1

    threads = [threading.Thread(target=busy, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(60):
            with edit(compiled.model, {f"blocks.{i % 2}.ffn.hidden": scale(2.0 + i)}) as report:
                assert not torch.equal(compiled.run(IDS), plain)
            assert report.changes[f"blocks.{i % 2}.ffn.hidden"].calls == 1
            time.sleep(0.005)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong and all(ran)
    assert torch.equal(compiled.run(IDS), plain)
    assert compiled.n_graphs == n_graphs


@pytest.mark.slow
def test_code_that_a_thread_compiles_while_another_listens_is_used_by_all(compiled):
    """The first graph waits for the listener, so that what follows it is traced while that one listens."""
    model, began, go, out = compiled.model, threading.Event(), threading.Event(), []

    def wait(graph, inputs):
        began.set()
        assert go.wait(60)
        return compiled._count(graph, inputs)

    @torch.compile(backend=wait, dynamic=False)
    def twice(ids):
        first = model(ids)
        torch._dynamo.graph_break()
        return first + model(ids)

    thread = threading.Thread(target=lambda: out.append(twice(IDS)))
    thread.start()
    assert began.wait(60)
    with record(model, "blocks.*.resid_post") as run:
        there = twice(IDS)
        go.set()
        thread.join()
        assert torch.equal(twice(IDS), there)
    assert run.n_steps == 4 and compiled.n_graphs == 2
    assert torch.equal(out[0], there) and torch.equal(twice(IDS), there) and compiled.n_graphs == 2


@pytest.mark.slow
def test_compiled_code_of_another_thread_goes_on_whenever_a_listening_ends(compiled):
    """It begins while somebody listens, and is at its end when nobody does any more."""
    plain, here, go, out = compiled.run(IDS), threading.Event(), threading.Event(), []

    class Waits(torch.nn.Module):
        def forward(self, ids):
            if not torch.compiler.is_compiling():
                here.set()
                assert go.wait(60)
            return compiled.model(ids)

    run = torch.compile(Waits(), fullgraph=True, backend=compiled._count, dynamic=False)

    def other():
        try:
            out.append(run(IDS))
        except Exception as error:
            out.append(error)
        here.set()

    thread = threading.Thread(target=other)
    with record(compiled.model, "final") as heard:
        thread.start()
        assert here.wait(60)
        assert torch.equal(compiled.run(IDS), plain)
    go.set()
    thread.join()
    assert heard.n_steps == 1 and torch.equal(out[0], plain) and torch.equal(run(IDS), plain)
    assert compiled.n_graphs == 2


@pytest.mark.slow
def test_names_are_the_models_own_whatever_torch_wraps(compiled):
    model = compiled.model
    plain, names = model(IDS), ["blocks.0.attn.q", "blocks[0:2].resid_post", "blocks.*.ffn.gate"]
    with record(model, *names) as wanted:
        model(IDS)

    def heard(call, whose):
        with record(whose, *names) as run:
            assert torch.equal(call(IDS), plain)
        assert run.taken.keys() == wanted.taken.keys()
        assert all(torch.equal(run[name], wanted[name]) for name in wanted.taken)
        with edit(whose, {"blocks.0.ffn.hidden": scale(2.0)}):
            assert not torch.equal(call(IDS), plain)
        with pytest.raises(InputError, match="nosuch: no tap"), record(whose, "nosuch"):
            call(IDS)

    heard(compiled.run, compiled.run)
    heard(compiled.run, model)
    model.blocks[0] = torch.compile(model.blocks[0], fullgraph=True, backend=compiled._count)
    heard(model, model)
    out, run = CompiledRecording(model, *names, backend="eager")(IDS)
    assert torch.equal(out, plain) and run.taken.keys() == wanted.taken.keys()


@pytest.mark.slow
def test_to_begin_inside_compiled_code_is_refused(compiled):
    """What is compiled beside it would not be heard."""

    @torch.compile(backend=compiled._count)
    def inside(ids):
        with record(compiled.model, "blocks.0.attn.q") as run:
            return compiled.model(ids), run

    with pytest.raises(InputError, match="begun inside"):
        inside(IDS)
    plain = compiled.run(IDS)
    with record(compiled.model, "final") as run:
        assert torch.equal(compiled.run(IDS), plain)
    assert run.n_steps == 1


@pytest.mark.slow
def test_batches_of_other_shapes_are_heard_in_compiled_code(compiled):
    batches = [IDS, torch.tensor([[1, 2, 3]]), torch.arange(12).view(4, 3)]
    plain = [compiled.run(ids) for ids in batches]
    n_graphs = compiled.n_graphs
    for ids, wanted in zip(batches, plain, strict=True):
        with record(compiled.model, "blocks.*.resid_post") as run:
            assert torch.equal(compiled.run(ids), wanted)
        assert run["blocks.1.resid_post"].shape == (*ids.shape, 64)
        mask = Given(mask=(torch.arange(ids.shape[1]) > 0).expand(ids.shape).long())
        with record(compiled.model, "blocks.0.attn.pattern") as run:
            padded = compiled.run(ids, mask)
        assert not run["blocks.0.attn.pattern"][..., 1:, 0].any()
        torch.testing.assert_close(padded, compiled.model(ids, mask), rtol=1e-4, atol=1e-5)  # written out
    assert [torch.equal(compiled.run(ids), wanted) for ids, wanted in zip(batches, plain, strict=True)] == [True] * 3
    assert compiled.n_graphs == n_graphs


@pytest.mark.slow
def test_a_fixed_cache_is_heard_and_read_on_by_the_same_graphs(compiled):
    def read():
        cache = Cache(compiled.model.spec.blocks, "fixed", 8)
        return torch.cat([compiled.run(IDS[:, i : i + 1], Given(), cache) for i in range(4)], 1)

    with torch.no_grad():
        plain = read()
        n_graphs = compiled.n_graphs
        with record(compiled.model, "blocks.*.attn.k_rot", "blocks.1.resid_post") as run:
            assert torch.equal(read(), plain)
        assert run.n_steps == 4 and run["blocks.1.resid_post"].shape == (2, 4, 64)
        with edit(compiled.model, {"blocks.0.attn.v": scale(0.5)}) as report:
            assert not torch.allclose(read(), plain)
        assert report.changes["blocks.0.attn.v"].calls == 4
        assert torch.equal(read(), plain)
    assert compiled.n_graphs == n_graphs


@pytest.mark.slow
def test_code_compiled_while_somebody_listens_is_heard_then_and_compiled_later(compiled):
    with record(compiled.model, "blocks.0.attn.q") as run:
        first = compiled.run(IDS)
    assert run.names == ["blocks.0.attn.q"] and compiled.n_graphs == 0
    assert torch.equal(compiled.run(IDS), first) and compiled.n_graphs >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dynamic"), [("fixed", None), ("ring", None), ("ring", True)])
def test_padded_rows_are_heard_at_every_step_of_a_cache(kind, dynamic):
    torch._dynamo.reset()
    model, graphs = drawn(plain(mask=spec.SlidingMask(window=4))).requires_grad_(False), []
    ids, mask = torch.arange(1, 23).view(2, 11), torch.ones(2, 11, dtype=torch.long)
    mask[0, :3] = mask[1, 7:9] = 0
    run = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=lambda g, _: graphs.append(g) or g.forward)

    def read(call):
        cache, widths = Cache(model.spec.blocks, kind, 16), [5] + [1] * 6
        parts = zip(ids.split(widths, 1), mask.split(widths, 1), strict=True)
        return torch.cat([call(part.clone(), Given(mask=real.clone()), cache) for part, real in parts], 1)

    with torch.no_grad():
        before, alone = read(run), read(model)
        n_graphs = 2 + (dynamic is None)  # of a text, and of every token; torch learns at the second what changes
        assert torch.equal(before, alone) and len(graphs) == n_graphs
        names = ["blocks.*.attn.pattern", "blocks.*.attn.k_rot"]
        with record(model, *names) as heard:
            read(run)
        with record(model, *names) as wanted:
            read(model)
        with edit(model, {"blocks.0.attn.v": scale(0.5)}) as report:
            assert not torch.allclose(read(run), before)
        assert torch.equal(read(run), before) and len(graphs) == n_graphs
    assert heard.n_steps == report.changes["blocks.0.attn.v"].calls == 7
    assert all(all(map(torch.equal, heard.steps(name), wanted.steps(name))) for name in wanted.names)


@pytest.mark.slow
def test_an_encoder_decoder_of_two_compiled_calls_is_heard(compiled):
    model = drawn(translator()).requires_grad_(False)
    run, encode = (torch.compile(call, fullgraph=True, backend=compiled._count) for call in (model, model.encode))
    before = run(IDS, Given(memory=encode(IDS)))
    with record(model, "*.attn.z", "*.cross.k") as heard:
        assert torch.equal(run(IDS, Given(memory=encode(IDS))), before)
    with record(model, "*.attn.z", "*.cross.k") as wanted:
        model(IDS, Given(memory=model.encode(IDS)))
    assert heard.names == wanted.names and all(torch.equal(heard[name], wanted[name]) for name in heard)
    assert torch.equal(run(IDS, Given(memory=encode(IDS))), before) and compiled.n_graphs == 2


@pytest.mark.slow
def test_parts_and_functions_that_are_compiled_are_heard(compiled):
    """A part in its place, and a function of several graphs that is compiled while somebody listens."""
    model = build(spec.set_values(preset("modern-tiny"), {"n_layers": 2}), seed=0).eval().requires_grad_(False)
    plain = model(IDS)
    model.blocks[0].compile(fullgraph=True, backend=compiled._count)

    def twice(ids):
        first = model(ids)
        torch._dynamo.graph_break()
        return first + model(ids)

    assert torch.equal(model(IDS), plain) and compiled.n_graphs == 1
    with edit(model, {"blocks.0.ffn.hidden": scale(2.0)}), record(model, "blocks.*.ffn.hidden") as run:
        both = torch.compile(twice, backend=compiled._count)
        changed = both(IDS)
        assert torch.equal(changed, 2 * model(IDS))
    assert run.n_steps == 3 and compiled.n_graphs == 1 and not torch.equal(changed, 2 * plain)
    assert torch.equal(both(IDS), 2 * plain)
    n_graphs = compiled.n_graphs
    with record(model, "blocks.0.ffn.hidden") as run:
        both(IDS)
    assert run.n_steps == 2 and torch.equal(both(IDS), 2 * plain) and compiled.n_graphs == n_graphs == 3


@pytest.mark.slow
def test_edits_reach_the_gradients_of_compiled_training(compiled):
    model = compiled.model.train().requires_grad_(True)
    run = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)

    def gradients(call):
        model.zero_grad()
        call(IDS).square().sum().backward()
        return [weight.grad.clone() for weight in model.parameters()]

    before, change = gradients(run), {"blocks.0.ffn.hidden": scale(2.0)}
    with edit(model, change) as report:
        changed = gradients(run)
    with edit(model, change):
        torch.testing.assert_close(changed, gradients(model))
    assert report.changes["blocks.0.ffn.hidden"].calls == 1
    torch.testing.assert_close(gradients(run), before)
    assert not torch.allclose(changed[0], before[0])


def seconds(call, n=3000):
    start = time.perf_counter()
    for _ in range(n):
        call()
    return time.perf_counter() - start


def test_an_unheard_tap_costs_less_than_the_call_of_an_empty_module():
    module, x = torch.nn.Identity(), torch.zeros(1)
    ratios = [seconds(lambda: tap(module, "x", x)) / seconds(lambda: module(x)) for _ in range(15)]
    assert sorted(ratios)[7] < 1, ratios
