"""Chat templates: programs in Jinja that come with a model, so they are run in a sandbox and on a budget.

The sandbox keeps a template from reaching Python's objects and from changing its input. The budget bounds its time and
memory: each turn of a loop and each call costs something, and so does each character it makes; and its seconds of the
processor are counted.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from time import thread_time
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from cutaway.errors import InputError

MAX_SOURCE = 1 << 20
MAX_COST = 1 << 27
STEP_COST = 1 << 8
"""A turn of a loop or a call costs as much as so many characters, so there can be half a million of them."""
ITEM_COST = 1 << 4
MAX_SECONDS = 0.8
STRETCHING = frozenset((
    "batch", "center", "expandtabs", "format", "indent", "join", "ljust", "replace", "rjust", "round", "slice",
    "truncate", "wordwrap", "zfill",
))  # fmt: skip
"""Filters and methods whose result may be as large as their first argument times the others."""
UNSAFE = frozenset(["format_map", "maketrans", "translate"])


class _RefusalError(Exception):
    """The template itself refused, or went over its budget."""


class _Budget:
    """What one rendering may still cost."""

    def __init__(self) -> None:
        self.left, self.deadline = MAX_COST, thread_time() + MAX_SECONDS

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0 or thread_time() > self.deadline:
            raise _RefusalError("it takes too long or makes too much text")


_budget: ContextVar[_Budget] = ContextVar("budget")


def _spend(cost: int) -> None:
    _budget.get().spend(cost)


def _paid(value: Any) -> Any:
    """A value just made, paid for by its length."""
    _spend(_extent(value) if isinstance(value, (str, list, tuple, dict)) else 1)
    return value


def _turns(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _spend(STEP_COST)
        yield item


def _joined(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _spend(sum(map(len, texts)))
    return "".join(texts)


def _raise(message: str) -> NoReturn:
    raise _RefusalError(message)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    return _paid(json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys))


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says; it matters in training only, the text is the same."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Metered(NodeTransformer):
    """Puts the meter into loops and into the joining of strings, which call nothing that could be watched."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        if node.recursive:
            raise _RefusalError("recursive loops are not supported")
        node.iter = nodes.Call(nodes.ImportedName(f"{__name__}._turns"), [node.iter], [], None, None)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.ImportedName(f"{__name__}._joined"), node.nodes, [], None, None)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        extensions = ["jinja2.ext.loopcontrols", _Generation]
        # not optimized: constant expressions would be computed while compiling, outside of the budget
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, optimized=False)
        self.filters = {name: _metered(name, f) for name, f in self.filters.items()} | {"tojson": _to_json}
        kept: dict[str, Any] = {n: self.globals[n] for n in ("range", "dict", "namespace", "cycler", "joiner")}
        self.globals = kept | {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Metered().visit(super()._parse(source, name, filename))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in UNSAFE and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Any:
        if (wrapped := super().wrap_str_format(value)) is not None:
            _check_format(value.__self__)
        return wrapped

    def call(self, context: Any, callee: Any, *args: Any, **kwargs: Any) -> Any:  # pyrefly: ignore
        _spend(STEP_COST)
        if getattr(callee, "__name__", "") in STRETCHING:
            _stretch(getattr(callee, "__self__", None), [*args, *kwargs.values()])
        return _paid(super().call(context, callee, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            _spend(_extent(left) + _extent(right) if isinstance(left, (str, list, tuple)) else 1)
        if operator in ("*", "**") and not isinstance(left, float):
            _stretch(left if operator == "*" else "." * 64, [right])
        if operator == "%":
            _check_format(left)
        return _paid(super().call_binop(context, operator, left, right))


def _metered(name: str, function: Any) -> Any:
    @functools.wraps(function)  # with the marks that tell what else to pass
    def metered(*args: Any, **kwargs: Any) -> Any:
        _spend(STEP_COST)
        if name in STRETCHING:
            values = [*args, *kwargs.values()][hasattr(function, "jinja_pass_arg") :]
            _stretch(values[0], values[1:])
            _check_format(values[0] if name == "format" else "")
        return _paid(function(*args, **kwargs))

    return metered


def _extent(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple, dict)):
        return len(value) * ITEM_COST
    return abs(value) if isinstance(value, int) else 1


def _stretch(first: Any, others: Iterable[Any]) -> None:
    _spend(_extent(first) * sum(map(_extent, others)))


def _check_format(form: Any) -> None:
    if isinstance(form, str) and re.search(r"\d{7}|%[^%a-zA-Z]*\*", form):
        raise _RefusalError("a format asks for a very large width")


class ChatTemplate:
    """A template, compiled once; see `render`."""

    def __init__(self, source: str) -> None:
        self.source = source

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """The text of a conversation; `variables` are what the template may use besides `messages`.

        Raises InputError when the template is not valid, refuses the conversation, or goes over its budget.
        """
        token = _budget.set(_Budget())
        try:
            compiled = _compile(self.source)
            copies = [dict(message) for message in messages]
            return "".join(_paid(piece) for piece in compiled.generate(messages=copies, **variables))
        except _RefusalError as error:
            raise InputError(f"the chat template refuses: {error}") from None
        except jinja2.TemplateSyntaxError as error:
            raise InputError(f"the chat template is not valid in line {error.lineno}: {error.message}") from None
        except RecursionError:
            raise InputError("the chat template is nested too deeply") from None
        except Exception as error:  # noqa: BLE001 - a program of someone else may fail in any way
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"the chat template fails on these messages ({reason}); check their keys") from None
        finally:
            _budget.reset(token)


@functools.lru_cache(maxsize=16)
def _compile(source: str) -> jinja2.Template:
    if len(source) > MAX_SOURCE:
        raise _RefusalError(f"it has {len(source)} characters, at most {MAX_SOURCE} are accepted")
    return _Environment().from_string(source)
