"""Everything stays where the model is: on a device that is only told of, and on a GPU where there is one."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import cutaway
from cutaway import Given, spec
from cutaway.checkpoints.fill import assign
from cutaway.encoding import Rows, vectors
from cutaway.errors import InputError
from cutaway.generation import Cache, Run, generate
from cutaway.generation.reader import Reader
from cutaway.generation.sampling import Sampler
from cutaway.loaded import Loaded
from cutaway.models import EncoderDecoder, build
from cutaway.tracing import edit as edits
from cutaway.tracing.attribution import attribute
from cutaway.tracing.gradients import integrated_gradients
from cutaway.tracing.heads import head_scores
from cutaway.tracing.lens import logit_lens
from cutaway.tracing.patching import Question, Runs, patch_sweep
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import Recording, Taken, record
from cutaway.tracing.tuned import tune
from tests.conformance.alone import heads
from tests.conformance.alone import model as alone
from tests.conformance.models import plain, translator
from tests.conformance.test_agreement import SPECS

ELSEWHERE = torch.device("lazy", 0)
"""A device that the processor's build of torch knows, and that is never the processor."""
KINDS = ("rope yarn", "alibi", "t5", "sliding", "chunked", "sinusoidal", "learned from ids", "norm per head", "latent",
         "experts sigmoid groups")  # fmt: skip
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in
        ("rope yarn", "alibi", "t5", "learned from ids", "latent", "translator")]  # fmt: skip
PREFIX = alone(spec.PrefixDecoder, spec.Branch(part=heads(mask=spec.PrefixMask())))
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture
def elsewhere(monkeypatch):
    """Tensors without numbers, so that no value is looked at; two devices in one operation are an error."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    made = {}

    def model_of(described):
        model = build(described).eval()
        with FakeTensorMode() as made["mode"]:
            for name, parameter in list(model.named_parameters()):
                assign(model, name, torch.empty(parameter.shape, device=ELSEWHERE))
        return model, made["mode"]

    return model_of


def ids_of(*shape):
    return torch.ones(shape, dtype=torch.long, device=ELSEWHERE)


def given_for(model, **more):
    return Given(memory=model.encode(ids_of(2, 6)), **more) if isinstance(model, EncoderDecoder) else Given(**more)


@pytest.mark.parametrize("name", ["sliding", *SLOW])
def test_a_forward_and_each_cache_stay_on_the_device(elsewhere, name):
    model, mode = elsewhere(SPECS.get(name) or translator())
    blocks = spec.last_stack(model.spec).blocks
    with mode, torch.no_grad():
        assert model(ids_of(2, 5), given_for(model, mask=torch.ones(2, 5))).device == ELSEWHERE
        for kind in ("growing", "ring") if name == "sliding" else ("fixed",):
            cache = Cache(blocks, kind, capacity=8)
            for width in (4, 1):
                assert model(ids_of(2, width), given_for(model), cache, last=True).device == ELSEWHERE
            cache.reorder(torch.tensor([1, 0, 1], device=ELSEWHERE))
            assert all(layer.keys is None or layer.keys.device == ELSEWHERE for layer in cache.layers)


def test_what_is_given_comes_to_the_device(elsewhere):
    model, mode = elsewhere(PREFIX)
    with mode, torch.no_grad():
        assert model(ids_of(2, 5), Given(prefix=torch.tensor([3, 2]))).device == ELSEWHERE
        owners = torch.tensor([[0, 0, 1, 1, -1]] * 2)
        assert model(ids_of(2, 5), Given(owners=owners, prefix=torch.tensor([1, 1]))).device == ELSEWHERE
    typed, mode = elsewhere(cutaway.preset("bert-tiny"))
    with mode, torch.no_grad():
        assert typed(ids_of(1, 3), Given(types=torch.tensor([[0, 0, 1]]))).device == ELSEWHERE


@pytest.mark.parametrize("name", ["sliding", *SLOW])
def test_recordings_are_taken_to_the_processor(elsewhere, name):
    model, mode = elsewhere(SPECS.get(name) or translator())
    with mode, torch.no_grad(), record(model, taken=Taken(device="cpu", dtype=torch.float64)) as run:
        model(ids_of(2, 5), given_for(model))
        assert len(run.names) > 20 and {x.device.type for _, x in run.items()} == {"cpu"}


def test_edits_stay_on_the_device(elsewhere):
    model, mode = elsewhere(plain())
    attn, part = model.blocks[0].attn, edits.Part(heads=[1], tokens=[-1], rows=[0])
    with mode, torch.no_grad():
        z, scores = torch.zeros(2, 4, 5, 4, device=ELSEWHERE), torch.zeros(2, 4, 5, 5, device=ELSEWHERE)
        held = Recording()
        held.taken["blocks.0.attn.z"] = [torch.zeros(2, 4, 5, 4)]
        made = [
            edits.zero(part), edits.mean(part), edits.mean(part, held), edits.scale(2.0, part),
            edits.add(torch.zeros(4), 2.0, part), edits.patch(held, part), edits.resample(held, part=part),
        ]  # fmt: skip
        for each in made:
            assert each(z, edits.Site("blocks.0.attn.z", 0, ("B", "N", "T", "V"), attn)).device == ELSEWHERE
        site = edits.Site("blocks.0.attn.scores", 0, ("B", "N", "T", "S"), attn)
        assert edits.hide([0, 2])(scores, site).device == ELSEWHERE


@pytest.mark.parametrize(
    "described", [plain(), *(pytest.param(each, marks=pytest.mark.slow) for each in (PREFIX, translator()))],
    ids=["plain", "prefix", "translator"],
)  # fmt: skip
def test_reading_and_choosing_stay_on_the_device(elsewhere, described):
    model, mode = elsewhere(described)
    options = spec.Generation(
        temperature=1.0, top_k=5, top_p=0.9, min_p=0.1, repetition_penalty=1.2, presence_penalty=0.1, min_tokens=2,
        stop_ids=(1,), suppressed_ids=(2,), end_forced_id=3,
    )  # fmt: skip
    with mode, torch.no_grad():
        memory = given_for(model).memory
        reader = Reader(model, [[5, 6], [7, 8]], Run(cache="growing"), 8, memory)
        logits = reader.start()
        for chosen in (options, spec.Generation(temperature=0.0)):
            sampler = Sampler(chosen, reader.rows, [1, 2], logits, room=[1, 2])
            tokens = sampler.choose(logits)
            sampler.note(tokens)
            sampler.keep([1, 0])
            assert sampler.choose(logits).device == tokens.device == ELSEWHERE
        assert reader.read(tokens, [3, 4]).device == ELSEWHERE
        reader.keep([1])
        assert reader.read(tokens[1:], [3]).device == ELSEWHERE


def test_what_looks_inside_gives_its_numbers_on_one_device(elsewhere):
    model, mode = elsewhere(plain())
    with mode:
        assert Loaded(model, None, "").prompt([1, 2]).ids.device == ELSEWHERE
        assert vectors(model, Rows([[1, 2], [3]]), "mean", True).device == ELSEWHERE
        assert {x.device.type for x in head_scores(model).scores.values()} == {"cpu"}
        held = Recording()
        held.taken["z"] = [torch.zeros(1, 3, 4, device=ELSEWHERE)]
        effects = Runs(held, held, 1.0, 0.0).sweep("", ["z"], lambda places: torch.zeros(3, device=ELSEWHERE)).effects
        assert effects.device.type == "cpu"


def test_ids_on_another_device_and_weights_that_are_not_filled_are_told(elsewhere):
    ids, (other, mode) = torch.ones(1, 3, dtype=torch.long), elsewhere(plain())
    with pytest.raises(InputError, match="^ids: the model's weights are not filled; build it with a seed"):
        build(plain())(ids)
    with mode, pytest.raises(InputError, match=r'^ids: on cpu, but the model is on lazy:0; give `ids.to\("lazy:0"\)`'):
        other(torch.ones(1, 3, dtype=torch.long))


IDS, NAMES = torch.tensor([[5, 7, 9, 2, 11], [3, 3, 8, 1, 6]]), ("*.attn.pattern", "*resid_post", "*.ffn.hidden")


def both(name):
    """The model of a name on the processor and on the GPU, in float32."""
    described = SPECS.get(name) or {"plain": plain(), "translator": translator()}[name]
    model = build(described, seed=0).eval()
    return model, build(described, seed=0).eval().to("cuda")


def prompt_for(model, ids, device="cpu"):
    ids = ids.to(device)
    return Prompt(ids, ids.flip(1) if isinstance(model, EncoderDecoder) else None)


def assert_near(there, here):
    assert there.shape == here.shape
    torch.testing.assert_close(there.cpu().double(), here.double(), rtol=2e-3, atol=2e-4)


@gpu
@pytest.mark.parametrize("name", [*KINDS, "translator"])
def test_a_recording_on_a_gpu_is_that_of_the_processor(name):
    runs = []
    for model, device in zip(both(name), ("cpu", "cuda"), strict=True):
        with torch.no_grad(), record(model, taken=Taken(device="cpu")) as run:
            prompt_for(model, IDS, device).run(model)
        assert {x.device.type for _, x in run.items()} == {"cpu"}
        runs.append(run)
    assert runs[0].names == runs[1].names
    for name, here in runs[0].items():
        if not name.endswith(("ranked", "scores")):  # with -inf, and ties of which rounding may choose either
            assert_near(runs[1][name], here)


@gpu
@pytest.mark.parametrize("kind", ["growing", "fixed", "ring", None])
@pytest.mark.parametrize("name", ["sliding", "latent", "translator"])
def test_a_gpu_writes_the_same_text(name, kind):
    options = spec.Generation(max_tokens=6, start_id=1)
    here, there = (
        generate(model, IDS.tolist() + [[4]], options, Run(cache=kind, logprobs=True)) for model in both(name)
    )
    assert there.ids == here.ids
    assert_near(torch.tensor(there.logprobs), torch.tensor(here.logprobs))
    warm = options.replace(temperature=1.0, top_k=5)
    here, there = (generate(model, IDS.tolist(), warm, Run(seeds=3, cache=kind)) for model in both(name))
    assert there.ids == here.ids
    beams = options.replace(n_beams=3)
    here, there = (generate(model, IDS.tolist(), beams, Run(cache=kind)) for model in both(name))
    assert there.ids == here.ids


@gpu
def test_edits_on_a_gpu_do_the_same():
    found = []
    for model, device in zip(both("plain"), ("cpu", "cuda"), strict=True):
        held = prompt_for(model, IDS.flip(0), device)
        with torch.no_grad(), record(model, "blocks.1.attn.z", taken=Taken(device="cpu")) as other:
            held.run(model)
        chosen = edits.knock_out(heads=[(0, 1)], neurons=[(1, 3)], tokens=[0]) | {
            "blocks.1.attn.z": edits.patch(other, edits.Part(heads=[2])),
            "blocks.0.resid_post": edits.add(torch.ones(16), 0.5),
        }
        with torch.no_grad(), cutaway.edit(model, chosen) as report:
            out = prompt_for(model, IDS, device).run(model)
        found.append((out, report.changes["blocks.1.attn.z"].difference))
    assert_near(found[1][0], found[0][0])
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-3)


@gpu
def test_what_looks_inside_a_gpu_says_the_same():
    said = []
    for model, device in zip(both("plain"), ("cpu", "cuda"), strict=True):
        clean, other = (prompt_for(model, IDS[row : row + 1], device) for row in (0, 1))
        question = Question(3, 4)
        said.append([
            vectors(model, Rows([[1, 2], [3]]), "mean", True),
            head_scores(model).scores["previous"],
            patch_sweep(model, clean, other, question).effects,
            attribute(model, clean, 3).values,
            integrated_gradients(model, clean, question).values,
            logit_lens(model, clean).log_probabilities,
            tune(model, [clean, other], 2, 4).after,
        ])  # fmt: skip
    for here, there in zip(*said, strict=True):
        assert_near(there, here)
