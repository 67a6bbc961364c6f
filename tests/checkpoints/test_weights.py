from __future__ import annotations

import pickle

import pytest
import torch

from cutaway.checkpoints.safetensors_write import outputs, write_file
from cutaway.checkpoints.weights import check_finite, open_weights
from cutaway.errors import CheckpointError


def test_trap_33_pickled_checkpoints_run_code(tmp_path):
    witness = tmp_path / "witness"

    class Evil:
        def __reduce__(self):
            return (open, (str(witness), "w"))

    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": Evil()}, path)
    for allow in (False, True):
        with pytest.raises(CheckpointError, match="pickle|not a file of tensors alone"):
            open_weights(tmp_path, allow_pickle=allow)
    assert not witness.exists()
    path.write_bytes(pickle.dumps({"a": Evil()}))
    for allow in (False, True):
        with pytest.raises(CheckpointError):
            open_weights(path, allow_pickle=allow)
    assert not witness.exists()


def test_pickled_tensors_when_they_are_allowed(tmp_path):
    torch.save({"a": torch.ones(2, 3)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="or allow pickle if you trust its author"):
        open_weights(tmp_path)
    source = open_weights(tmp_path, allow_pickle=True)
    assert (source.names(), source.shape("a"), source.dtype("a")) == (["a"], (2, 3), torch.float32)
    assert torch.equal(source.read("a", torch.empty(2, 3)), torch.ones(2, 3))
    write_file(tmp_path / "model.safetensors", outputs({"a": torch.zeros(2, 3)})[0])
    assert torch.equal(open_weights(tmp_path).read("a"), torch.zeros(2, 3))  # safetensors win where both are there
    assert torch.equal(open_weights(tmp_path / "model.safetensors").read("a"), torch.zeros(2, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("evil", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(dtype, evil):
    weight = torch.zeros(5, 5, dtype=dtype)
    check_finite(weight, "w", "here")
    check_finite(torch.empty(0, dtype=dtype), "w", "here")
    check_finite(torch.ones(3, dtype=torch.int64), "w", "here")
    weight[3, 1] = evil
    with pytest.raises(CheckpointError, match="here: w has 1 values that are NaN or infinite"):
        check_finite(weight, "w", "here")
