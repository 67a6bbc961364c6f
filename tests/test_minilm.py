"""The sentence encoder against what its peers computed: tokens, states, embeddings, cosines; and as its folder says."""

from __future__ import annotations

import json

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints.convert import convert
from cutaway.encoding import Rows, vectors

EMBEDDING, COSINE, STATE = 1e-6, 6e-6, 1e-5
"""Embeddings are rounded to 6 digits, cosines and states to 5; float32 adds 1.4e-7 and 2.2e-6."""


@pytest.fixture(scope="session")
def minilm():
    return cutaway.load("minilm")


@pytest.fixture(scope="session")
def cases(shared):
    return json.loads((shared / "cases" / "minilm.json").read_text(encoding="utf-8"))


def test_the_folder_says_how_vectors_are_made(minilm):
    assert minilm.spec.context_length == 256
    head = minilm.spec.head
    assert (head.pool, head.normalise, head.pooler.activation) == ("mean", True, "tanh")


def test_tokens(minilm, cases):
    for case in cases["cases"]:
        ids = minilm.tokenizer.encode(case["text"], max_length=minilm.spec.context_length)
        assert ids == case["ids"]
        assert [minilm.tokenizer.token(i) for i in ids[: len(case["tokens"])]] == case["tokens"]


def test_embeddings_of_a_batch(minilm, cases):
    got = minilm.embed([case["text"] for case in cases["cases"]])
    want = torch.tensor([case["embedding"] for case in cases["cases"]])
    assert (got - want).abs().max() <= EMBEDDING
    assert (got.norm(dim=1) - 1).abs().max() <= 1e-6
    assert (got @ got.T - torch.tensor(cases["cosine_matrix"])).abs().max() <= COSINE


def test_a_text_alone_equals_the_batch(minilm, cases):
    texts = [case["text"] for case in cases["cases"][:8]]
    together = minilm.embed(texts)
    for text, row in zip(texts, together, strict=True):
        alone = minilm.embed(text)
        assert alone.shape == (384,) and (alone - row).abs().max() <= EMBEDDING


def test_states(minilm, cases):
    for case in cases["cases"]:
        with torch.no_grad():
            states = minilm.model.hidden(torch.tensor([case["ids"]]))[0]
        assert (states[0, :8] - torch.tensor(case["cls_hidden_first8"])).abs().max() <= STATE


def test_other_ways_to_pool(minilm, cases):
    rows = Rows([case["ids"] for case in cases["cases"][:3]])
    first = vectors(minilm.model, rows, "first", normalise=False)
    want = torch.tensor([case["cls_hidden_first8"] for case in cases["cases"][:3]])
    assert (first[:, :8] - want).abs().max() <= STATE
    mean = vectors(minilm.model, rows, "mean", normalise=False)
    assert torch.allclose(torch.nn.functional.normalize(mean, dim=1), vectors(minilm.model, rows), atol=1e-6)


def test_like_sentences_are_near(minilm):
    a, b, c = minilm.embed(["A man eats bread.", "Somebody is having a loaf of bread.", "The stock market fell."])
    assert a @ b > 0.5 > 0.2 > a @ c


def test_saved_and_loaded(minilm, tmp_path):
    minilm.save(tmp_path)
    again = cutaway.load(tmp_path)
    assert again.spec == minilm.spec and isinstance(again.spec, spec.Encoder)
    assert torch.equal(again.embed("A cat sat on the mat."), minilm.embed("A cat sat on the mat."))


def test_to_a_folder_and_a_file_and_back(minilm, tmp_path):
    texts = ["A cat sat on the mat.", "Stocks fell."]
    convert(minilm.path, "hf", tmp_path / "folder")
    folder = cutaway.load(tmp_path / "folder")
    assert folder.spec.replace(name="") == minilm.spec.replace(name="")
    assert torch.equal(folder.embed(texts), minilm.embed(texts))
    written = convert(minilm.path, "gguf", tmp_path / "file")
    assert "the reader makes vectors of length 1" in written.notes[0]
    file = cutaway.load(next((tmp_path / "file").glob("*.gguf")))
    assert (file.spec.head.pool, file.spec.context_length) == ("mean", 512)
    assert torch.equal(file.embed(texts, normalise=True), minilm.embed(texts))


def test_out_of_our_own_format(minilm, tmp_path):
    minilm.save(tmp_path / "own")
    convert(tmp_path / "own", "hf", tmp_path / "folder")
    again = cutaway.load(tmp_path / "folder")
    assert again.spec.replace(name="", generation=minilm.spec.generation) == minilm.spec.replace(name="")


@pytest.mark.slow
def test_llama_cpp_reads_the_file(minilm, tmp_path):
    llama = pytest.importorskip("llama_cpp")
    convert(minilm.path, "gguf", tmp_path, "F32")
    peer = llama.Llama(str(next(tmp_path.glob("*.gguf"))), embedding=True, verbose=False, n_ctx=512)
    for text in ("This is an example sentence", "Héllo WÖRLD!  naïve café"):
        got = torch.tensor(peer.create_embedding(text)["data"][0]["embedding"])
        assert got @ minilm.embed(text) / got.norm() > 0.9999  # its GELU is a table in half precision
