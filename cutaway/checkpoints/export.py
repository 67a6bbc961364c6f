"""Which family of checkpoints can hold a spec: its configuration is written, read back, and must be the same model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf, families
from cutaway.checkpoints.forms import Form, Way, forms, states_alone, without_pooler
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError, SpecError

LISTED = 8


@dataclass(frozen=True)
class Place:
    """A tensor of theirs: the rule that writes it, and its shape."""

    rule: Rule
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.rule.theirs


@dataclass(frozen=True)
class Target:
    """A family's answer: `config` is config.json or the keys of a GGUF file; `form` is the spec that it says."""

    label: str
    config: dict[str, Any]
    form: Form
    places: list[Place]


@dataclass(frozen=True)
class Translation:
    """One family or architecture, as far as writing needs it: `write` and `rules` take models of its `kind`."""

    names: tuple[str, ...]
    kind: type[Any] | tuple[type[Any], ...]
    write: Callable[[Any], dict[str, Any]]
    read: Callable[[Config], spec.Model]
    rules: Callable[[Any], list[Rule]]
    tolerance: float = 1e-9


def fit_hf(record: spec.Model, prefer: str = "") -> Target:
    """config.json and tensors for a spec; `prefer` is the model type that is tried first.

    Raises CheckpointError with the list of what does not fit where no family can hold the spec.
    """
    each = [
        Translation(
            family.model_types,
            family.kind,
            family.to_config,
            lambda config, family=family: _read_hf(family, config),
            family.rules,
        )
        for family in families()
    ]
    return _fit(record, each, prefer, "Hugging Face family", states_alone)


def fit_gguf(record: spec.Model, prefer: str = "") -> Target:
    """Keys of GGUF and tensors for a spec; `prefer` is the architecture, or the model type, that is tried first."""
    if isinstance(record, spec.EncoderDecoder):
        raise CheckpointError("an encoder-decoder cannot be written as GGUF here; write a Hugging Face folder")
    each = [
        Translation(
            (gguf.architecture, *family.model_types),
            (spec.Decoder, spec.Encoder),
            gguf.to_keys,
            lambda config, gguf=gguf: _read_gguf(gguf, config),
            gguf.rules,
            2e-7,
        )
        for family in families()
        for gguf in family.gguf
    ]
    return _fit(record, each, prefer, "GGUF architecture", without_pooler)


def _read_hf(family: Family[Any], config: Config) -> spec.Model:
    if config.data.get("model_type") not in family.model_types:
        raise CheckpointError(f"{config.where}: model_type {config.data.get('model_type')!r} is not the family's")
    record = family.to_spec(config)
    config.ignore(hf.BOOKKEEPING | family.ignored_keys)
    config.finish()
    return record


def _read_gguf(gguf: Gguf, config: Config) -> Stack:
    record = gguf.to_spec(config)
    unused = [key for key in config.data if key not in config.used]
    for key in unused:  # the reader needs no such key, so the file has none
        del config.data[key]
    return record


def _fit(record: spec.Model, all_: list[Translation], prefer: str, what: str, way: Way) -> Target:
    """The target that was preferred; else one that many programs read, in the form with the fewest changes."""
    ordered = sorted(all_, key=lambda each: prefer not in each.names)
    common = {name for family in families() if family.gguf for name in family.model_types}
    if not all(stack.blocks for stack in spec.stacks(record).values()):
        raise CheckpointError(f"no {what} can hold this model: it has no layers; keep it in Cutaway's own format")
    found: list[Target] = []
    unfit: list[tuple[tuple[bool, bool, int], list[str]]] = []
    for form in forms(record, way):
        for each in ordered:
            answer = _try(form, each)
            if isinstance(answer, Target):
                if prefer in each.names:
                    return answer
                found.append(answer)
            elif answer:
                lines = [answer] if isinstance(answer, str) else answer
                words = [f"nearest is {each.names[0]}, but {lines[0]}", *lines[1:]]
                unfit.append(((prefer not in each.names, isinstance(answer, str), len(lines)), words))
    if found:
        return min(found, key=lambda one: (one.label not in common, len(one.form.said), len(one.config)))
    reason = "; ".join(_shortened(min(unfit)[1])) if unfit else "none is a model of this kind"
    raise CheckpointError(f"no {what} can hold this model: {reason}; keep it in Cutaway's own format")


def _try(form: Form, each: Translation) -> Target | list[str] | str:
    """The translation's answer, or in words what it would say otherwise, or why it can say nothing."""
    if not isinstance(form.record, each.kind):
        return ""
    try:
        rules = each.rules(form.record)
        places = list(_places(form.record, rules))
        data = json.loads(json.dumps(each.write(form.record)))
        config = Config(data, each.names[0], lambda: [place.name for place in places])
        back = each.read(config)
        differing = spec.differences(form.record, back, each.tolerance)
    except (CheckpointError, SpecError) as error:
        return str(error)
    if differing and differing[0][0] == "kind":
        return []
    if differing:
        return [f"{where} is {_word(ours)}, there {_word(theirs)}" for where, ours, theirs in differing]
    done = {name for place in places for name in place.rule.ours}
    if homeless := sorted(set(spec.weights(form.record)) - done):
        return [f"the tensor {name} has no name there" for name in homeless]
    return Target(config.data.get("model_type", each.names[0]), config.data, form, places)


def _places(record: spec.Model, rules: Iterable[Rule]) -> Iterable[Place]:
    """Each of our tensors once, by the first rule that names it."""
    shapes, done = spec.weights(record), set()
    for rule in rules:
        if all(name in shapes for name in rule.ours) and not done.issuperset(rule.ours):
            done.update(rule.ours)
            try:
                theirs = rule.write([torch.empty(shapes[name], device="meta") for name in rule.ours])
            except RuntimeError:
                raise CheckpointError(f"{', '.join(rule.ours)} cannot become {rule.theirs}") from None
            yield Place(rule, tuple(theirs.shape))


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {more} more"] if more > 0 else [])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "present" if isinstance(value, dict) else str(value)  # a stage or branch that the other side lacks
