"""The largest outputs of a neuron over a text: the same as from all outputs at once, whatever the pieces."""

from __future__ import annotations

import io

import pytest
import torch

from cutaway.errors import InputError
from cutaway.tracing.neurons import top_activations, windows_of
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import record
from tests.tracing.test_patching import drawn

WINDOWS = [torch.randint(256, (7,), generator=torch.Generator().manual_seed(i)).tolist() for i in range(9)]


def of(*windows, source=None):
    return [Prompt(torch.tensor([ids], dtype=torch.long), source) for ids in windows]


@pytest.mark.parametrize(
    ("name", "tap"), [("gpt2-tiny", ""), ("bert-tiny", ""), ("t5-tiny", "encoder."), ("t5-tiny", "decoder.")]
)
def test_the_largest_outputs_of_all(name, tap):
    model, encoder = drawn(name), tap == "encoder."
    start, source = torch.tensor([[0]]), torch.tensor([[4, 8, 15]])
    prompts = of(*WINDOWS, source=source if tap else None)
    prompts = [Prompt(start, prompt.ids) for prompt in prompts] if encoder else prompts
    found = top_activations(model, iter(prompts), 1, 13, top=5, encoder=encoder)
    outputs = []
    for prompt in prompts:
        with record(model, f"{tap}blocks.1.ffn.hidden") as run:
            prompt.run(model)
        outputs += run[f"{tap}blocks.1.ffn.hidden"][0, :, 13].tolist()
    order = sorted(range(len(outputs)), key=lambda i: (-outputs[i], i))[:5]
    assert [hit.place for hit in found.hits] == order
    assert [hit.value for hit in found.hits] == pytest.approx([outputs[i] for i in order])
    ids = [i for window in WINDOWS for i in window]
    assert [hit.token for hit in found.hits] == [ids[i] for i in order]
    assert (found.low, found.high, found.mean) == pytest.approx((min(outputs), max(outputs), sum(outputs) / 63))
    table = found.table("<{}>".format)
    assert table.rows[0][1] == f"'<{ids[order[0]]}>'"


@pytest.mark.parametrize("n_letters", [1, 3, 10, 1000])
def test_a_text_is_cut_between_words_whatever_the_pieces(n_letters):
    text = "one two  three\nfour five\n\nsix" * 3
    read = []

    def encode(piece):
        read.append(piece)
        return [ord(letter) for letter in piece]

    windows = list(windows_of(io.StringIO(text), encode, 4, n_letters))
    assert "".join(read) == text == "".join(chr(i) for window in windows for i in window)
    assert max(map(len, windows)) <= 4
    assert all(a[-1:].isspace() or b[:1].isspace() for a, b in zip(read, read[1:], strict=False) if a and b)


def test_of_equal_outputs_the_earlier_comes_first():
    model = drawn("gpt2-tiny")
    found = top_activations(model, of([3, 4], [3, 4], [3, 4]), 0, 0, top=3)
    best = found.hits[0].place % 2
    assert [hit.place for hit in found.hits] == [best, best + 2, best + 4]


@pytest.mark.parametrize(
    ("windows", "layer", "neuron", "message"),
    [
        ([[1]], 2, 0, "layers 0 to 1"),
        ([[1]], 0, 9999, "neurons 0 to"),
        ([[1]], 0, -1, "neurons"),
        ([], 0, 0, "no tokens"),
    ],
)
def test_mistakes_are_named(windows, layer, neuron, message):
    with pytest.raises(InputError, match=message):
        top_activations(drawn("modern-tiny"), of(*windows), layer, neuron)


def test_one_stack_has_no_encoder():
    with pytest.raises(InputError, match="no encoder beside it"):
        top_activations(drawn("modern-tiny"), of([1]), 0, 0, encoder=True)
