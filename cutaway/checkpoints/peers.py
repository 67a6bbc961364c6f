"""The same ids in other programs, where they are installed: transformers for folders, llama.cpp for GGUF files."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.opened import Opened
from cutaway.checkpoints.parity import Peer

Ask = Callable[[Opened, Tensor], np.ndarray]


def ask_peers(opened: Opened, read: Tensor, logits: Tensor) -> list[Peer]:
    """What each installed peer that reads this format makes of the same ids [1 T] or image [1 C H W]."""
    if opened.format == "hf" and importlib.util.find_spec("transformers"):
        return [_asked("transformers", _transformers, opened, read, logits)]
    if opened.format == "gguf" and importlib.util.find_spec("llama_cpp"):
        return [_asked("llama_cpp_python", _llama_cpp, opened, read, logits)]
    return []


def _asked(package: str, ask: Ask, opened: Opened, read: Tensor, logits: Tensor) -> Peer:
    name = f"{package} {importlib.metadata.version(package)}"
    needed = 4 * sum(np.prod(shape, dtype=float) for shape in opened.shapes.values())
    if (free := _free_memory()) is not None and needed > 0.8 * free:
        return Peer(name, f"not asked: it would need {needed / 1e9:.1f} GB, of which {free / 1e9:.1f} are free")
    try:
        theirs = np.asarray(ask(opened, read), np.float64)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and that is no fault of the checkpoint
        return Peer(name, f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    ours = logits.double().numpy().reshape(-1, logits.shape[-1])
    theirs = theirs.reshape(-1, theirs.shape[-1])
    if ours.shape != theirs.shape:
        return Peer(name, f"not comparable: it gives {theirs.shape}, the checkpoint here {ours.shape}")
    apart, largest = np.abs(ours - theirs), float(np.abs(theirs).max())
    top = np.sort(theirs, -1)
    sure = (top[:, -1] - top[:, -2] > 2 * apart.max(-1)) if theirs.shape[-1] > 1 else np.ones(len(theirs), bool)
    same = (ours.argmax(-1) == theirs.argmax(-1)) & sure
    return Peer(name, "", float(apart.max()), largest, int(same.sum()), int(sure.sum()), opened.format == "hf")


def open_transformers(path: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """The folder's model in transformers, as the class that it names; code of the folder is never run."""
    import transformers
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
        cls = getattr(transformers, (config.architectures or ["AutoModel"])[0])
        options |= {"dtype": dtype, "local_files_only": True, "use_safetensors": True}
        return cls.from_pretrained(path, **options).eval()
    finally:
        logging.set_verbosity(verbosity)


def _transformers(opened: Opened, read: Tensor) -> np.ndarray:
    """Logits, or what the class of the folder gives."""
    model = open_transformers(opened.path)
    given = {model.main_input_name: read}
    if isinstance(opened.record, spec.EncoderDecoder):
        given["decoder_input_ids"] = read
    with torch.no_grad():
        out = model(**given)
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state).numpy()


def _llama_cpp(opened: Opened, read: Tensor) -> np.ndarray:
    import llama_cpp

    ids = read[0].tolist()
    model = llama_cpp.Llama(
        str(opened.path), n_ctx=len(ids) + 8, n_batch=len(ids), logits_all=True, verbose=False,
        n_threads=int(os.environ.get("OMP_NUM_THREADS", 0)) or None,
    )  # fmt: skip
    model.eval(ids)
    return np.array(model.scores[: len(ids)])


def _free_memory() -> float | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
