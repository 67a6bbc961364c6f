"""A recording as part of compiled code: what `record` gives, of one graph, beside code that is compiled without it."""

from __future__ import annotations

import warnings

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.errors import InputError
from cutaway.tracing.compiled import CompiledRecording
from tests.conformance.alone import IMAGES
from tests.conformance.models import drawn, images_for

NAMES = ("blocks.*.resid_post", "blocks.0.attn.pattern", "hidden_states[0]")


def ids_of(shape, seed=0):
    return torch.randint(0, 64, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modern-tiny", "gpt2-tiny", "bert-tiny", "course-gpt-tiny", "textbook-tiny"])
def test_it_gives_what_record_gives_by_one_graph(name):
    model, graphs = cutaway.build(cutaway.preset(name), seed=0).eval(), []
    run = CompiledRecording(model, *NAMES, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    for shape in ((2, 4), (3, 6), (5, 17)):
        with torch.no_grad():
            out, got = run(ids_of(shape))
            with cutaway.record(model, *NAMES) as wanted:
                assert torch.equal(out, model(ids_of(shape)))
        assert got.names == wanted.names and len(got.names) == len(model.blocks) + 2
        assert all(torch.equal(got[tap], wanted[tap]) for tap in wanted.names)
    assert len(graphs) == 1


@pytest.mark.slow
def test_images():
    model = drawn(spec.ImageEncoder(d_model=8, embedding=IMAGES["with class token"], layers=()))
    run, images = (
        CompiledRecording(model, "final", backend="eager"),
        images_for(model.spec.embedding, 3, n_images=5).float(),
    )
    out, got = run(images)
    with torch.no_grad(), cutaway.record(model, "final") as wanted:
        assert torch.equal(out, model(images)) and torch.equal(got["final"], wanted["final"])
    assert torch.equal(run(images.double())[0], out)
    with pytest.raises(InputError, match="images: shape"):
        run(images[:, :1])


@pytest.mark.slow
def test_weights_are_the_models_and_other_compiled_code_is_left_alone():
    model, graphs = cutaway.build(cutaway.preset("modern-tiny"), seed=0).eval().requires_grad_(False), []
    ids = ids_of((2, 5))
    plain = torch.compile(model, fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    before = plain(ids)
    run = CompiledRecording(model, "final", backend="eager")
    assert torch.equal(run(ids)[0], before) and torch.equal(plain(ids), before) and len(graphs) == 1
    model.blocks[0].ffn.down_proj.weight.mul_(0)
    out, got = run(ids)
    with cutaway.record(model, "final") as wanted:
        assert torch.equal(out, model(ids))
    assert torch.equal(got["final"], wanted["final"]) and not torch.equal(out, before)


@pytest.mark.slow
def test_the_compilers_own_backend_agrees():
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0).eval()
    run = CompiledRecording(model, *NAMES)
    try:
        out, got = run(ids_of((2, 6)))
    except Exception as e:  # it is torch's own, whatever the machine lacks
        if "compiler" in str(e).lower():
            pytest.skip("no C++ compiler here")
        raise
    with torch.no_grad(), cutaway.record(model, *NAMES) as wanted:
        assert (out - model(ids_of((2, 6)))).abs().max() < 1e-5
    assert all((got[tap] - wanted[tap]).abs().max() < 1e-5 for tap in wanted.names)


def test_what_does_not_fit_is_named():
    one, two = (cutaway.build(cutaway.preset(name), seed=0) for name in ("modern-tiny", "original-2017-tiny"))
    with pytest.raises(InputError, match="one stack"):
        CompiledRecording(two, "final")
    with pytest.raises(InputError, match="nosuch: no tap"):
        CompiledRecording(one, "nosuch", backend="eager")
    with pytest.raises(InputError, match="vocabulary"):
        CompiledRecording(one, "final", backend="eager")(torch.tensor([[1, 999]]))
