"""The numbers of the chapter "Attention and its weights". Needs NumPy only: python attention.py"""

import numpy as np

np.set_printoptions(precision=3, suppress=True)


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, scaled=True):
    scores = q @ k.T / (np.sqrt(q.shape[-1]) if scaled else 1)
    weights = softmax(scores)
    return scores, weights, weights @ v


x = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
print("1. cat, dog, car with q = k = v = x")
scores, weights, output = attention(x, x, x)
print("   scores of cat ", scores[0])
print("   powers        ", np.exp(scores[0]), "sum", round(np.exp(scores[0]).sum(), 1))
print("   weights       ", weights[0])
print("   output        ", output[0])
swap = np.array([[0.0, 1.0], [1.0, 0.0]])
print("   with W_Q = [[0, 1], [1, 0]] cat looks away:", attention(x @ swap, x, x)[1][0])

print("2. the std of dot products of random vectors, before and after the scale")
rng = np.random.default_rng(0)
for d in (4, 64, 256):
    dots = (rng.normal(size=(10_000, d)) * rng.normal(size=(10_000, d))).sum(-1)
    print(f"   d = {d:3}: {dots.std():5.2f}, {(dots / np.sqrt(d)).std():.2f}")
print("   weights of cat without the scale:", attention(x, x, x, scaled=False)[1][0])

print("3. how many words each row really averages over")
print("  ", 2 ** -(weights * np.log2(weights)).sum(-1))

print("4. the output lies between the smallest and the largest value of each column")
rng = np.random.default_rng(1)
q, k, v = rng.normal(size=(3, 6, 4))
_, _, z = attention(q, k, v)
print("   low ", v.min(0), "\n   got ", z[0], "\n   high", v.max(0))
