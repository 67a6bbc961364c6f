"""A recording as part of compiled code: what `record` gives, of few graphs, beside code that is compiled without it."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn

import cutaway
from cutaway import Cache, Given, Run, generate, spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder
from cutaway.tracing.compiled import CompiledRecording, Steps, joined
from cutaway.tracing.edit import edit, scale
from cutaway.tracing.record import Taken
from tests.conformance.alone import IMAGES, alone, heads
from tests.conformance.models import drawn, images_for, plain, translator

NAMES = ("*.resid_post", "*blocks.0.attn.pattern", "*.gate", "*.scale")
PRESETS = ("modern-tiny", "gpt2-tiny", "bert-tiny", "course-gpt-tiny", "textbook-tiny", "t5-tiny")
PADDING = Given(mask=torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]))
COLUMNS = spec.Learned(n_positions=5, counted=spec.ByColumn())


def ids_of(shape, seed=0):
    return torch.randint(1, 64, shape, generator=torch.Generator().manual_seed(seed))


def tiny(**changes):
    record = spec.set_values(cutaway.preset("modern-tiny"), {"n_layers": 1}).replace(**changes)
    return cutaway.build(record, seed=0).eval().requires_grad_(False)


class Counted:
    """A compiler that counts graphs and leaves them as they are."""

    def __init__(self):
        self.n = 0

    def __call__(self, graph, inputs):
        self.n += 1
        return graph.forward


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def check(run, names, ids, given=Given(), caches=(None, None), last=False):
    """What a call gives is what the model and `record` give, bit for bit."""
    out, got = run(ids, given, caches[0], last)
    with cutaway.record(run.model, *names) as wanted:
        assert torch.equal(out, run.model(ids, given, caches[1], last))
    assert list(got.taken) == list(wanted.taken) and got.names
    assert all(torch.equal(got[tap], wanted[tap]) for tap in wanted.taken)
    assert not any(got[tap].requires_grad for tap in got.taken)
    return got


def test_a_model_that_turns_is_compiled_without_a_warning():
    ids, model = ids_of((1, 3)), tiny()
    torch._dynamo.utils.warn_once_cache.clear()  # another test may have been warned first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits, _ = CompiledRecording(model, "blocks.*.resid_post", backend="eager")(ids)
    assert torch.equal(logits, model(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_it_gives_what_record_gives_by_one_graph(name):
    model, graphs = cutaway.build(cutaway.preset(name), seed=0).eval().requires_grad_(False), Counted()
    two = isinstance(model, EncoderDecoder)
    names = NAMES if name == "modern-tiny" else NAMES[:2]
    run = CompiledRecording(model, *names, backend=graphs)
    memory = model.encode(ids_of((5, 4))) if two else None
    for shape in ((2, 4), (3, 6), (5, 17)):
        if two:
            memory, got = run.encode(ids_of(shape, 1))
            out, target = run(ids_of(shape), Given(memory=memory))
            with cutaway.record(model, *names) as wanted:
                assert torch.equal(model.encode(ids_of(shape, 1)).states, memory.states)
                assert torch.equal(model(ids_of(shape), Given(memory=memory)), out)
            assert all(torch.equal(got[tap], wanted[tap]) for tap in got.taken) and got.names
            assert all(torch.equal(target[tap], wanted[tap]) for tap in target.taken)
            assert set(got.taken) | set(target.taken) == set(wanted.taken)
        else:
            check(run, names, ids_of(shape))
    assert graphs.n == 1 + two


@pytest.mark.slow
def test_padding_single_rows_and_tokens_and_the_last_column_alone():
    model = tiny()
    run = CompiledRecording(model, *NAMES, backend="eager")
    check(run, NAMES, ids_of((2, 5)), PADDING)
    for shape in ((1, 3), (2, 1), (1, 1), (2, 9)):
        check(run, NAMES, ids_of(shape))
    check(run, NAMES, ids_of((2, 5)), last=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "scaling"),
    [
        ("fixed", spec.NoScaling()),
        ("growing", spec.DynamicScaling(factor=3.0, original_length=8)),
        ("ring", spec.LongRopeScaling(short_factors=(1, 1.5), long_factors=(3, 9), original_length=8, factor=4)),
    ],
)
def test_all_tokens_that_are_decoded_take_one_graph(kind, scaling):
    """Also where a ring turns, and where a row becomes so long that its rotations change."""
    mask = spec.SlidingMask(window=5) if kind == "ring" else spec.CausalMask()
    parts = plain(mask=mask, positions=spec.RoPE(scaling=scaling))
    model, graphs, texts = drawn(parts).requires_grad_(False), Counted(), (ids_of((2, 12)) % 23).split([3] + [1] * 9, 1)
    run = CompiledRecording(model, *NAMES, backend=graphs)
    caches = [Cache(model.spec.blocks, kind, 16) for _ in range(3)]
    with cutaway.record(model, *NAMES) as wanted:
        for ids in texts:
            model(ids.clone(), Given(), caches[0])
    whole = joined(run(ids.clone(), Given(), caches[1])[1] for ids in texts)
    assert graphs.n == 2  # of the prompt, and of every token
    assert whole.n_steps == 10 and all(torch.equal(whole[tap], wanted[tap]) for tap in wanted.taken)
    for shape in ((2, 4), (2, 1), (2, 1)):
        run(ids_of(shape) % 23, Given(), caches[2])
    assert graphs.n == 2 and caches[2].length == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "prompts", "kind", "n_graphs"),
    [
        (plain(), [[[1, 2, 3]], [[4, 5, 6, 7, 8]], [[9, 9]]], "fixed", 2),  # of a prompt, and of every token
        (plain(), [[[1, 2, 3], [4, 5, 6, 7, 8]]], "growing", 2),
        (plain(mask=spec.SlidingMask(window=4)), [[[1, 2, 3], [4, 5, 6]]], "ring", 2),
        (translator(), [[[1, 2, 3]]], "fixed", 4),  # of the source, and of a cache of nothing, of a token, and of more
    ],
    ids=["texts", "rows", "ring", "two stacks"],
)
def test_a_generation_is_recorded_in_compiled_code(record, prompts, kind, n_graphs):
    model, graphs, names = drawn(record), Counted(), ("*.resid_post", "*.k_rot")
    run, options = CompiledRecording(model, *names, backend=graphs), spec.Generation(max_tokens=8, start_id=2)
    for rows in prompts:
        steps = Steps(run)
        result = generate(model, rows, options, Run(cache=kind, forward=steps))
        with cutaway.record(model, *names) as wanted:
            assert generate(model, rows, options, Run(cache=kind)).ids == result.ids
        got = steps.recording
        assert got.names == wanted.names and got.n_steps == wanted.n_steps == 8
        for name in wanted.taken:
            assert all(map(torch.equal, got.taken[name], wanted.taken[name]))
    assert graphs.n == n_graphs


@pytest.mark.slow
def test_the_memory_of_two_stacks_is_kept_by_the_cache():
    model = cutaway.build(cutaway.preset("original-2017-tiny"), seed=0).eval().requires_grad_(False)
    run = CompiledRecording(model, "*.k", "*.pattern", backend="eager")
    memory, source = run.encode(ids_of((2, 5)), PADDING)
    assert not source["encoder.blocks.0.attn.pattern"][0, ..., :2].any()
    given, ids = Given(memory=memory), ids_of((2, 4))
    caches = [Cache(model.spec.decoder.blocks, "fixed", 8) for _ in range(2)]
    first = check(run, ["decoder.*.k", "decoder.*.pattern"], ids[:, :2], given, caches)
    kept = "decoder.blocks.0.cross.k"
    then = check(run, ["decoder.*.attn.k", "decoder.*.pattern"], ids[:, 2:3], given, caches)
    assert kept in first and kept not in then


@pytest.mark.slow
def test_a_decoder_that_looks_at_its_source_alone_reads_on():
    record = cutaway.preset("original-2017-tiny")
    stages = tuple(stage for stage in record.decoder.blocks[0].stages if stage.branches[0].name != "attn")
    decoder = record.decoder.replace(layers=(spec.Block(stages=stages),))
    model = cutaway.build(record.replace(decoder=decoder), seed=0).eval()
    steps = Steps(CompiledRecording(model, "decoder.final", backend="eager"))
    options = spec.Generation(max_tokens=3, start_id=1)
    with cutaway.record(model, "decoder.final") as run:
        plain = cutaway.generate(model, [[3, 4, 5]], options)
    assert cutaway.generate(model, [[3, 4, 5]], options, cutaway.Run(forward=steps)).ids == plain.ids
    torch.testing.assert_close(steps.recording["decoder.final"], run["decoder.final"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "record",
    [
        alone(heads(positions=spec.ALiBi())),
        alone(heads(), embedding=spec.TokenEmbedding(positions=COLUMNS), context_length=5),
        alone(heads(mask=spec.FullMask()), head=spec.ClassHead(n_classes=3, pool="first")),
        alone(heads(mask=spec.SlidingMask(window=3))),
    ],
    ids=["alibi", "positions of padding", "pool", "window"],
)
def test_every_tensor_of_padded_rows(record):
    model, ids = drawn(record).requires_grad_(False), torch.arange(1, 11).view(2, 5)
    run = CompiledRecording(model, backend="eager")
    check(run, (), ids, PADDING)
    check(run, (), ids[:, :2])
    if isinstance(record.head, spec.ClassHead):
        with pytest.raises(InputError, match="a row without a real token"):
            run(ids, Given(mask=torch.zeros_like(ids)))
    if record.embedding.positions == COLUMNS:
        longer, real = torch.cat((ids, ids[:, :1]), 1), torch.tensor([[1, 1, 1, 1, 1, 0]] * 2)
        check(run, (), longer, Given(mask=real))
        with pytest.raises(InputError, match="learned 5 positions"):
            run(longer, Given(mask=real.flip(1)))


@pytest.mark.slow
def test_images():
    model = drawn(spec.ImageEncoder(d_model=8, embedding=IMAGES["with class token"], layers=()))
    run, images = (
        CompiledRecording(model, "final", backend="eager"),
        images_for(model.spec.embedding, 3, n_images=5).float(),
    )
    with torch.no_grad():
        check(run, ["final"], images)
        check(run, ["final"], images.double())
    with pytest.raises(InputError, match="images: shape"):
        run(images[:, :1])


@pytest.mark.slow
def test_whatever_becomes_of_the_model_is_seen():
    model, ids = tiny(), ids_of((2, 5))
    run, weights = CompiledRecording(model, *NAMES, backend="eager"), model.state_dict()
    first = run(ids)[0]
    model.blocks[0].ffn.down_proj.weight.mul_(0)
    check(run, NAMES, ids)
    model.load_state_dict({name: weight * 1.5 for name, weight in weights.items()})
    check(run, NAMES, ids)
    model.blocks[0].attn.v_proj.weight = nn.Parameter(torch.zeros_like(model.blocks[0].attn.v_proj.weight))
    check(run, NAMES, ids)
    model.blocks[0] = tiny().blocks[0].eval()
    check(run, NAMES, ids)
    for dtype in (torch.bfloat16, torch.float64):
        model.to(dtype)
        assert check(run, NAMES, ids)["blocks.0.resid_post"].dtype == dtype
    assert not torch.equal(run(ids)[0].float(), first)
    without = cutaway.remove(model, "blocks.0.ffn", "positions")
    check(CompiledRecording(without, "blocks.*.attn.*", backend="eager"), ["blocks.*.attn.*"], ids)


@pytest.mark.slow
def test_dropout_and_gradients_of_weights():
    model = tiny(dropout=spec.Dropout(residual=0.5, attention=0.3)).train().requires_grad_(True)
    names, before = ["*.resid_post", "*.gate"], torch.get_rng_state()
    run, ids, outs = CompiledRecording(model, *names, backend="eager"), ids_of((2, 5)), []
    assert torch.equal(torch.get_rng_state(), before)
    for call in (lambda: run(ids), lambda: (model(ids), cutaway.Recording())):
        torch.manual_seed(1)
        model.zero_grad()
        out = call()[0]
        out.square().sum().backward()
        outs.append([out, *(weight.grad for weight in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*outs, strict=True))
    assert not torch.equal(run(ids)[0], run(ids)[0])
    model.eval()
    check(run, names, ids)


@pytest.mark.slow
def test_listeners_are_heard_and_other_compiled_code_is_left_alone():
    model, graphs, own = tiny(), Counted(), Counted()
    ids, names = ids_of((2, 5)), ["*.resid_post", "*.gate"]
    plain = torch.compile(model, fullgraph=True, backend=graphs)
    before = plain(ids)
    run = CompiledRecording(model, *names, backend=own)
    assert torch.equal(run(ids)[0], before) and torch.equal(plain(ids), before) and (graphs.n, own.n) == (1, 1)
    with edit(model, {"blocks.0.ffn.hidden": scale(2.0)}), cutaway.record(model, "blocks.0.attn.q") as other:
        changed = check(run, names, ids)["blocks.0.resid_post"]
    assert other.n_steps == 2 and not torch.equal(changed, run(ids)[1]["blocks.0.resid_post"])
    assert torch.equal(plain(ids), before) and (graphs.n, own.n) == (1, 1)
    code_of_all = [CompiledRecording(model, f"blocks.0.attn.{tap}", backend=own) for tap in "qkvz" * 3]
    assert all(len(each(ids)[1].names) == 1 for each in code_of_all) and own.n == 13


@pytest.mark.slow
def test_threads_share_the_graphs():
    model, own, wrong = tiny(), Counted(), []
    run, ids = CompiledRecording(model, *NAMES, backend=own), ids_of((2, 5))
    out, first = run(ids)

    def busy():
        for _ in range(20):
            mine, got = run(ids)
            if not torch.equal(mine, out) or not all(torch.equal(got[tap], first[tap]) for tap in first.taken):
                wrong.append(1)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(20):
        with edit(model, {"blocks.0.ffn.hidden": scale(2.0 + i)}):
            assert not torch.equal(run(ids)[0], out)
    for thread in threads:
        thread.join()
    assert not wrong and own.n == 1 and torch.equal(run(ids)[0], out)


@pytest.mark.slow
def test_that_torch_has_made_enough_graphs_is_said_in_a_line():
    run = CompiledRecording(tiny(), "final", backend="eager")
    run(ids_of((2, 4)))
    with torch._dynamo.config.patch(recompile_limit=1), pytest.raises(InputError, match="recompile limit") as told:
        run(ids_of((1, 4)))
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_tensors_are_reduced_in_the_graph():
    run = CompiledRecording(tiny(), "final", taken=Taken(lambda x: x[:, -1], dtype=torch.float64), backend="eager")
    out, got = run(ids_of((2, 5)))
    with cutaway.record(run.model, "final", taken=run.taken) as wanted:
        run.model(ids_of((2, 5)))
    assert torch.equal(got["final"], wanted["final"]) and got["final"].shape == (2, 64) and got.reduced


@pytest.mark.slow
def test_the_compilers_own_backend_agrees():
    model = tiny()
    run, caches = CompiledRecording(model, *NAMES), [Cache(model.spec.blocks, "fixed", 9) for _ in range(2)]
    ids = ids_of((2, 8))
    for first, end in ((0, 6), (6, 7), (7, 8)):
        try:
            out, got = run(ids[:, first:end], Given(), caches[0])
        except InputError as e:  # it is torch's own, whatever the machine lacks
            if "compiler" in str(e).lower():
                pytest.skip("no C++ compiler here")
            raise
        with cutaway.record(model, *NAMES) as wanted:
            assert (out - model(ids[:, first:end], Given(), caches[1])).abs().max() < 1e-5
        assert all((got[tap] - wanted[tap]).abs().max() < 1e-5 for tap in wanted.names)


def test_what_does_not_fit_is_named():
    one, two = (cutaway.build(cutaway.preset(name), seed=0) for name in ("modern-tiny", "original-2017-tiny"))
    run = CompiledRecording(one, "final", backend="eager")
    mixture = drawn(alone(spec.MixtureOfExperts(n_experts=4, n_active=2, expert=spec.Gated(d_ff=5))))
    experts = "blocks.0.ffn.experts.3.hidden"
    for match, call in {
        "nosuch: no tap": lambda: CompiledRecording(one, "nosuch"),
        "experts.3.hidden: compiled code runs each expert on all": lambda: CompiledRecording(mixture, experts),
        "compiled code runs each expert": lambda: CompiledRecording(mixture, "*"),
        "no gradients of what is inside": lambda: CompiledRecording(one, "final", taken=Taken(gradients=True)),
        "model: a Linear": lambda: CompiledRecording(nn.Linear(2, 2), "final"),
        "999 is not in the vocabulary": lambda: run(torch.tensor([[1, 999]])),
        "context is 128": lambda: run(ids_of((1, 200))),
        "mask: shape": lambda: run(ids_of((2, 6)), PADDING),
        "it is fixed at 2": lambda: run(ids_of((1, 3)), Given(), Cache(one.spec.blocks, "fixed", 2)),
        "no encoder of its own": lambda: run.encode(ids_of((1, 3))),
        "nothing to look at": lambda: CompiledRecording(two, "decoder.final")(ids_of((1, 3))),
    }.items():
        with pytest.raises(InputError, match=match):
            call()
