"""What encoders make of texts: guesses for masked tokens, classes of rows, pairs and tokens, vectors of any model."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import BertConfig, T5Config, T5ForSequenceClassification

import cutaway
from cutaway.encoding import Rows, outputs, vectors
from cutaway.errors import InputError
from cutaway.tokenizers import build
from cutaway.tokenizers.tokenizer import Tokenizer
from tests.checkpoints.families.tiny import peer, rewrite, tiny
from tests.checkpoints.families.tiny_encoders import SMALL

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat", ".", "dog", "##s"]


def words():
    """A tokenizer of a few words."""
    ids = build.vocabulary(WORDS, "test")
    backend = build.word_piece(ids, "[UNK]", lowercase=True, strip_accents=True)
    build.add_tokens(backend, WORDS[:5])
    build.surround(backend, {"cls": 2}, {"sep": 3})
    return Tokenizer(backend, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})


def folder_of(kind, path, **changes):
    config = BertConfig(**SMALL | {"vocab_size": len(WORDS)} | changes)
    folder = tiny(getattr(transformers, f"Bert{kind}"), config, path)
    words().save(folder)
    return folder


def test_masked_tokens(tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path)
    loaded = cutaway.load(folder)
    text = "The [MASK] sat on a [MASK]."
    ids = loaded.encode(text)
    with torch.no_grad():
        want = peer(folder)(torch.tensor([ids])).logits[0].softmax(-1)
    got = loaded.fill_mask(text, n=3)
    assert len(got) == 2
    for place, guesses in zip([i for i, token in enumerate(ids) if token == 4], got, strict=True):
        best = want[place].topk(3)
        assert [word for word, _ in guesses] == [loaded.tokenizer.decode([int(i)]) for i in best.indices]
        assert torch.allclose(torch.tensor([share for _, share in guesses]), best.values, atol=1e-5)


def test_a_text_without_a_mask_or_a_model_without_guesses_is_named(tmp_path):
    loaded = cutaway.load(folder_of("ForMaskedLM", tmp_path / "a"))
    with pytest.raises(InputError, match="none of the 5 tokens is the mask"):
        loaded.fill_mask("the cat sat")
    with pytest.raises(InputError, match="a vectors head guesses none"):
        cutaway.load(folder_of("Model", tmp_path / "b")).fill_mask("the [MASK]")
    with pytest.raises(InputError, match="no classes of a text"):
        loaded.classify("the cat")


@pytest.mark.parametrize("problem", [None, "multi_label_classification", "regression"])
def test_classes_of_a_text_and_of_a_pair(problem, tmp_path):
    folder = folder_of("ForSequenceClassification", tmp_path, num_labels=3)
    rewrite(folder, id2label={"0": "bad", "1": "so-so", "2": "good"}, label2id={"bad": 0, "so-so": 1, "good": 2})
    rewrite(folder, problem_type=problem)
    loaded, their = cutaway.load(folder), peer(folder)
    act = {None: lambda x: x.softmax(-1), "regression": lambda x: x}.get(problem, torch.sigmoid)
    ids, types = loaded.tokenizer.encode_pair("the cat sat.", "a dog.")
    assert 1 in types
    for given, want_ids, want_types in ((("the cat sat.",), loaded.encode("the cat sat."), None),
                                        (("the cat sat.", "a dog."), ids, types)):  # fmt: skip
        kinds = None if want_types is None else torch.tensor([want_types])
        with torch.no_grad():
            want = act(their(torch.tensor([want_ids]), token_type_ids=kinds).logits[0])
        got = loaded.classify(*given)
        assert [share for _, share in got] == sorted((share for _, share in got), reverse=True)
        for label, share in got:
            assert abs(share - float(want[["bad", "so-so", "good"].index(label)])) < 1e-5


def test_classes_of_tokens(tmp_path):
    folder = folder_of("ForTokenClassification", tmp_path, num_labels=4)
    loaded = cutaway.load(folder)
    got = loaded.classify_tokens("The cats")
    assert [token for token, _, _ in got] == ["[CLS]", "the", "cat", "##s", "[SEP]"]
    with torch.no_grad():
        want = peer(folder)(torch.tensor([loaded.encode("The cats")])).logits[0].softmax(-1).max(-1)
    assert [int(label) for _, label, _ in got] == want.indices.tolist()
    assert torch.allclose(torch.tensor([share for *_, share in got]), want.values, atol=1e-5)
    with pytest.raises(InputError, match="no classes of a text"):
        loaded.classify("the cat")


def test_a_classifier_of_two_stacks_is_given_its_source_twice(tmp_path):
    config = T5Config(
        vocab_size=61, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, num_labels=3, decoder_start_token_id=0
    )
    folder = tiny(T5ForSequenceClassification, config, tmp_path)
    model = cutaway.load(folder, tokenizer=False).model
    rows = [[5, 9, 7, 12, 1], [8, 4, 1]]
    got = outputs(model, Rows(rows))
    for row, classes in zip(rows, got, strict=True):
        with torch.no_grad():
            want = peer(folder)(input_ids=torch.tensor([row])).logits[0]
        assert (classes - want).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["ForMaskedLM", "ForSequenceClassification", "Model"])
def test_any_encoder_gives_vectors(kind, tmp_path):
    folder = folder_of(kind, tmp_path)
    loaded = cutaway.load(folder)
    texts = ["the cat sat on the mat.", "a dog"]
    got = loaded.embed(texts)
    with torch.no_grad():
        want = [peer(folder).base_model(torch.tensor([loaded.encode(t)])).last_hidden_state[0].mean(0) for t in texts]
    assert (got - torch.stack(want)).abs().max() < 1e-5
    assert torch.allclose(loaded.embed(texts, normalise=True).norm(dim=1), torch.ones(2))
    assert loaded.embed([]).shape == (0, 32)


def test_a_decoder_gives_vectors_too():
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0).eval()
    rows = Rows([[3, 1, 4], [1, 5]])
    with torch.no_grad():
        want = [model.hidden(torch.tensor([row]))[0, -1] for row in rows.ids]
    assert (vectors(model, rows, "last") - torch.stack(want)).abs().max() < 1e-5


def test_an_empty_row_is_named():
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    with pytest.raises(InputError, match="row 1: no tokens"):
        vectors(model, Rows([[3], []]))


@pytest.mark.parametrize(
    ("types", "message"),
    [([[0, 2, 1]], "types: 2, but the model has 2"), ([[0, -1, 1]], "types: -1"), ([[0]], "shape")],
)
def test_types_that_do_not_fit_are_named(types, message, tmp_path):
    model = cutaway.load(folder_of("Model", tmp_path)).model
    with pytest.raises(InputError, match=message):
        model(torch.tensor([[5, 6, 7]]), cutaway.Given(types=torch.tensor(types)))
