"""What a tap costs, unheard and heard, beside the hooks of TransformerLens and the traces of nnsight; one thread.

Command: `make bench`. The three run the same shape: 12 of GPT-2's blocks with random weights, narrow, so that the cost
of a tap is not lost in the products. Unheard: one call of the line, alone. Heard: a forward of which n tensors are
kept, less one that keeps none, over n, entering and leaving included; each kept by a listener (a hook) of ours, by
`record`, by `run_with_cache` and by `save`. All in turns, each after a forward that keeps none; the median of the
rounds after the first two, in seconds of the processor, so that neighbours count little. nnsight puts its hooks in
while it traces and has nothing to call before. The last line is JSON.

Peers are those of the extra `bench`; where one is not installed a line says so.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import cutaway
from cutaway import spec
from cutaway.tap import tap

LAYERS, HEADS, WIDTH, VOCABULARY, TOKENS = 12, 12, 48, 512, 2
ROUNDS, FORWARDS, CALLS = 12, 15, 20000
NAMES = ("resid_pre", "attn.q", "attn.k", "attn.v", "attn.z", "attn.out", "resid_mid", "ffn.pre", "ffn.hidden")
HOOKS = ("hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "hook_attn_out",
         "hook_resid_mid", "mlp.hook_pre", "mlp.hook_post")  # fmt: skip
MODULES = ("ln_1", "attn.c_attn", "attn.c_proj", "attn", "ln_2", "mlp.c_fc", "mlp.act", "mlp.c_proj", "mlp")
Run = Callable[[int], Any]


def mine(recorded: bool) -> tuple[Run, Run | None]:
    """A forward of which n tensors are kept, and n calls of a tap that nobody hears."""
    record = spec.set_values(
        spec.preset("gpt2"),
        {
            "n_layers": LAYERS,
            "d_model": WIDTH,
            "n_heads": HEADS,
            "d_ff": 4 * WIDTH,
            "vocab_size": VOCABULARY,
            "generation.stop_ids": [],
        },
    )
    model = cutaway.build(record, seed=0).eval()
    ids = torch.arange(TOKENS)[None]
    names = [f"blocks.{i}.{name}" for i in range(LAYERS) for name in NAMES]

    def run(n: int) -> Any:
        if not n:
            return model(ids)
        if recorded:
            with cutaway.record(model, *names[:n]) as taken:
                model(ids)
            return taken.taken
        kept = []
        with cutaway.listening(model, lambda name, x: kept.append(x), *names[:n]):
            model(ids)
        return kept

    def calls(n: int) -> None:
        module, x = model.blocks[0], torch.zeros(1)
        for _ in range(n):
            tap(module, "resid_pre", x)

    return run, None if recorded else calls


def transformer_lens() -> tuple[Run, Run]:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.hook_points import HookPoint

    config = HookedTransformerConfig(
        n_layers=LAYERS, d_model=WIDTH, n_ctx=1024, d_head=WIDTH // HEADS, n_heads=HEADS, d_vocab=VOCABULARY,
        act_fn="gelu_new", normalization_type="LN", device="cpu", seed=0,
    )  # fmt: skip
    model = HookedTransformer(config).eval()
    ids = torch.arange(TOKENS)[None]
    names = [f"blocks.{i}.{name}" for i in range(LAYERS) for name in HOOKS]

    def run(n: int) -> Any:
        if not n:
            return model(ids)
        _, cache = model.run_with_cache(ids, names_filter=names[:n], return_cache_object=False)
        return cache

    def calls(n: int) -> None:
        point, x = HookPoint(), torch.zeros(1)
        for _ in range(n):
            point(x)

    return run, calls


def nnsight() -> tuple[Run, None]:
    from nnsight import NNsight
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0
    )
    plain = GPT2LMHeadModel(config).eval()
    model = NNsight(plain)
    ids = torch.arange(TOKENS)[None]
    places = [(i, name.split(".")) for i in range(LAYERS) for name in MODULES]

    def run(n: int) -> Any:
        if not n:
            return plain(ids)
        chosen, kept = places[:n], []
        with model.trace(ids):
            for i, path in chosen:
                module = model.transformer.h[i]
                for name in path:
                    module = getattr(module, name)
                kept.append(module.output.save())
        return kept

    return run, None


OURS = {"listening": lambda: mine(False), "record": lambda: mine(True)}
PEERS = {"TransformerLens": transformer_lens, "nnsight": nnsight}


def clock(run: Run, n: int) -> float:
    """Seconds of one forward of which n tensors are kept, after one that keeps none."""
    run(0)
    start = time.process_time()
    run(n)
    return time.process_time() - start


def unheard_cost(calls: Run) -> float:
    """Seconds of a tap that nobody hears, the loop around it taken off."""
    start = time.process_time()
    calls(CALLS)
    middle = time.process_time()
    for _ in range(CALLS):
        pass
    return (2 * middle - start - time.process_time()) / CALLS


def share_of_a_step(unheard: float) -> tuple[int, float]:
    """The taps that a float32 step of GPT-2's size passes, and their part of its time."""
    model, count = cutaway.build(spec.preset("gpt2"), seed=0).eval(), 0
    ids = torch.tensor([[5]])

    def hear(name: str, x: torch.Tensor) -> None:
        nonlocal count
        count += 1

    with cutaway.listening(model, hear):
        model(ids)
    step = statistics.median(clock(lambda n: model(ids), 0) for _ in range(9))
    return count, count * unheard / step


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    runs, figures, missing = {}, {}, []
    for name, make in (OURS | PEERS).items():
        try:
            runs[name] = make()
        except ImportError as error:
            missing.append(f"{name} is not installed ({error}): pip install '.[bench]'")
    unheard: dict[str, list[float]] = {name: [] for name in runs}
    heard: dict[tuple[str, int], list[float]] = {(name, n): [] for name in runs for n in (1, 100)}
    for name, (run, _) in runs.items():
        beside = len(run(1)) - 1  # what is recorded whatever is asked for
        assert beside in (0, 1) and len(run(100)) == 100 + beside, name
    for _ in range(ROUNDS):
        for name, (run, calls) in runs.items():
            if calls is not None:
                unheard[name].append(unheard_cost(calls))
            turns = [[clock(run, n) for n in (0, 1, 100)] for _ in range(FORWARDS)]
            bare, one, hundred = (statistics.median(turn[i] for turn in turns) for i in range(3))
            heard[name, 1].append(one - bare)
            heard[name, 100].append((hundred - bare) / 100)
    print(f"{'a tap, in microseconds':24}{'unheard':>10}{'1 heard':>10}{'100 heard':>11}")
    for name in runs:
        row = [statistics.median(unheard[name][2:]) if unheard[name] else 0.0]
        row += [statistics.median(heard[name, n][2:]) for n in (1, 100)]
        figures |= {f"{name}_{n}": value for n, value in zip((0, 1, 100), row, strict=True)}
        print(f"{name:24}{1e6 * row[0]:10.3f}{1e6 * row[1]:10.1f}{1e6 * row[2]:11.2f}")
    for line in missing:
        print(line)
    count, share = share_of_a_step(figures["listening_0"])
    print(f"a step of GPT-2's size passes {count} taps, unheard {100 * share:.3f}% of its time in float32")
    for mine, peer in itertools.product(OURS, runs.keys() & PEERS.keys()):
        ratios = {
            n: statistics.median(a / b for a, b in list(zip(heard[mine, n], heard[peer, n]))[2:]) for n in (1, 100)
        }
        figures |= {f"{mine}_{n}_to_{peer}": ratio for n, ratio in ratios.items()}
        print(f"{mine}, heard, over {peer}: {ratios[1]:.3f} of 1, {ratios[100]:.3f} of 100")
    print(json.dumps(figures | {"taps_a_step": count, "share_of_a_step": share, "missing": len(missing)}))


if __name__ == "__main__":
    main()
