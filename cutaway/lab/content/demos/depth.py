"""The numbers of the chapter "Depth". Needs NumPy only: python depth.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)
WIDTH, LAYERS = 16, 30


def layer_norm(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def norm_backward(g, x):
    centred = x - x.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    n = centred / root
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / root


ACTIVATIONS = {
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y**2),
    "relu": (lambda z: np.maximum(0, z), lambda y: (y > 0) * 1.0),
}


def gradient_ratio(name, residual, norm):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 8, WIDTH))
    weights = rng.normal(size=(LAYERS, WIDTH, WIDTH)) / np.sqrt(WIDTH)
    act, slope = ACTIVATIONS[name]
    kept, top = [], np.sqrt((g**2).mean())
    for w in weights:
        y = act((layer_norm(x) if norm else x) @ w)
        kept.append((x, y))
        x = y + residual * x
    for w, (x, y) in zip(weights[::-1], kept[::-1]):
        below = (g * slope(y)) @ w.T
        g = (norm_backward(below, x) if norm else below) + residual * g
    return np.sqrt((g**2).mean()) / top


print("1. and 2. the gradient at the first of 30 layers, compared with the last")
for name in ACTIVATIONS:
    cases = [(r, n) for n in (False, True) for r in (False, True)]
    text = ", ".join(f"{'residual' * r or 'plain'}{' + norm' * n} {gradient_ratio(name, r, n):.1e}" for r, n in cases)
    print(f"   {name:8} {text}")
print("   three slopes of 0.1:", round(0.1**3, 3), "and with residuals", round(1.1**3, 3))

print("3. [1, 2, 3, 6] among two sets of companions")
rng = np.random.default_rng(0)
for _ in range(2):
    batch = np.concatenate([[[1.0, 2, 3, 6]], rng.normal(3, 2, (3, 4))])
    print("   BatchNorm", layer_norm(batch, 0)[0], " LayerNorm", layer_norm(batch)[0])
print("   a batch of one, BatchNorm:", layer_norm(batch[:1], 0)[0])
