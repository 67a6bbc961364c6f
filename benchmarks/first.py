"""Decode, prefill, load and memory on SmolLM2 beside transformers: alternating rounds, medians, one thread."""

from __future__ import annotations

import json
import statistics
import time

import torch
import transformers

import cutaway
from cutaway import spec
from cutaway.checkpoints.pull import pull
from cutaway.generation.loop import generate

ROUNDS, NEW, PROMPT = 5, 32, 512


def ours(model, ids):
    result = generate(model, [ids], spec.Generation(max_tokens=NEW))
    return len(ids) / result.timing.prefill, result.timing.tokens_per_second


def theirs(model, ids):
    x = torch.tensor([ids])
    with torch.no_grad():
        start = time.perf_counter()
        out = model(x, use_cache=True, logits_to_keep=1)
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(NEW - 1):
            token = out.logits[:, -1:].argmax(-1)
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
        return len(ids) / prefill, (NEW - 1) / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    path = pull("smollm2")
    start = time.perf_counter()
    mine = cutaway.load("smollm2").model
    figures = {"load_s": time.perf_counter() - start}
    start = time.perf_counter()
    peer = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    figures["load_s_transformers"] = time.perf_counter() - start
    ids = torch.randint(0, 49000, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    for dtype in (torch.float32, torch.bfloat16):
        mine, peer = mine.to(dtype), peer.to(dtype)
        rounds = [(ours(mine, ids), theirs(peer, ids)) for _ in range(ROUNDS)]
        name = str(dtype).removeprefix("torch.")
        for at, what in enumerate(("prefill", "decode")):
            a, b = (statistics.median(r[side][at] for r in rounds[1:]) for side in (0, 1))
            figures[f"{what}_{name}"], figures[f"{what}_{name}_transformers"] = a, b
            print(f"{what:8} {name:9} {a:8.1f} tokens/s, transformers {b:8.1f}, ratio {a / b:.2f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
