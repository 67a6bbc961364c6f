"""The real model against what its peers computed: tokens, logits, continuations, chat, perplexity."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from cutaway.ablation.surgery import remove
from cutaway.cli.evaluate import total_loss
from cutaway.generation.loop import generate
from cutaway.generation.result import Run


@pytest.fixture(scope="session")
def cases(shared):
    return json.loads((shared / "cases" / "smollm2.json").read_text(encoding="utf-8"))


def test_tokens(smollm2, cases):
    for case in cases["tokenization"]:
        assert smollm2.tokenizer.encode(case["text"]) == case["ids"]
        assert smollm2.tokenizer.decode(case["ids"]) == case["decoded"]
        assert smollm2.tokenizer.encode(case["text"], special=False) == case["special_text_not_parsed_ids"]


def test_chat(smollm2, cases):
    for case in cases["chat"]:
        for key, prompt in (("plain", False), ("with_generation_prompt", True)):
            text = smollm2.tokenizer.render_chat(case["messages"], add_generation_prompt=prompt)
            assert text == case[key]["text"]
            assert smollm2.tokenizer.encode_chat(case["messages"], add_generation_prompt=prompt) == case[key]["ids"]


def test_logits(smollm2, cases):
    for case in cases["logits"]:
        logits = smollm2(torch.tensor([case["ids"]]))[0, -1]
        assert logits.topk(10).indices.tolist() == case["top10_ids"]
        worst = (logits[case["top10_ids"]] - torch.tensor(case["top10_logits"])).abs().max()
        assert worst <= cases["tolerances"]["top10_logits"]
        assert abs(float(logits.mean()) - case["logit_mean"]) < 1e-3


@pytest.mark.parametrize("index", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 5))])
def test_greedy(smollm2, cases, index):
    assert len(cases["greedy"]) == 5
    case = cases["greedy"][index]
    options = smollm2.spec.generation.replace(stop_ids=(), max_tokens=len(case["new_ids"]))
    new = generate(smollm2.model, [smollm2.encode(case["prompt"])], options, Run(chunk=3)).ids[0]
    sure = next((i for i, m in enumerate(case["margins"]) if m <= 0.005), len(new))
    assert new[:sure] == case["new_ids"][:sure]


def test_batch_of_ragged_prompts_equals_single(smollm2, cases):
    prompts = [smollm2.encode(case["prompt"]) for case in cases["greedy"]]
    options = smollm2.spec.generation.replace(stop_ids=(), max_tokens=8)
    together = generate(smollm2.model, prompts, options).ids
    assert together == [generate(smollm2.model, [prompt], options).ids[0] for prompt in prompts]


@pytest.mark.slow
def test_perplexity(smollm2, cases, shared):
    text = (shared / "cases" / cases["perplexity"]["file"]).read_text(encoding="utf-8")
    ids = torch.tensor(smollm2.encode(text)[: cases["perplexity"]["n_tokens"]])
    assert ids[:20].tolist() == cases["perplexity"]["ids_first"]
    shares = smollm2(ids[None])[0, :-1].double().log_softmax(-1)
    loss = -float(shares.gather(-1, ids[1:, None]).mean())
    assert abs(loss - cases["perplexity"]["one_window"]["mean_nll"]) <= cases["tolerances"]["mean_nll"]


@pytest.mark.parametrize("knob", ["positions", "attn", "ffn", "residual", "norm", "final_norm", "scale", "gate"])
def test_removing_a_part_hurts(smollm2, knob):
    ids = smollm2.encode("The capital of France is Paris, and the capital of Italy is Rome.")
    whole, _, _ = total_loss(smollm2, ids)
    without, _, _ = total_loss(replace(smollm2, model=remove(smollm2.model, knob)), ids)
    assert not without <= whole + 0.01 * len(ids), f"{knob}: loss {without} without, {whole} whole"


def test_saved_model_loads_equal(smollm2, tmp_path):
    import cutaway

    smollm2.save(tmp_path)
    again = cutaway.load(tmp_path)
    ids = torch.tensor([smollm2.encode("A cat sat on the")])
    assert again.spec == smollm2.spec
    assert torch.equal(again(ids), smollm2(ids))
    assert again.generate("A cat sat on the", max_tokens=3) == smollm2.generate("A cat sat on the", max_tokens=3)


def test_without_the_mask_a_token_learns_of_the_future(smollm2):
    ids = smollm2.encode("The capital of France is Paris, and the capital of Italy is Rome.")
    free = remove(smollm2.model, "mask")
    changed = ids[:-1] + [ids[0]]
    same = smollm2(torch.tensor([ids]))[0, :-1], smollm2(torch.tensor([changed]))[0, :-1]
    assert (same[0] - same[1]).abs().max() < 1e-4
    with torch.no_grad():
        peeking = free(torch.tensor([ids]))[0, :-1], free(torch.tensor([changed]))[0, :-1]
    assert (peeking[0] - peeking[1]).abs().max() > 0.1
