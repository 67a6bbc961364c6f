"""SmolLM2-135M beside transformers, one thread: load, prefill, decode and memory, in alternating rounds.

Command: `make bench`. Each figure is the median of the rounds after the first; a ratio is the median of the rounds'
ratios, so a neighbour's load falls on both. `limit`: what the machine itself allows, from reading all weights once
(decode) and from one large product (prefill). The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import torch
import transformers

import cutaway
from cutaway import spec
from cutaway.checkpoints.pull import pull
from cutaway.generation import generate

ROUNDS, NEW, PROMPT = 7, 24, 512

MEMORY = """
import re, sys, torch
torch.set_num_threads(1)
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
bare = peak()
import cutaway
model = cutaway.load("smollm2", getattr(torch, sys.argv[1]))
model.generate("The capital of France is", max_tokens=8)
weights = sum(each.nbytes for each in model.model.parameters())
print((peak() - bare) / weights)
"""


def ours(model, ids):
    timing = generate(model, [ids], spec.Generation(max_tokens=NEW)).timing
    return len(ids) / timing.prefill, timing.tokens_per_second


@torch.inference_mode()
def theirs(model, ids):
    start = time.perf_counter()
    out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    token = out.logits[:, -1:].argmax(-1)
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(NEW - 1):
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
    return len(ids) / prefill, (NEW - 1) / (time.perf_counter() - start)


def one_round(mine, peer, ids, peer_first):
    """Both, each first in every second round: memory that one has freed is quick to have for the next."""
    if peer_first:
        second = theirs(peer, ids)
        return ours(mine, ids), second
    return ours(mine, ids), theirs(peer, ids)


def limit(model, dtype):
    """Tokens a second that the machine allows: by its matrix rate for a prompt, by its memory for one token."""
    a = torch.randn(1024, 1536).to(dtype)
    start = time.perf_counter()
    for _ in range(4):
        a @ a.T
    rate = 4 * 2 * 1024 * 1024 * 1536 / (time.perf_counter() - start)
    weights = list(model.parameters())
    start = time.perf_counter()
    for each in weights:
        each.sum()
    return rate / (2 * sum(each.numel() for each in weights)), 1 / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    path = pull("smollm2")
    ids = torch.randint(0, 49000, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    figures = {}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        start = time.perf_counter()
        mine = cutaway.load("smollm2", dtype).model
        figures[f"load_s_{name}"] = time.perf_counter() - start
        start = time.perf_counter()
        peer = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype).eval()
        figures[f"load_s_{name}_transformers"] = time.perf_counter() - start
        memory = subprocess.run([sys.executable, "-c", MEMORY, name], capture_output=True, text=True, check=True)
        figures[f"peak_over_weights_{name}"] = float(memory.stdout)
        rounds = [one_round(mine, peer, ids, peer_first=i % 2 == 0) + (limit(mine, dtype),) for i in range(ROUNDS)][1:]
        print(f"{name}: load {figures[f'load_s_{name}']:.2f} s", end="")
        print(f" (transformers {figures[f'load_s_{name}_transformers']:.2f} s),", end="")
        print(f" peak memory {figures[f'peak_over_weights_{name}']:.2f} x the weights")
        for at, what in enumerate(("prefill", "decode")):
            a, b, most = (statistics.median(each[side][at] for each in rounds) for side in range(3))
            ratio = statistics.median(mine[at] / peer[at] for mine, peer, _ in rounds)
            figures |= {f"{what}_{name}": a, f"{what}_{name}_transformers": b, f"{what}_{name}_ratio": ratio}
            print(f"  {what:8}{a:8.1f} tokens/s, transformers {b:8.1f}, ratio {ratio:.2f}, limit {most:8.1f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
