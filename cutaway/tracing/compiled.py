"""A model and some of its tensors as one compiled graph: a recording that runs at the speed of compiled code."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Transformer
from cutaway.models.example import example
from cutaway.models.stack import Stack
from cutaway.parts.embedding import position_vectors
from cutaway.parts.head import readable
from cutaway.parts.inputs import check_memory
from cutaway.parts.slots import Cache
from cutaway.parts.step import NOTHING, Given, Memory, Step
from cutaway.tap import check_model, listening, matcher, with_taps
from cutaway.tracing.answered import check_answered
from cutaway.tracing.names import ours
from cutaway.tracing.record import POSITIONS, WHOLE, Recording, Taken
from cutaway.tracing.stacks import owner_of


class CompiledRecording:
    """`run(ids, given, cache, last)` gives what the model gives, and the Recording of the taps named when it was made.

    `record` leaves compiled code for the forwards; here the taps are part of the graph. The compiler may fuse what lies
    between them, so last bits may differ from `record`. A graph serves all sizes and all tokens that are decoded with a
    cache, but that a single row, a single token, a cache of none or one, and padding each take one of their own, and is
    made when it is first needed. Weights stay the model's: what is loaded into it, or trained, is seen. `encode` does
    for the source of an encoder-decoder what a call does for its target. While somebody listens, the model runs as it
    is. `backend` is torch.compile's; its own, inductor, needs a C++ compiler.

    Raises InputError for a name that no tap has, for one inside an expert, which compiled code runs on all tokens, and
    for what torch cannot compile whole.

    >>> import torch, cutaway
    >>> from cutaway.tracing.compiled import CompiledRecording
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> run = CompiledRecording(model, "blocks[-1].attn.pattern", backend="eager")
    >>> logits, recording = run(torch.tensor([[1, 2, 3]]))
    >>> tuple(logits.shape), tuple(recording["blocks.1.attn.pattern"].shape)
    ((1, 3, 256), (1, 4, 3, 3))
    """

    def __init__(
        self, model: Transformer, *names: str, taken: Taken = WHOLE, backend: str | Callable[..., Any] = "inductor"
    ) -> None:
        check_model(model)
        if not isinstance(model, Transformer):
            raise InputError(f"model: a {type(model).__name__}; give the model itself, as `build` makes it")
        if taken.gradients:
            raise InputError("record: compiled code gives no gradients of what is inside; use `cutaway.record`")
        self.model, self.names, self.taken, self.backend = model, _chosen(model, names), taken, backend
        self.graphs: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def __call__(
        self, ids: Tensor, given: Given = NOTHING, cache: Cache | None = None, last: bool = False
    ) -> tuple[Tensor, Recording]:
        """Raises InputError for what does not fit the model."""
        _check(self.model, ids, given, cache)
        kind = False, cache is None, given.mask is None, self.model.training, torch.is_grad_enabled()
        return self._run(kind, self.model, ids, given, cache, last)

    def encode(self, source: Tensor, given: Given = NOTHING) -> tuple[Memory, Recording]:
        """`model.encode`, with the tensors of the encoder. Raises InputError for what does not fit it."""
        if not isinstance(self.model, EncoderDecoder):
            raise InputError("encode: the model has no encoder of its own; call the recording on the ids")
        _begun(self.model.encoder, source, given, None)
        kind = True, given.mask is None, self.model.training, torch.is_grad_enabled()
        return self._run(kind, self.model.encode, source, given)

    def _run(self, kind: tuple[bool, ...], call: Callable[..., Any], *inputs: Any) -> tuple[Any, Recording]:
        graph = self.graphs.get(kind) or self.graphs.setdefault(kind, _compiled(self.backend))
        try:
            out, taken = graph(self.model, call, self.names, self.taken.reduce, inputs)
        except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as e:
            why = " ".join(line.strip() for line in str(e.__cause__ or e).splitlines()[:2])
            raise InputError(f"record: torch does not compile this: {why}; use `cutaway.record`") from e
        run = Recording(reduced=self.taken.reduce is not None)
        kept = replace(self.taken, reduce=None)
        run.taken = {name: [x if name in POSITIONS else kept.of(x)] for name, x in taken.items()}
        return out, run


class Steps:
    """A compiled recording in its model's place: it gives what the model gives, and joins what each call records.

    A prompt and all its tokens take two graphs (three for a prompt of one token), which other prompts use again.

    >>> import cutaway
    >>> from cutaway.tracing.compiled import CompiledRecording, Steps
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> steps = Steps(CompiledRecording(model, "blocks.0.attn.k", backend="eager"))
    >>> options, fixed = cutaway.spec.Generation(max_tokens=4), cutaway.Run(cache="fixed", forward=steps)
    >>> result = cutaway.generate(model, [[1, 2, 3]], options, fixed)
    >>> steps.recording.n_steps, tuple(steps.recording["blocks.0.attn.k"].shape)
    (4, (1, 4, 6, 16))
    """

    def __init__(self, run: CompiledRecording) -> None:
        self.run = run
        self.taken: list[Recording] = []

    def __call__(self, ids: Tensor, given: Given = NOTHING, cache: Cache | None = None, last: bool = False) -> Tensor:
        return self._noted(self.run(ids, given, cache, last))

    def encode(self, source: Tensor, given: Given = NOTHING) -> Memory:
        return self._noted(self.run.encode(source, given))

    @property
    def recording(self) -> Recording:
        """Of all calls so far."""
        return joined(self.taken)

    def _noted(self, made: tuple[Any, Recording]) -> Any:
        self.taken.append(made[1])
        return made[0]


def joined(steps: Iterable[Recording]) -> Recording:
    """Recordings of calls that go on from each other with one cache, as one recording of several steps."""
    run = Recording()
    for step in steps:
        run.reduced = step.reduced
        for name, tensors in step.taken.items():
            run.taken.setdefault(name, []).extend(tensors)
    return run


def _forward(
    model: Transformer, call: Callable[..., Any], names: tuple[str, ...], reduce: Callable[[Tensor], Tensor] | None,
    inputs: tuple[Any, ...],
) -> tuple[Any, dict[str, Tensor]]:  # fmt: skip
    """What `call` gives and the taps with these names: the function that is compiled."""
    if is_dynamo_compiling():
        out, heard = with_taps(lambda: call(*inputs), {owner_of(model, name): name for name in names})
    else:
        heard = {}
        with listening(model, lambda name, x: heard.update({name: x}), *names):
            out = call(*inputs)
    taken = {name: x.detach() for name, x in heard.items()}
    if reduce is not None:
        taken = {name: x if name in POSITIONS else reduce(x) for name, x in taken.items()}
    return out, taken


def _compiled(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """`_forward`, compiled apart from other recordings: torch keeps graphs, and limits their number, by code."""
    own = types.FunctionType(_forward.__code__.replace(), globals())
    return torch.compile(own, fullgraph=True, dynamic=True, backend=backend)


def _chosen(model: Transformer, names: tuple[str, ...]) -> tuple[str, ...]:
    """The taps that are meant, by one token that is read, and the positions. Raises InputError for what has no tap."""
    found: list[str] = []
    device = next(model.parameters()).device
    devices, read = [device] if device.type == "cuda" else [], example(model.spec, 1).to(device)
    drawn = torch.random.fork_rng(devices)  # in training, tensors are dropped out
    with drawn, torch.no_grad(), listening(model, lambda name, x: found.append(name)):
        memory = model.encode(read) if isinstance(model, EncoderDecoder) else None
        model(read, Given(memory=memory))
    patterns = [ours(name) for name in names]
    meant = matcher(patterns, [path for path, _ in model.named_modules()])
    chosen = tuple(name for name in found if name in POSITIONS or meant(name))
    inside = next((name for name in (*patterns, *chosen) if ".experts." in name), None)
    if inside is not None:
        raise InputError(
            f"record: {inside}: compiled code runs each expert on all tokens, not on those routed to it; name taps "
            "outside the experts, or use `cutaway.record`"
        )
    check_answered(model, names, dict.fromkeys(found))
    return chosen


def _check(model: Transformer, ids: Tensor, given: Given, cache: Cache | None) -> None:
    """Raise what the model raises: compiled code does not look at values."""
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    step = _begun(stack, ids, given, cache)
    if isinstance(model, EncoderDecoder):
        check_memory(given.memory, ids, model.spec.d_model)
        if given.memory is None and (cache is None or not cache.length):
            raise InputError("memory: there is nothing to look at; give `Given(memory=...)` of what `encode` returned")
    head = model.spec.head
    if isinstance(head, (spec.ClassHead, spec.VectorHead)) and spec.pools(head):
        readable(head, step)


def _begun(stack: Stack, ids: Tensor, given: Given, cache: Cache | None) -> Step:
    step = stack.begin(ids, given, cache)
    positions = stack.embedding.record.positions
    if isinstance(positions, spec.Learned):
        position_vectors(positions, stack.embedding.positions, step, stack.embedding.width)
    return step
