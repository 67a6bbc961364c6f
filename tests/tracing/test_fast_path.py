"""Listening beside compiled code: nothing is missed, nothing is compiled again, and nobody else notices."""

from __future__ import annotations

import threading
import time
import warnings

import pytest
import torch

from cutaway import Cache, Given, build, preset, spec
from cutaway.tap import listening, tap
from cutaway.tracing.edit import edit, scale
from cutaway.tracing.record import record

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
            if not torch.equal(compiled.run(IDS), plain):
                wrong.append(index)
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
def test_code_that_a_thread_enters_as_a_listening_begins_is_the_same_graph(compiled, monkeypatch):
    """Between the stance and the first forward of the listener, another thread may enter, or still compile."""
    monkeypatch.setattr("cutaway.tap._listening", True)
    plain = compiled.run(IDS)
    n_graphs = compiled.n_graphs
    monkeypatch.setattr("cutaway.tap._listening", False)
    assert torch.equal(compiled.run(IDS), plain)
    monkeypatch.setattr("cutaway.tap._listening", True)
    assert torch.equal(compiled.run(IDS), plain)
    assert compiled.n_graphs == n_graphs >= 1


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


def seconds(call, n=3000):
    start = time.perf_counter()
    for _ in range(n):
        call()
    return time.perf_counter() - start


def test_an_unheard_tap_costs_less_than_the_call_of_an_empty_module():
    module, x = torch.nn.Identity(), torch.zeros(1)
    ratios = [seconds(lambda: tap(module, "x", x)) / seconds(lambda: module(x)) for _ in range(15)]
    assert sorted(ratios)[7] < 1, ratios
