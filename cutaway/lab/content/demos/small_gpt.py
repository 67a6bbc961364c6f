"""The numbers of the chapter "Writing a small GPT": one block and one head, trained by hand. Needs NumPy only."""

import numpy as np

ANIMALS, PLACES, D, T, LR = "cat dog hen pig".split(), "mat log box bed".split(), 16, 16, 0.01
text = " ".join(f"a {a} sat on a {p}. a {a} ran to a {b}." for a in ANIMALS for p in PLACES for b in ANIMALS if a != b)
V = len(characters := sorted(set(text)))
data = np.array([characters.index(c) for c in text])
rng = np.random.default_rng(0)
shapes = {"E": (V, D), "P": (T, D), "up": (D, 64), "down": (64, D), "head": (D, V), **{n: (D, D) for n in "qkvo"}}
w = {name: rng.normal(size=shape) / (1 if name in "EP" else np.sqrt(shape[0])) for name, shape in shapes.items()}
first, second = ({name: np.zeros(shape) for name, shape in shapes.items()} for _ in range(2))


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x):
    n = x / (root := np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))
    return n, lambda g: (g - n * (g * n).mean(-1, keepdims=True)) / root


def gpt(ids, targets=None):  # probabilities [B, T, V], or with targets the loss; and every gradient
    x0 = w["E"][ids] + w["P"][: ids.shape[1]]
    h, back0 = norm(x0)
    q, k, v = h @ w["q"], h @ w["k"], h @ w["v"]
    a = softmax(q @ k.swapaxes(1, 2) / np.sqrt(D) - 1e9 * np.triu(np.ones((ids.shape[1],) * 2), 1))
    n1, back1 = norm(x1 := x0 + a @ v @ w["o"])
    n2, back2 = norm(x1 + (hidden := np.maximum(0, n1 @ w["up"])) @ w["down"])
    p = softmax(n2 @ w["head"])
    if targets is None:
        return p, {}
    g2 = back2((gl := (p - np.eye(V)[targets]) / targets.size) @ w["head"].T)
    gp = (g2 @ w["down"].T) * (hidden > 0)
    g1 = g2 + back1(gp @ w["up"].T)
    ga = (gz := g1 @ w["o"].T) @ v.swapaxes(1, 2)
    gs = a * (ga - (ga * a).sum(-1, keepdims=True)) / np.sqrt(D)
    gq, gk, gv = gs @ k, gs.swapaxes(1, 2) @ q, a.swapaxes(1, 2) @ gz
    g0 = g1 + back0(gq @ w["q"].T + gk @ w["k"].T + gv @ w["v"].T)
    pairs = {"head": (n2, gl), "down": (hidden, g2), "up": (n1, gp), "o": (a @ v, g1), "E": (np.eye(V)[ids], g0)}
    pairs |= {"q": (h, gq), "k": (h, gk), "v": (h, gv)}
    grads = {name: np.einsum("bti,btj->ij", x, g) for name, (x, g) in pairs.items()} | {"P": g0.sum(0)}
    return -np.log(np.take_along_axis(p, targets[..., None], -1)).mean(), grads


print(f"{V} characters, {sum(each.size for each in w.values()):,} weights, ln V = {np.log(V):.2f}")
for step in range(301):
    windows = data[rng.integers(0, len(data) - T, 12)[:, None] + np.arange(T + 1)]
    loss, grads = gpt(windows[:, :-1], windows[:, 1:])
    if step % 50 == 0:
        ids = [characters.index(c) for c in "a cat "]
        for _ in range(34):
            ids.append(int(gpt(np.array([ids[-T:]]))[0][0, -1].argmax()))
        print(f"step {step:3}: loss {loss:.2f}, writes {''.join(characters[i] for i in ids)!r}")
    for name, g in grads.items():  # Adam
        first[name], second[name] = 0.9 * first[name] + 0.1 * g, 0.99 * second[name] + 0.01 * g**2
        mean, square = first[name] / (1 - 0.9 ** (step + 1)), second[name] / (1 - 0.99 ** (step + 1))
        w[name] = w[name] - LR * mean / (np.sqrt(square) + 1e-8)
