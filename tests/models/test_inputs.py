"""What does not fit a model is refused by name before any work; padding takes no room of the context."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Cache
from cutaway.parts.step import Given, Memory
from tests.conformance.models import drawn, plain, translator

IDS = torch.tensor([[3, 1, 4], [1, 5, 9]])
ONES = torch.ones(2, 3, dtype=torch.long)
BAD_IDS = {
    r"ids: a list; give a tensor": [[3, 1, 4]],
    r"ids: a ndarray; give a tensor": np.array([[3, 1]]),
    r"ids: a str; give a tensor": "hello",
    r"ids: shape \(3,\); give \[rows, tokens\], for one row ids\[None\]": IDS[0],
    r"ids: shape \(\) of torch.int64; give torch.int64 of shape": torch.tensor(3),
    r"ids: shape \(1, 2, 3\) of torch.int64": IDS[None],
    r"ids: shape \(1, 2\) of torch.float32; give torch.int64": torch.tensor([[torch.nan, torch.inf]]),
    r"ids: shape \(1, 1\) of torch.bool": torch.tensor([[True]]),
    r"ids: shape \(1, 1\) of torch.int16": torch.tensor([[1]], dtype=torch.int16),
    r"ids: no tokens; give at least one": torch.empty(2, 0, dtype=torch.long),
    r"ids: -1 is not in the vocabulary of 23": torch.tensor([[3, -1, 99]]),
    r"ids: 23 is not in the vocabulary of 23": torch.tensor([[3, 23]]),
}
BAD_GIVEN = {
    r"mask: a list; give a tensor": Given(mask=[[1, 1, 1]] * 2),
    r"mask: shape \(2, 2\), but the ids ask for \(2, 3\)": Given(mask=ONES[:, :2]),
    r"mask: numbers other than 0 and 1; give 1 for real": Given(mask=torch.tensor([[0.0, -torch.inf, 0.0]] * 2)),
    r"mask: numbers other": Given(mask=torch.full((2, 3), torch.nan)),
    r"owners: shape \(3,\), but": Given(owners=ONES[0]),
    r"owners: torch.float32; give whole numbers": Given(owners=ONES.float()),
    r"types: shape \(2, 1\), but": Given(types=ONES[:, :1]),
    r"types: torch.float32; give whole": Given(types=ONES.float()),
    r"types: 2, but the model has 2 token types": Given(types=2 * ONES),
    r"types: -1, but the model has 2 token types": Given(types=-ONES),
    r"prefix: shape \(1,\), but the ids ask for \(2,\)": Given(prefix=torch.tensor([1])),
    r"prefix: torch.float32; give whole": Given(prefix=torch.tensor([1.0, 2.0])),
    r"lengths: shape \(1,\), but the ids ask for \(2,\) or \(2, 3\)": Given(lengths=torch.tensor([1])),
}


@pytest.fixture(scope="module")
def model():
    return drawn(plain().replace(embedding=spec.TokenEmbedding(n_token_types=2)))


@pytest.mark.parametrize("message", BAD_IDS)
def test_ids(model, message):
    with pytest.raises(InputError, match=f"^{message}"):
        model(BAD_IDS[message])


@pytest.mark.parametrize("message", BAD_IDS)
def test_ids_of_a_source_and_of_a_target(message):
    both = drawn(translator())
    with pytest.raises(InputError, match=f"^{message}"):
        both.encode(BAD_IDS[message])
    with pytest.raises(InputError, match=f"^{message}"):
        both(BAD_IDS[message], Given(memory=both.encode(IDS)))


@pytest.mark.parametrize("message", BAD_GIVEN)
def test_what_is_given_about_ids(model, message):
    with pytest.raises(InputError, match=f"^{message}"):
        model(IDS, BAD_GIVEN[message])


def test_types_where_a_model_has_none():
    model = drawn(plain())
    assert torch.equal(model(IDS, Given(types=0 * ONES)), model(IDS))
    with pytest.raises(InputError, match="types: 1, but the model has 0 token types"):
        model(IDS, Given(types=ONES))


def test_an_empty_batch_fits(model):
    none = Given(mask=ONES[:0], types=ONES[:0], prefix=torch.empty(0, dtype=torch.long))
    assert model(IDS[:0], none).shape == (0, 3, 23)
    assert model(IDS[:0], Given(owners=ONES[:0]), Cache(model.spec.blocks)).shape == (0, 3, 23)


def test_memory():
    both = drawn(translator())
    memory = both.encode(IDS)
    with pytest.raises(InputError, match="memory: 2 rows of width 16, but the ids have 1 rows"):
        both(IDS[:1], Given(memory=memory))
    with pytest.raises(InputError, match="memory: 2 rows of width 8, but .* 16 wide"):
        both(IDS, Given(memory=Memory(memory.states[..., :8], memory.owners, True)))
    with pytest.raises(InputError, match="cross: there is nothing to look at"):
        both(IDS)


# The context.


def masked(width: int, n_real: int, side: str) -> torch.Tensor:
    mask = torch.zeros(1, width, dtype=torch.long)
    mask[0, slice(width - n_real, width) if side == "left" else slice(0, n_real)] = 1
    return mask


TABLES = {
    "rope": plain(context_length=6),
    **{
        f"learned {counted.kind}": plain(context_length=6, positions=spec.NoPositions()).replace(
            embedding=spec.TokenEmbedding(positions=spec.Learned(n_positions=6, counted=counted))
        )
        for counted in (spec.FromMask(), spec.ByColumn())
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "side"), [("rope", "left"), ("rope", "right"), ("learned mask", "left"), ("learned mask", "right"),
                       ("learned column", "right")]
)  # fmt: skip
def test_padding_takes_no_room_of_the_context(name, side):
    model, width = drawn(TABLES[name]), 10
    ids = torch.arange(1, width + 1)[None]
    with torch.no_grad():
        for cut in (width, 4, 7):  # whole, and in two steps
            mask, cache = masked(width, 6, side), Cache(model.spec.blocks)
            pieces = [slice(0, cut), slice(cut, width)][: 1 if cut == width else 2]
            got = torch.cat([model(ids[:, p], Given(mask=mask[:, p]), cache) for p in pieces], 1)
            alone = model(ids[mask == 1][None])[0]
            assert (got[mask == 1] - alone).abs().max() < 1e-12
        with pytest.raises(InputError, match="ids: 7 tokens, but the model's context is 6; shorten the text"):
            model(ids, Given(mask=masked(width, 7, side)))
        cache = Cache(model.spec.blocks)
        model(ids, Given(mask=masked(width, 6, side)), cache)
        with pytest.raises(InputError, match="ids: 7 tokens, but the model's context is 6"):
            model(ids[:, :1], cache=cache)


class Read(TorchDispatchMode):
    """Counts the numbers that are read from tensors: each waits for the device."""

    n = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.n += op is torch.ops.aten._local_scalar_dense.default
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", TABLES)
def test_within_the_context_a_step_reads_its_ids_alone(name):
    model, cache = drawn(TABLES[name]), Cache(TABLES[name].blocks)
    with torch.no_grad():
        model(IDS, Given(mask=torch.tensor([[0, 1, 1], [1, 1, 1]])), cache)
        with Read() as read:
            model(IDS[:, :1], cache=cache)
    assert read.n == 2  # the lowest and the highest


def test_a_fixed_cache_counts_its_slots_padding_too():
    model = drawn(TABLES["rope"])
    ids, mask = torch.arange(1, 10)[None], masked(9, 3, "left")
    cache = Cache(model.spec.blocks, "fixed", capacity=8)
    with torch.no_grad():
        model(ids[:, :8], Given(mask=mask[:, :8]), cache)
        with pytest.raises(InputError, match="cache: 9 tokens, but it is fixed at 8"):
            model(ids[:, 8:], Given(mask=mask[:, 8:]), cache)
        roomy = Cache(model.spec.blocks, "fixed", capacity=9)
        model(ids, Given(mask=mask), roomy)


def test_by_column_a_table_counts_padding_on_the_left():
    model = drawn(TABLES["learned column"])
    with pytest.raises(InputError, match="positions: token 10 of a row, but the model has learned 6 positions"):
        model(torch.arange(1, 11)[None], Given(mask=masked(10, 5, "left")))
