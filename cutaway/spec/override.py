"""`--set path=value`: change fields of a spec by name; the result is validated and checked as if written so."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from cutaway.errors import SpecError
from cutaway.spec.block import BRANCH_NAMES, Branch
from cutaway.spec.checks import check
from cutaway.spec.explain import nearest
from cutaway.spec.fields import RecordClass, below, field_of, item, kind_of, kinds, members
from cutaway.spec.files import parse
from cutaway.spec.model import Model, Spec
from cutaway.spec.record import plain_value

BRANCHES = frozenset(BRANCH_NAMES.values())
OF_A_STACK = ("n_layers", "blocks")  # names that a stack answers to beside its fields


def set_values(spec: Model, values: Mapping[str, Any]) -> Model:
    """The spec with each path set to its value, a text being read as TOML (a bare word is a word), in the given order.

    A path's segment names a field of the record reached so far, an item of a list (its number, or `*` for all), a
    branch (`attn`, `cross`, `ffn`), or else every field or branch of that name below: `n_heads=8` reaches every
    attention. `n_layers` sets the repeats; `blocks.3` is the fourth layer as it runs, a repeat written out for it.
    `kind` switches a union and keeps the fields that both kinds share. `positions.kind` of a whole stack or model
    leaves one kind: a relative one removes the absolute and the other way round; a learned table gets context_length
    rows. Raises SpecError with the nearest right path, and for what `check` finds.
    """
    data = {"": spec.plain(full=True)}
    root = _Place(data, "", Spec, data[""])
    for path, value in values.items():
        _assign(root, path, value)
    for stack in _stacks(data[""]):
        stack["layers"] = _folded(_sound(stack["layers"]))
    changed = parse(data[""])
    check(changed)
    return changed


class _Place(NamedTuple):
    """Where a value is held, what may stand there, and the nearest stack around it."""

    holder: Any
    key: Any
    annotation: Any
    stack: dict[str, Any]

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    @property
    def record(self) -> RecordClass | None:
        """The class of the record that stands here."""
        return kinds(self.annotation).get(self.value.get("kind", "")) if isinstance(self.value, dict) else None

    def field(self, name: str) -> _Place:
        """A field of the record that stands here."""
        assert self.record is not None
        stack = self.value if "layers" in self.record.model_fields else self.stack
        return _Place(self.value, name, field_of(self.record, name), stack)

    def children(self) -> list[_Place]:
        """The fields of the record, or the items of the list, that stand here."""
        if self.record is not None:
            return [self.field(name) for name in self.record.model_fields if name in self.value]
        inner = item(self.annotation)
        if inner is None or not isinstance(self.value, list):
            return []
        return [_Place(self.value, index, inner, self.stack) for index in range(len(self.value))]


def _assign(root: _Place, path: str, value: Any) -> None:
    *steps, last = path.split(".")
    places = [root]
    for step in steps:
        places = _follow(places, step, path)
    if last == "kind":
        _set_kind(places, _read(value, str), path, apart=steps[-1:] != ["positions"])
        return
    for target in _follow(places, last, path):
        if last == "n_layers":
            _set_n_layers(target.holder, _read(value, int), path)
        else:
            target = target.field("part") if last in BRANCHES else target
            target.holder[target.key] = _read(value, target.annotation)


def _follow(places: list[_Place], step: str, path: str) -> list[_Place]:
    found = [after for place in places for after in _step(place, step)]
    if not found:
        raise SpecError(f"{path}: {_lost(places, step)}")
    return found


def _step(place: _Place, name: str) -> list[_Place]:
    """The places that a segment of a path leads to from here."""
    if isinstance(place.value, list) and (name == "*" or name.isdecimal()):
        items = place.children()
        return items if name == "*" else items[int(name) : int(name) + 1]
    own = _own(place, name)
    if own:
        return own
    if place.record is Branch:
        return _step(place.field("part"), name)
    return [found for child in place.children() for found in _search(child, name)]


def _own(place: _Place, name: str) -> list[_Place]:
    """A field of the record here, or what a stack answers to."""
    record = place.record
    if record is not None and name in record.model_fields:
        return [place.field(name)]
    if record is not None and name in OF_A_STACK and "layers" in record.model_fields:
        if name == "blocks":
            place.value["layers"] = _written_out(place.value["layers"])
        return [place.field("layers")]
    return []


def _search(place: _Place, name: str) -> Iterator[_Place]:
    """Every field or branch of that name here or below."""
    own = _own(place, name)
    yield from own
    if place.record is Branch and BRANCH_NAMES[place.value["part"]["kind"]] == name:
        yield place
    if not (own and name in OF_A_STACK):
        for child in place.children():
            yield from _search(child, name)


def _lost(places: list[_Place], step: str) -> str:
    """Why a segment leads nowhere, and what would lead further."""
    lists = [place.value for place in places if isinstance(place.value, list)]
    if lists and step.isdecimal():
        return f"no item {step}; there are {len(lists[0])}, counted from 0"
    records = tuple(dict.fromkeys(place.record for place in places if place.record is not None))
    inner = [item(place.annotation) for place in places]
    records += tuple(record for each in inner if each is not None for record in kinds(each).values())
    known = below(*records)
    if step in BRANCHES:
        return f"no layer here has a branch '{step}'"
    if step in known:
        owners = ", ".join(dict.fromkeys(kind_of(record) or record.__name__ for _, record in known[step]))
        return f"nothing here has '{step}'; it belongs to {owners}: set the kind first"
    if not known:
        return f"'{step}' leads into a plain value"
    close = nearest(step, set(known) | BRANCHES | set(OF_A_STACK), cutoff=0.5)
    own = sorted({name for record in records for name in record.model_fields})
    hint = f"the nearest right one is '{close}'" if close else f"here are {', '.join(own)}"
    return f"no field or branch is named '{step}'; {hint}"


def _set_kind(places: list[_Place], kind: str, path: str, apart: bool) -> None:
    """Switch the record at each place; unless `apart`, a place that has no such kind loses what it has."""
    places = [place.field("part") if place.record is Branch else place for place in places]
    fitting = [place for place in places if kind in kinds(place.annotation)]
    options = dict.fromkeys(name for place in places for name in kinds(place.annotation) if name)
    if not fitting or (apart and len(fitting) < len(places)):
        if not options:
            raise SpecError(f"{path}: there is no kind to set here")
        close = nearest(kind, options, cutoff=0.5)
        hint = f"; the nearest is '{close}'" if close and close != kind else ""
        where = "at every place reached" if kind in options else f"of {', '.join(options)}"
        raise SpecError(f"{path}: '{kind}' is not one {where}{hint}")
    for place in places:
        if place in fitting:
            _switch(place, kind)
        elif "none" in kinds(place.annotation):
            _switch(place, "none")


def _switch(place: _Place, kind: str) -> None:
    """Another kind of record in this place: shared fields are kept where they fit, the others get their defaults."""
    old, record = place.value, kinds(place.annotation)[kind]
    if old.get("kind") == kind:
        return
    new: dict[str, Any] = {"kind": kind}
    for name, field in record.model_fields.items():
        if name == "kind":
            continue
        if name in old and _valid(record, name, old[name]):
            new[name] = old[name]
        elif not field.is_required():
            new[name] = plain_value(field.get_default(call_default_factory=True), full=True)
    if kind == "learned" and isinstance(place.stack.get("context_length"), int):
        new.setdefault("n_positions", place.stack["context_length"])
    if kind == "t5" and place.holder.get("mask", {}).get("kind") in ("full", "two_sided"):
        new["bidirectional"] = True
    place.holder[place.key] = new


def _set_n_layers(stack: dict[str, Any], n_layers: int, path: str) -> None:
    layers: list[Any] = _folded(_sound(stack["layers"]))
    repeats = [layer for layer in layers if layer["kind"] == "repeat"]
    if not isinstance(n_layers, int) or n_layers < 0:
        raise SpecError(f"{path}: {n_layers!r} is not a number of layers")
    if n_layers == 0:
        stack["layers"] = []
        return
    if len(layers) == 1 and not repeats:
        repeats = layers = [dict[str, Any](kind="repeat", times=1, blocks=layers)]
    if not layers:
        raise SpecError(f"{path}: there is no layer to repeat; write the list of layers")
    if len(repeats) != 1:
        raise SpecError(f"{path}: the layers differ, so a number does not say which; write the list of layers")
    pattern, rest = len(repeats[0]["blocks"]), len(layers) - 1
    times, left = divmod(n_layers - rest, pattern)
    if left or times < 1:
        raise SpecError(f"{path}: {n_layers} layers do not fit; legal: {rest} and any multiple of {pattern} more")
    repeats[0]["times"] = times
    stack["layers"] = layers


def _stacks(root: dict[str, Any]) -> list[dict[str, Any]]:
    found = (root, root.get("encoder"), root.get("decoder"))
    return [stack for stack in found if isinstance(stack, dict) and "layers" in stack]


def _sound(layers: Any) -> list[Any]:
    """The layers as they are; raises SpecError where a value in their place is no list of them."""
    for layer in layers if isinstance(layers, list) else [layers]:
        match layer:
            case {"kind": "block"} | {"kind": "repeat", "times": int(), "blocks": [*_]}:
                continue
        raise SpecError(f"layers: {str(layer)[:40]!r} is neither a block nor a repeat of blocks; give a list of these")
    return layers


def _written_out(layers: list[Any]) -> list[Any]:
    """Each layer a block of its own."""
    out: list[Any] = []
    for layer in _sound(layers):
        blocks = layer["blocks"] * layer["times"] if layer["kind"] == "repeat" else [layer]
        out += json.loads(json.dumps(blocks))  # apart, so that a change to one leaves the others
    return out


def _folded(layers: list[Any]) -> list[Any]:
    """Equal blocks in a row as one repeat."""
    out: list[Any] = []
    for layer in layers:
        last = out[-1] if out else None
        if layer["kind"] == "repeat" or last is None:
            out.append(layer)
        elif last["kind"] == "repeat" and last["blocks"] == [layer]:
            out[-1] = last | {"times": last["times"] + 1}
        elif last == layer:
            out[-1] = {"kind": "repeat", "times": 2, "blocks": [layer]}
        else:
            out.append(layer)
    return out


def _read(value: Any, annotation: Any) -> Any:
    """The value of a text as TOML reads it; a bare word, or any text where only a text may stand, is taken as it is."""
    if not isinstance(value, str) or members(annotation) == (str,):
        return value
    try:
        read = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    return read["value"] if set(read) == {"value"} else value


def _valid(record: RecordClass, name: str, value: Any) -> bool:
    try:
        _adapter(record, name).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True


@cache
def _adapter(record: RecordClass, name: str) -> TypeAdapter[Any]:
    field = record.model_fields[name]
    annotation: Any = field.annotation
    return TypeAdapter(Annotated[annotation, field])
