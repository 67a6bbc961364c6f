"""One line makes a tensor visible: `q = tap(self, "q", q)`.

With no listener it is one test for None. A listener hears each tensor under the name that its module has in the
model (`blocks.3.attn.q`) and may return another tensor in its place: to record, to patch and to ablate are one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import RLock, get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cutaway.errors import InputError

Hear = Callable[[str, Tensor], Tensor | None]
Out = TypeVar("Out")

_listening = False
_innermost: _Listener | None = None
_lock = RLock()
_outputs: tuple[dict[tuple[nn.Module, str], str], dict[str, Tensor]] | None = None
"""Names of the taps that are outputs of the code which is being compiled, and their tensors. That code sets it as it is
traced, and back: while code runs it is None."""


def tap(module: nn.Module, name: str, value: Tensor) -> Tensor:
    """`value`, or what a listener puts in its place: the line that makes a tensor of a part visible under `name`.

    With no listener it is one test for None.

    >>> import torch, cutaway
    >>> from cutaway.tap import tap
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * tap(self, "x", x)
    >>> part = Double()
    >>> with cutaway.listening(part, lambda name, x: x + 1, "x"):
    ...     part(torch.tensor([1.0, 2.0]))
    tensor([4., 6.])
    """
    if not _listening:
        return value
    listener = _innermost  # read once: another thread may end its listening at any moment
    if listener is None:
        return value
    taps = listener.taps.get(module)
    return value if taps is None else listener.hear(taps, module, name, value)


def wanted(module: nn.Module, *names: str) -> bool:
    """Whether a listener would hear one of these taps of this module: a fused path asks before it skips them.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> attention = model.blocks[0].attn
    >>> with cutaway.listening(model, print, "*.scores"):
    ...     cutaway.wanted(attention, "scores", "pattern"), cutaway.wanted(attention, "pattern")
    (True, False)
    """
    if not _listening:
        return False
    listener = _innermost
    if listener is None:
        return False
    taps = listener.taps.get(module)
    return taps is not None and listener.wants(taps, module, names)


def heard() -> bool:
    """Whether anybody listens, to whatever model: code without taps then leaves the work to code that has them."""
    return _listening


def _tap(module: nn.Module, name: str, value: Tensor) -> Tensor:
    if _outputs is not None and (module, name) in _outputs[0]:
        _outputs[1][_outputs[0][module, name]] = value
    return value


def _wanted(module: nn.Module, *names: str) -> bool:
    return _outputs is not None and any((module, name) in _outputs[0] for name in names)


def _heard() -> bool:
    return _outputs is not None


for function, compiled in ((tap, _tap), (wanted, _wanted), (heard, _heard)):
    # What torch.compile traces in a function's place, as in that of a scripted one. It never asks who listens, so code
    # that a thread enters at the moment when a listening begins is neither compiled again nor left without a graph.
    function.__dict__["_torchdynamo_inline"] = compiled


def with_taps(run: Callable[[], Out], names: dict[tuple[nn.Module, str], str]) -> tuple[Out, dict[str, Tensor]]:
    """`run()` and the tensors of its taps that have a name: for code that is being compiled, which they are part of."""
    global _outputs
    _outputs = names, {}
    out, taken = run(), _outputs[1]
    _outputs = None
    return out, taken


@contextmanager
def listening(model: nn.Module, hear: Hear, *patterns: str) -> Iterator[None]:
    """While it lasts, `hear(name, tensor)` is called at each tap of `model` that this thread passes.

    With patterns (`blocks.*.attn.q`, `blocks[3:7].resid_post`: see `matcher`) only matching names are heard, and fused
    paths are kept wherever nothing inside them is. What `hear` returns replaces the tensor; None keeps it. Listeners
    stack: an inner one hears what an outer one made of a tensor. Another thread's listening waits, and its forwards
    are not heard; nor are those that `hear` runs itself. Compiled code steps aside for eager code meanwhile and is
    used again afterwards, without recompiling.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> shapes = {}
    >>> with cutaway.listening(model, lambda name, x: shapes.update({name: tuple(x.shape)}), "blocks.0.attn.pattern"):
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> list(shapes)
    ['blocks.0.attn.pattern']
    """
    global _innermost, _listening
    check_model(model)
    with _lock, torch.compiler.set_stance("force_eager") if _innermost is None else nullcontext():
        outer = _innermost
        _innermost, _listening = _Listener(model, hear, patterns, outer), True
        try:
            yield
        finally:
            _innermost, _listening = outer, outer is not None


class _Listener:
    """Which tap of which module is heard under which name: plain names are looked up at once, patterns as they come."""

    def __init__(self, model: nn.Module, hear: Hear, patterns: tuple[str, ...], outer: _Listener | None) -> None:
        self.heard, self.outer = hear, outer
        self.thread = [get_ident()] if outer is None else outer.thread  # of all that are nested; 0 while one hears
        self.taps: dict[nn.Module, dict[str, str]] = {}  # full names by tap; empty where it is not to be heard
        self.paths: dict[nn.Module, str] = {}  # of all modules, where patterns have to be compared
        self.matches: Callable[[str], bool] | None = None
        by_path, others = _sorted(patterns)
        if others or not patterns:
            self.paths = {module: path for path, module in model.named_modules()}
            self.matches = matcher(others, self.paths.values())
            self.taps = {module: {} for module in self.paths}
        for path, names in by_path:
            module, rest = _owner(model, path)
            if rest or module in self.taps:
                names = self.taps.get(module, {}) | {rest + tap: name for tap, name in names.items()}
            self.taps[module] = names
        if outer is not None:
            self.taps = {module: {} for module in outer.taps} | self.taps

    def find(self, taps: dict[str, str], module: nn.Module, name: str) -> str:
        """The full name of a tap that was not among the plain names, empty where it is not listened to."""
        path = self.paths.get(module)
        if path is None or self.matches is None:
            return ""
        full = f"{path}.{name}" if path else name
        taps[name] = full = full if self.matches(full) else ""
        return full

    def wants(self, taps: dict[str, str], module: nn.Module, names: tuple[str, ...]) -> bool:
        if get_ident() != self.thread[0]:
            return False
        for name in names:
            full = taps.get(name)
            if full or full is None and self.find(taps, module, name):
                return True
        outer = self.outer
        return outer is not None and module in outer.taps and outer.wants(outer.taps[module], module, names)

    def pass_on(self, module: nn.Module, name: str, value: Tensor) -> Tensor:
        taps = self.taps.get(module)
        return value if taps is None else self.hear(taps, module, name, value)

    def hear(self, taps: dict[str, str], module: nn.Module, name: str, value: Tensor) -> Tensor:
        full = taps.get(name)
        if full is None and self.paths:
            full = self.find(taps, module, name)
        if self.outer is not None:
            value = self.outer.pass_on(module, name, value)
        thread, here = self.thread, get_ident()
        if not full or here != thread[0]:
            return value
        thread[0] = 0
        try:
            changed = self.heard(full, value)
        finally:
            thread[0] = here
        if changed is not None and not isinstance(changed, Tensor):
            raise InputError(f"{full}: the listener returned a {type(changed).__name__}; return a tensor, or None")
        return value if changed is None else changed


@lru_cache(64)
def _sorted(patterns: tuple[str, ...]) -> tuple[list[tuple[list[str], dict[str, str]]], list[str]]:
    """Plain names by path, as its words and the names by their last word, and the patterns that are none."""
    by_path: dict[str, dict[str, str]] = {}
    for name in filter(plain, patterns):
        path, _, word = name.rpartition(".")
        by_path.setdefault(path, {})[word] = name
    return [(path.split("."), names) for path, names in by_path.items()], [p for p in patterns if not plain(p)]


def _owner(model: nn.Module, path: list[str]) -> tuple[nn.Module, str]:
    """The module that a path begins with, and what of the path is none."""
    for depth, word in enumerate(path):
        child = model._modules.get(word)
        if child is None:
            return model, ".".join(path[depth:]) + "." if path != [""] else ""
        model = child
    return model, ""


def check_model(model: Any) -> None:
    """Raise InputError for what is no module of torch, such as what `load` returns, which holds one."""
    if not isinstance(model, nn.Module):
        held = "; give its .model" if hasattr(model, "model") else ""
        raise InputError(f"model: a {type(model).__name__} is no module{held}")


def plain(name: str) -> bool:
    """Whether it is one name, no pattern of several."""
    return "*" not in name and "[" not in name


def matcher(patterns: Iterable[str], paths: Iterable[str] = ()) -> Callable[[str], bool]:
    """Whether a name is meant by any of the patterns; by all names where there is none.

    `*` stands for anything, `blocks[3]`, `blocks[3:7]` and `blocks[-1]` for layers as in a list; `paths` of the
    model's modules tell how many there are. Raises InputError for brackets that hold anything else.
    """
    patterns = list(patterns)
    names = {pattern for pattern in patterns if plain(pattern)}
    tests = [_matches(pattern, list(paths)) for pattern in patterns if not plain(pattern)]
    if not tests and patterns:
        return names.__contains__
    return lambda name: not patterns or name in names or any(test(name) for test in tests)


def _matches(pattern: str, paths: list[str]) -> Callable[[str], bool]:
    parts = re.split(r"\[([^\]]*)\]", pattern)  # text, what stands in brackets, text, ...
    spans = [_span(inside, pattern) for inside in parts[1::2]]
    text = r"\.(\d+)".join(re.sub(r"(\\\*)+", ".*", re.escape(part)) for part in parts[::2])
    form = re.compile(text)
    counts = [_count(part.rpartition(".")[2], paths) for part in parts[:-1:2]]

    def test(name: str) -> bool:
        found = form.fullmatch(name)
        return found is not None and all(
            int(index) in range(*span.indices(max(count, int(index) + 1)))
            for index, span, count in zip(found.groups(), spans, counts, strict=True)
        )

    return test


def _count(word: str, paths: list[str]) -> int:
    """How many modules are numbered under this word."""
    numbered = re.compile(rf"(?:.*\.)?{re.escape(word)}\.(\d+)")
    return 1 + max((int(found[1]) for found in map(numbered.fullmatch, paths) if found), default=-1)


def _span(text: str, pattern: str) -> slice:
    try:
        numbers = [int(part) if part.strip() else None for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1 and numbers[0] is not None:
        return slice(numbers[0], numbers[0] + 1 or None)
    if len(numbers) not in (2, 3) or numbers[2:] == [0]:
        raise InputError(f"{pattern}: [{text}] is neither a layer nor a range of them; write blocks[3] or blocks[3:7]")
    return slice(*numbers)
