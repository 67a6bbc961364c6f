"""One line makes a tensor visible: `q = tap(self, "q", q)`.

With no listener it is one test for None. A listener hears each tensor under the name that its module has in the
model (`blocks.3.attn.q`) and may return another tensor in its place: to record, to patch and to ablate are one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from threading import RLock, get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cutaway.errors import InputError

Hear = Callable[[str, Tensor], Tensor | None]
Out = TypeVar("Out")

_innermost: _Listening | None = None
_taps: Mapping[nn.Module, dict[str, str] | None] | None = None
"""Those of the innermost; None where nobody listens."""
_thread = 0
"""The one that listens; 0 while what it hears is being looked at."""
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
    taps = _taps  # read once: another thread may end its listening at any moment
    if taps is None or module not in taps:
        return value
    names = taps[module]
    full = names.get(name) if names is not None else ""
    if full is None or get_ident() != _thread or _innermost is None:
        return value
    return _innermost.hear(full, module, name, value)


def wanted(module: nn.Module, *names: str) -> bool:
    """Whether a listener would hear one of these taps of this module: a fused path asks before it skips them.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> attention = model.blocks[0].attn
    >>> with cutaway.listening(model, print, "*.scores"):
    ...     cutaway.wanted(attention, "scores", "pattern"), cutaway.wanted(attention, "pattern")
    (True, False)
    """
    taps = _taps
    if taps is None or module not in taps or get_ident() != _thread or _innermost is None:
        return False
    known = taps[module]
    return _innermost.wants(module, names) if known is None else not known.keys().isdisjoint(names)


def heard() -> bool:
    """Whether anybody listens, to whatever model: code without taps then leaves the work to code that has them."""
    return _taps is not None


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


def listening(model: nn.Module, hear: Hear, *patterns: str) -> _Listening:
    """While it lasts, `hear(name, tensor)` is called at each tap of `model` that this thread passes.

    With patterns (`blocks.*.attn.q`, `blocks[3:7].resid_post`: see `matcher`) only matching names are heard, and fused
    paths are kept wherever nothing inside them is. What `hear` returns replaces the tensor; None keeps it. Listeners
    stack: an inner one hears what an outer one made of a tensor. Another thread's listening waits, and its forwards
    are not heard; nor are those that `hear` runs itself. Compiled code of this thread steps aside for eager code
    meanwhile and is used again afterwards, without recompiling.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> shapes = {}
    >>> with cutaway.listening(model, lambda name, x: shapes.update({name: tuple(x.shape)}), "blocks.0.attn.pattern"):
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> list(shapes)
    ['blocks.0.attn.pattern']
    """
    return _Listening(model, hear, patterns)


class _Listening:
    """A listener, for as long as a `with` lasts."""

    def __init__(self, model: nn.Module, hear: Hear, patterns: tuple[str, ...]) -> None:
        check_model(model)
        self.model, self.heard, self.patterns = original(model), hear, patterns
        self.names: dict[nn.Module, dict[str, str]] = {}  # full names by tap; empty where it is not to be heard
        self.taps: Mapping[nn.Module, dict[str, str] | None] = {}  # the same, None where `hear` decides
        self.paths: dict[nn.Module, list[str]] = {}  # of all modules, where patterns have to be compared
        self.matches: Callable[[str], bool] | None = None
        self.below: _Listening | None = None  # what listened when it began
        self.outer: _Listening | None = None  # and hears before it
        self.begun = False

    def __enter__(self) -> None:
        global _innermost, _taps, _thread
        frames, compiling = _compiler()
        if self.begun:
            raise InputError("listening: begun a second time; make another")
        if compiling() not in (None, False):
            raise InputError("listening: begun inside code that torch.compile runs; begin it around the call")
        self.begun = True
        self._look_up()
        _lock.acquire()
        self.below, self.before, self.stance = _innermost, _thread, _Aside(frames._stance, get_ident())
        self.outer = _innermost if _thread else None  # what begins while another hears is not heard by that one
        self.taps = self.names
        if self.outer is not None:
            self.taps = dict.fromkeys({**self.names, **self.outer.taps})
        elif self.paths:
            self.taps = dict.fromkeys(self.names)
        frames._stance = self.stance
        _innermost, _taps, _thread = self, self.taps, get_ident() if self.outer is None else _thread

    def __exit__(self, *error: object) -> None:
        global _innermost, _taps, _thread
        above = _innermost
        while above is not None and above is not self and above.below is not self:
            above = above.below
        if above is None or above is self:
            _innermost, _taps, _thread = self.below, None if self.below is None else self.below.taps, self.before
            _compiler()[0]._stance = self.stance.before
        else:  # a generator that listens has ended before what began after it
            above.below, above.before, above.stance.before = self.below, self.before, self.stance.before
            above.outer = self.outer if above.outer is self else above.outer
        self.stance.thread = 0
        _lock.release()

    def _look_up(self) -> None:
        """Which tap of which module is heard under which name: plain names at once, patterns as they come."""
        try:
            by_path = _by_path(self.patterns)
        except TypeError as e:
            text = "listening: patterns are texts, one after the other: listening(model, hear, 'final')"
            raise InputError(text) from e
        if by_path is None:
            for path, module in self.model.named_modules(remove_duplicate=False):
                path = path.replace("._orig_mod", "")
                self.paths.setdefault(module, []).append(f"{path}." if path else "")
                self.names[module] = {}
            self.matches = matcher(self.patterns, (path[:-1] for paths in self.paths.values() for path in paths))
            return
        for path, taps in by_path:
            module, rest = _owner(self.model, path)
            if rest or module in self.names:
                taps = {rest + tap: name for tap, name in taps.items()} | self.names.get(module, {})
            self.names[module] = taps

    def name(self, module: nn.Module, tap: str) -> str:
        """The full name of a tap, empty where it is not listened to; of a module with two, the first that is."""
        names = self.names.get(module, {})
        full = names.get(tap)
        if full is None and self.matches is not None and module in self.paths:
            meant = (path + tap for path in self.paths[module] if self.matches(path + tap))
            names[tap] = full = next(meant, "")
        return full or ""

    def wants(self, module: nn.Module, names: tuple[str, ...]) -> bool:
        outer = self.outer
        return any(self.name(module, name) for name in names) or (
            outer is not None and module in outer.taps and outer.wants(module, names)
        )

    def hear(self, full: str, module: nn.Module, name: str, value: Tensor) -> Tensor:
        global _thread
        if not full:
            if self.outer is not None and module in self.outer.taps:
                value = self.outer.hear("", module, name, value)
            full = self.name(module, name)
            if not full:
                return value
        here, _thread = _thread, 0
        try:
            changed = self.heard(full, value)
        finally:
            _thread = here
        if changed is None:
            return value
        if not isinstance(changed, Tensor):
            raise InputError(f"{full}: the listener returned a {type(changed).__name__}; return a tensor, or None")
        return changed


class _Aside:
    """A stance of torch.compile: compiled code of the thread that listens steps aside, that of other threads goes on.

    `torch.compiler.set_stance` holds for every thread, and torch refuses a call with fullgraph=True that ran nothing
    compiled, since it began while the stance was set, and is at its end when it no longer is.
    """

    __slots__ = ("before", "thread")

    def __init__(self, before: Any, thread: int) -> None:
        self.before, self.thread = before, thread

    @property
    def stance(self) -> str:
        return "force_eager" if get_ident() == self.thread else self.before.stance

    @property
    def backend(self) -> Any:
        return self.before.backend

    @property
    def skip_guard_eval_unsafe(self) -> bool:
        return self.before.skip_guard_eval_unsafe


@cache
def _compiler() -> tuple[Any, Callable[[], Any]]:
    """Where torch.compile's stance is kept, and what asks if it is at work."""
    return import_module("torch._dynamo.eval_frame"), torch._C._dynamo.eval_frame.get_eval_frame_callback


@lru_cache(64)
def _by_path(names: tuple[str, ...]) -> list[tuple[list[str], dict[str, str]]] | None:
    """The words of each path, with the names by their last word; None where one is a pattern, or there is none."""
    if not names or not all(map(plain, names)):
        return None
    by_path: dict[str, dict[str, str]] = {}
    for name in names:
        path, _, word = name.rpartition(".")
        by_path.setdefault(path, {})[word] = name
    return [(path.split("."), taps) for path, taps in by_path.items()]


def _owner(model: nn.Module, path: list[str]) -> tuple[nn.Module, str]:
    """The module that a path begins with, and what of the path is none."""
    for depth, word in enumerate(path):
        child = model._modules.get(word)
        if child is None:
            return model, ".".join(path[depth:]) + "." if path != [""] else ""
        model = original(child)
    return model, ""


def original(model: nn.Module) -> Any:
    """The module itself where `torch.compile` has wrapped it: its names are those of the model."""
    inner = model._modules.get("_orig_mod")
    return model if inner is None else inner


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
    patterns, paths = list(patterns), list(paths)
    names = {pattern for pattern in patterns if plain(pattern)}
    tests = [_matches(pattern, paths) for pattern in patterns if not plain(pattern)]
    if not tests and patterns:
        return names.__contains__
    return lambda name: not patterns or name in names or any(test(name) for test in tests)


def _matches(pattern: str, paths: list[str]) -> Callable[[str], bool]:
    parts = re.split(r"\[([^\]]*)\]", pattern)  # text, what stands in brackets, text, ...
    spans = [_span(inside, pattern) for inside in parts[1::2]]
    text = r"\.(\d+)".join(re.sub(r"(\\\*)+", ".*", re.escape(part)) for part in parts[::2])
    form = re.compile(text)
    counts = _counts(paths) if spans else {}

    def test(name: str) -> bool:
        found = form.fullmatch(name)
        return found is not None and all(
            (index := int(found[i])) in range(*span.indices(max(counts.get(name[: found.start(i) - 1], 0), index + 1)))
            for i, span in enumerate(spans, 1)
        )

    return test


def _counts(paths: list[str]) -> dict[str, int]:
    """How many modules are numbered under each path: the layers of one stack, the experts of one layer."""
    counts: dict[str, int] = {}
    for path in paths:
        above, _, last = path.rpartition(".")
        if last.isdecimal():
            counts[above] = max(counts.get(above, 0), int(last) + 1)
    return counts


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
