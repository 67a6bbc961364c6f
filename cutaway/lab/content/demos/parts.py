"""The numbers of the chapter "The parts of a Transformer". Needs NumPy only: python parts.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)
words = {"cat": [2.0, 0.0], "dog": [1.0, 1.0], "car": [0.0, 2.0]}


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x, causal=False):
    s = x @ x.T / np.sqrt(x.shape[-1])
    return softmax(np.where(np.triu(np.ones_like(s), 1) > 0, -np.inf, s) if causal else s) @ x


def positions(n, d):
    angles = np.arange(n)[:, None] / 10000 ** (2 * (np.arange(d) // 2) / d)
    return np.where(np.arange(d) % 2, np.cos(angles), np.sin(angles))


def layer_norm(x, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def ffn(x):
    hidden = np.maximum(0, x @ [[1, -1, 0, 1], [0, 1, -1, 1]] + np.array([0, 0, 1, -2]))
    return hidden @ [[1, 0], [0, 1], [-1, 1], [1, 1]]


print("1. the output for cat, in two orders")
for order in (["cat", "dog", "car"], ["car", "dog", "cat"]):
    x, i = np.array([words[w] for w in order]), order.index("cat")
    print("  ", order, "plain", attention(x)[i], "with positions", attention(x + positions(3, 2))[i])
print("   position 3 of a 16 x 8 table:", positions(16, 8)[3])

print("2. the feed-forward network, three words, then cat alone")
x = np.array(list(words.values()))
print("  ", ffn(x).tolist(), ffn(x[:1]).tolist())

print("3. LayerNorm, and what 30 layers do to a length")
print("   [1, 1, 5, 5] ->", layer_norm(np.array([1.0, 1, 5, 5])))
for gain in (0.5, 1.5):
    rng = np.random.default_rng(0)
    a = b = c = rng.normal(size=8)
    for _ in range(30):
        w = gain * rng.normal(size=(8, 8)) / np.sqrt(8)
        a, b, c = w @ a, b + w @ b, layer_norm(c + w @ c)
    print(f"   gain {gain}: f(x) {np.linalg.norm(a):.3g}, x + f(x) {np.linalg.norm(b):.3g}, LN {np.linalg.norm(c):.2f}")

print("4. one token, [0, 4], through three pre-norm blocks")
x = np.array([[0.0, 4.0]])
for _ in range(3):
    x = x + attention(layer_norm(x), causal=True)
    x = x + ffn(layer_norm(x))
    print("  ", x[0])
