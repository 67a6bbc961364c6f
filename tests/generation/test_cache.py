"""The cache by itself: how much it holds, what it refuses, what a failed step and a new order of rows leave."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Cache, Run, generate
from cutaway.generation import reader as reading
from cutaway.generation.reader import Reader
from cutaway.parts.slots import Slots
from cutaway.parts.step import Given
from tests.conformance.models import drawn, logits_alone, plain, translator

IDS = torch.randint(1, 23, (2, 20), generator=torch.Generator().manual_seed(0))


def read(model, cache, *widths, ids=IDS, mask=None):
    """The logits of the next columns, in steps of these widths from where the cache stands."""
    out, start = [], cache.length
    for width in widths:
        part = slice(start, start + width)
        with torch.no_grad():
            out.append(model(ids[:, part], Given(mask=None if mask is None else mask[:, part]), cache))
        start += width
    return torch.cat(out, 1)


def test_bytes_in_use_are_those_of_the_tokens():
    model = drawn(plain())
    cache = Cache(model.spec.blocks)
    read(model, cache, 5, 1, 1)
    assert cache.nbytes() == 2 * 2 * (2 * 2 * 7 * 4) * 8  # layers, k and v, (rows, heads, tokens, width), float64


def test_a_ring_holds_its_window_alone():
    model = drawn(plain(mask=spec.SlidingMask(window=4)))
    ring, growing = Cache(model.spec.blocks, "ring"), Cache(model.spec.blocks)
    for cache in (ring, growing):
        read(model, cache, 9, 1, 1, 7)
    assert ring.nbytes() == growing.nbytes() * 4 // 18
    assert ring.layers[0].keys.shape[2] == 4


def test_a_ring_writes_each_slot_once_a_step():
    """Two tokens for one slot are written in no fixed order on every device."""
    model = drawn(plain(mask=spec.SlidingMask(window=4)))
    cache = Cache(model.spec.blocks, "ring")
    read(model, cache, 9)
    turn = cache.turns[4]
    assert turn.column.tolist() == 2 * [[5, 6, 7, 8]] and all(len(set(row)) == 4 for row in turn.slot.tolist())
    read(model, cache, 5, mask=torch.tensor([[1] * 20, [1] * 9 + [0, 1, 1, 0, 0] + [1] * 6]))
    turn = cache.turns[4]
    assert turn.column[:, 2:].tolist() == [[3, 4], [1, 2]] and turn.real.tolist()[1] == [False, False, True, True]
    assert turn.slot.tolist() == [[2, 3, 0, 1], [3, 0, 1, 2]]


def test_a_ring_that_is_not_full_counts_what_it_holds():
    model = drawn(plain(mask=spec.SlidingMask(window=6)))
    ring, growing = Cache(model.spec.blocks, "ring"), Cache(model.spec.blocks)
    for cache in (ring, growing):
        read(model, cache, 3, 1)
    assert ring.nbytes() == growing.nbytes()


def test_a_fixed_cache_never_grows_and_refuses_more():
    model = drawn(plain())
    cache = Cache(model.spec.blocks, "fixed", capacity=6)
    read(model, cache, 3, 1)
    buffer = cache.layers[0].keys
    read(model, cache, 2)
    assert cache.layers[0].keys is buffer and buffer.shape[2] == 6
    with pytest.raises(InputError, match="cache: 7 tokens, but it is fixed at 6"):
        read(model, cache, 1)
    with pytest.raises(InputError, match="capacity"):
        Cache(model.spec.blocks, "fixed")


def test_a_cache_of_other_rows_is_refused():
    model = drawn(plain())
    for mask in (None, torch.tensor([[0] + [1] * 19] * 2)):
        cache = Cache(model.spec.blocks)
        read(model, cache, 3, mask=mask)
        with pytest.raises(InputError, match="it holds 2 rows, the step has 1"):
            read(model, cache, 1, ids=IDS[:1])


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_a_step_that_failed_leaves_no_trace(kind):
    """Also not in the ids that are counted for positions."""
    table = spec.TokenEmbedding(positions=spec.Learned(n_positions=64, counted=spec.FromIds(pad_id=0)))
    model = drawn(plain(positions=spec.NoPositions()).replace(embedding=table))
    cache = Cache(model.spec.blocks, kind, capacity=20)
    whole = read(model, Cache(model.spec.blocks), 12)
    first = read(model, cache, 5)

    def fail(*given):
        raise RuntimeError("out of memory")

    handle = model.blocks[1].register_forward_pre_hook(fail)
    for width in (1, 4):
        with pytest.raises(RuntimeError, match="out of memory"):
            read(model, cache, width)
    handle.remove()
    rest = read(model, cache, 3, 4)
    assert (torch.cat((first, rest), 1) - whole).abs().max() < 1e-12


def test_a_first_step_that_failed_leaves_nothing_of_its_source():
    model, ids = drawn(translator()), IDS[:, :3]
    first, other = (Given(memory=model.encode(IDS[:, place : place + 5])) for place in (3, 9))
    cache = Cache(model.spec.decoder.blocks)

    def fail(*given):
        raise RuntimeError("out of memory")

    handle = model.decoder.blocks[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(ids, first, cache)
    handle.remove()
    assert torch.equal(model(ids, other, cache), model(ids, other))


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
def test_rows_may_be_dropped_doubled_and_turned_round(kind):
    model = drawn(plain(mask=spec.SlidingMask(window=5)))
    cache = Cache(model.spec.blocks, kind, capacity=20)
    read(model, cache, 8)
    rows = torch.tensor([1, 0, 1])
    cache.reorder(rows)
    got = read(model, cache, 1, 3, ids=IDS[rows])
    wanted = read(model, Cache(model.spec.blocks), 12, ids=IDS[rows])[:, 8:]
    assert (got - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
def test_columns_that_are_padding_in_all_rows_left_are_dropped(kind):
    model = drawn(plain(mask=spec.SlidingMask(window=5)))
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1, :6] = 0  # row 1 is shorter, padded on the left
    cache = Cache(model.spec.blocks, kind, capacity=20)
    read(model, cache, 9, mask=mask)
    cache.reorder(torch.tensor([1]), drop=6)
    assert cache.length == 3 and cache.plain
    with torch.no_grad():
        got = [model(IDS[1:, place : place + 1], cache=cache)[0, -1] for place in range(9, 14)]
    alone = IDS[1, 6:].tolist()
    for n, logits in enumerate(got):
        assert (logits - logits_alone(model, alone[: 4 + n], 1)).abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["growing", "ring"])
def test_a_row_of_padding_so_far_begins_at_its_first_token(kind):
    model = drawn(plain(mask=spec.SlidingMask(window=5)))
    cache = Cache(model.spec.blocks, kind)
    read(model, cache, 1, mask=torch.tensor([[0] + [1] * 19, [1] * 20]))
    cache.reorder(torch.tensor([0]))
    got = read(model, cache, 1, 2, ids=IDS[:1])
    assert (got - read(model, Cache(model.spec.blocks), 3, ids=IDS[:1, 1:])).abs().max() < 1e-12


def test_the_encoders_keys_are_made_once_and_stay_where_beams_turn():
    model = drawn(translator())
    reader = Reader(model, [[2], [2]], Run(), memory=reading.encoded(model, [[3, 4], [5, 6, 7]]))
    with torch.no_grad():
        reader.start()
        kept = reader.cache.layers[0].cross[0]
        reader.read(torch.tensor([4, 5]), [4, 5])
        assert reader.cache.layers[0].cross[0] is kept
        reader.keep([1, 0], same_memory=True)
        assert reader.cache.layers[0].cross[0] is kept
        reader.keep([1], same_memory=False)
        assert torch.equal(reader.cache.layers[0].cross[0], kept[1:])


def widths_read(model, monkeypatch) -> list[int]:
    """Filled with the number of columns of each call of the model."""
    widths, forward = [], model.forward

    def listen(ids, *more, **named):
        widths.append(ids.shape[1])
        return forward(ids, *more, **named)

    monkeypatch.setattr(model, "forward", listen)
    return widths


def test_a_prompt_is_read_in_chunks_of_the_size_asked_for(monkeypatch):
    model = drawn(plain())
    widths = widths_read(model, monkeypatch)
    generate(model, [list(range(1, 12))], spec.Generation(max_tokens=3), Run(chunk=4))
    assert widths == [4, 4, 3, 1, 1]  # the last token is chosen, never read


def test_a_prefix_is_read_whole(monkeypatch):
    record = spec.PrefixDecoder(**{**dict(plain(mask=spec.PrefixMask())), "kind": "prefix"})
    model = drawn(record)
    widths = widths_read(model, monkeypatch)
    generate(model, [list(range(1, 12))], spec.Generation(max_tokens=2), Run(chunk=4))
    assert widths == [11, 1]


def layers(times, **attention):
    record = plain(**attention)
    return record.replace(layers=(record.layers[0].replace(times=times),))


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
@pytest.mark.parametrize("filled", [0, 3])
@pytest.mark.parametrize(("times", "said"), [(1, "it has 1 layers, the model 2"), (3, "it has 3 layers, the model 2")])
def test_a_cache_of_other_layers_is_refused(kind, filled, times, said):
    own = layers(times, mask=spec.SlidingMask(window=5))
    cache = Cache(own.blocks, kind, capacity=20)
    if filled:
        read(drawn(own), cache, filled)
    with pytest.raises(InputError, match=f"^cache: {said}; make one of this model's own blocks"):
        read(drawn(plain(mask=spec.SlidingMask(window=5))), cache, 2)
    assert cache.length == filled


@pytest.mark.parametrize(("window", "seen"), [(7, "7"), (0, "all")])
def test_a_ring_of_another_window_is_refused(window, seen):
    mask = spec.SlidingMask(window=window) if window else spec.CausalMask()
    cache = Cache(plain(mask=spec.SlidingMask(window=5)).blocks, "ring")
    with pytest.raises(InputError, match=f"layer 0 keeps 5 positions, the model looks at {seen} there"):
        read(drawn(plain(mask=mask)), cache, 12)


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
def test_a_cache_that_another_model_has_filled_goes_on_where_keys_are_alike_and_is_refused_elsewhere(kind):
    """One key head would fill the place of two without a word."""
    own, mask = drawn(plain(mask=spec.SlidingMask(window=5))), spec.SlidingMask(window=5)
    cache = Cache(own.spec.blocks, kind, capacity=20)
    read(own, cache, 3)
    with pytest.raises(InputError, match="layer 0 holds 2 heads of 4 and 4 numbers, the model has 1 heads of 4 and 4"):
        read(drawn(plain(mask=mask, n_kv_heads=1)), cache, 1)
    read(drawn(plain(mask=mask, q_bias=True)), cache, 1)
    assert cache.length == 4


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
def test_a_cache_of_another_type_or_device_is_refused(kind):
    model = drawn(plain(mask=spec.SlidingMask(window=5)))
    cache = Cache(model.spec.blocks, kind, capacity=20)
    read(model, cache, 3)
    with pytest.raises(InputError, match="it is on cpu, the ids are on meta; make a new one"):
        cache.begin(Slots(*torch.zeros(2, 2, 1, dtype=torch.long, device="meta"), plain=True))
    with pytest.raises(InputError, match=r"it holds torch.float64, the model's keys are torch.float32; make a new one"):
        read(model.float(), cache, 1)


def test_an_unknown_kind_of_cache_is_refused():
    with pytest.raises(InputError, match="'rings'; choose growing, fixed or ring"):
        Cache(plain().blocks, "rings")
