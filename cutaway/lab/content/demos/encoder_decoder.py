"""The numbers of the chapter "Encoder and decoder". Needs NumPy only: python encoder_decoder.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)
source = ["the", "red", "house", "</s>"]
kinds = np.array([0, 2, 1, 3])  # article 0, noun 1, adjective 2, end 3
feminine = {"house", "table"}
forms = {"the": ("el", "la"), "red": ("rojo", "roja"), "house": ("casa", "casa"), "</s>": ("</s>", "</s>")}
wanted = {None: [1, 0, 0, 0], 0: [0, 1, 0, 0], 1: [0, 0, 1, 0.5], 2: [0, 0, 1, 0.5]}  # after each kind, in Spanish


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def encode(both_ways=True):
    """Self-attention brings the noun's gender to every word; a network would then choose the form."""
    scores = np.tile(10.0 * (kinds == 1), (4, 1))
    if not both_ways:
        scores = np.where(np.triu(np.ones((4, 4)), 1) > 0, -np.inf, scores)
    gender = softmax(scores) @ [float(word in feminine) for word in source]
    gender[kinds == 1] = [float(word in feminine) for word, kind in zip(source, kinds) if kind == 1]
    return [forms[word][int(g > 0.5)] for word, g in zip(source, gender)]


def translate(memory, remember=True):
    written, last, done = [], None, np.zeros(4)
    while len(written) < 5 and (not written or written[-1] != "</s>"):
        want = np.array(wanted[last])
        scores = 8 * want[kinds] - 30 * done / max(len(written), 1) * remember
        weights = softmax(scores)  # one row of cross-attention: a target word over the source
        at = int(weights.argmax())
        written, last = [*written, memory[at]], int(kinds[at])
        done[at] += 1
        print(f"   weights over {source}: {weights} -> {memory[at]}")
    return " ".join(written)


print("1. the red house")
print("  ", translate(encode()))
print("   with an encoder that looks back only:", encode(both_ways=False))
print("   with a decoder that forgets what it wrote:")
print("  ", translate(encode(), remember=False))

print("3. the original's weights")
d, f, n, vocabulary = 512, 2048, 6, 37000
attention, ffn, norm = 4 * d * d, 2 * d * f + f + d, 2 * d
encoder, decoder = attention + ffn + 2 * norm, 2 * attention + ffn + 3 * norm
total = vocabulary * d + n * (encoder + decoder)
print(f"   encoder block {encoder:,}, decoder block {decoder:,}, all with the table {total:,}")
print("   cross-attention of 3 target on 7 source words:", (np.zeros((3, 64)) @ np.zeros((64, 7))).shape)
