"""The numbers of the chapter "Embeddings". Needs NumPy only: python embeddings.py"""

from collections import Counter

import numpy as np

print("1. byte-pair encoding of 'the then there'")
words = [list(word) for word in "the then there".split()]
for _ in range(2):
    pairs = Counter(pair for word in words for pair in zip(word, word[1:]))
    (first, second), _ = pairs.most_common(1)[0]
    print(f"   most frequent pair: {first} {second} ({pairs[first, second]} times)")
    for word in words:
        i = 0
        while i < len(word) - 1:
            if (word[i], word[i + 1]) == (first, second):
                word[i : i + 2] = [first + second]
            i += 1
print("   tokens:", words, "in all", sum(map(len, words)))

print("2. two ways to look up a row")
vocabulary = ["the", "cat", "dog", "kitten"]
E = np.array([[0.0, 0.5], [2.0, 2.0], [3.0, 1.0], [1.5, 2.0]])
ids = np.array([0, 1, 0, 3])
one_hot = np.eye(4)[ids]
print("   E[ids]:", E[ids].tolist(), "equal to one_hot @ E:", bool((one_hot @ E == E[ids]).all()))
print("   a batch of ids (2, 5) in a table (1000, 64):", np.zeros((1000, 64))[np.zeros((2, 5), int)].shape)

print("3. cat compared with the others")
for word, v in zip(vocabulary, E):
    dot = v @ E[1]
    cosine = dot / (np.linalg.norm(v) * np.linalg.norm(E[1]))
    print(f"   {word:7} dot {dot:5.2f}  cosine {cosine:.2f}  distance {np.linalg.norm(v - E[1]):.2f}")

print("4. the table of SmolLM2")
table, model = 49152 * 576, 134_515_008
print(f"   {table:,} weights, {table / model:.0%} of the model; untied it would be {2 * table:,}")
