"""The tensors of a checkpoint, whichever files they lie in, and the one check that all of them get."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoints.safetensors import INDEX, SINGLE, SafetensorsFile, SafetensorsFolder
from cutaway.errors import CheckpointError


def open_weights(
    path: str | Path, *, allow_pickle: bool = False
) -> SafetensorsFile | SafetensorsFolder | PickledWeights:
    """The tensors of a `.safetensors` file or of a folder: `names`, `shape`, `dtype`, `read`.

    A folder that holds only pickled weights is refused, as opening a pickle can run the code of whoever wrote it; with
    `allow_pickle` it is read by PyTorch's loader that knows tensors only.

    Raises CheckpointError for that, and for files that are missing or not sound.
    """
    path = Path(path)
    if path.is_file():
        return PickledWeights([path], allow_pickle) if path.suffix in (".bin", ".pt", ".pth") else SafetensorsFile(path)
    pickled = sorted(path.glob("pytorch_model*.bin"))
    if pickled and not (path / SINGLE).is_file() and not (path / INDEX).is_file():
        return PickledWeights(pickled, allow_pickle)
    return SafetensorsFolder(path)


class PickledWeights:
    """Tensors of PyTorch's pickled files, only where the caller says that they are to be trusted."""

    def __init__(self, paths: list[Path], allowed: bool) -> None:
        self.where = str(paths[0] if len(paths) == 1 else paths[0].parent)
        if not allowed:
            raise CheckpointError(
                f"{self.where}: the weights are pickled, and opening a pickle can run code of whoever wrote it; take a "
                "safetensors file of this model, or allow pickle if you trust its author"
            )
        self._tensors: dict[str, Tensor] = {}
        for path in paths:
            for name, tensor in _unpickle(path).items():
                if name in self._tensors:
                    raise CheckpointError(f"{path}: {name} is in another file too; which one is meant cannot be known")
                self._tensors[name] = tensor

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        """The type in which the file holds a tensor."""
        return self._tensors[name].dtype

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """A tensor, in `out` when that is given."""
        return self._tensors[name] if out is None else out.copy_(self._tensors[name])

    def drop(self) -> None:
        """Nothing: the tensors of a pickle are in memory as long as this object."""


def _unpickle(path: Path) -> dict[str, Tensor]:
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: not a file of tensors alone ({first}); take another file") from None
    if not isinstance(table, dict) or not all(isinstance(value, Tensor) for value in table.values()):
        raise CheckpointError(f"{path}: not a table of names and tensors; take another file")
    return table


def check_finite(tensor: Tensor, name: str, where: str) -> None:
    """Raises CheckpointError when a weight is NaN or infinite: such a model gives only NaN, far from its cause."""
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.dtype.itemsize == 1:
        return
    low, high = torch.aminmax(tensor)  # NaN wins both, and no copy is made
    if not (torch.isfinite(low) and torch.isfinite(high)):
        n = int((~torch.isfinite(tensor)).sum())
        raise CheckpointError(
            f"{where}: {name} has {n} values that are NaN or infinite; the file is damaged, fetch it again"
        )
