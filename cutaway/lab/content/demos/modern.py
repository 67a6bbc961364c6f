"""The numbers of the chapter "Modern blocks". Needs NumPy only: python modern.py"""

import numpy as np

np.set_printoptions(precision=4, suppress=True)


def layer_norm(x):
    return (x - x.mean()) / x.std()


def rms_norm(x):
    return x / np.sqrt(np.mean(x**2))


def rotate(v, pos, base=10000.0):
    angles = pos * base ** (-np.arange(0, len(v), 2) / len(v))
    x, y = v[0::2], v[1::2]
    turned = [x * np.cos(angles) - y * np.sin(angles), x * np.sin(angles) + y * np.cos(angles)]
    return np.stack(turned, -1).ravel()


def turn(v, angle):
    return np.array([v[0] * np.cos(angle) - v[1] * np.sin(angle), v[0] * np.sin(angle) + v[1] * np.cos(angle)])


def silu(z):
    return z / (1 + np.exp(-z))


print("2. one sublayer, post-norm and pre-norm")
x, update = np.array([1, -1, 0.5, -0.5]), np.array([3.0, 3, -3, -3])
print("  ", layer_norm(x + update), x + update)

print("3. two norms of [1, 1, 3, 5]")
x = np.array([1.0, 1, 3, 5])
print("   LayerNorm", layer_norm(x), "RMSNorm", rms_norm(x), "rms", np.sqrt(np.mean(x**2)))

print("4. scores after a rotation, theta = 0.5")
q, k = np.array([1.0, 0]), np.array([0.0, 1])
for m, n in ((0, 0), (2, 0), (12, 10), (0, 2)):
    print(f"   m = {m:2}, n = {n:2}: {turn(q, m * 0.5) @ turn(k, n * 0.5):.4f}")
rng = np.random.default_rng(0)
q, k = rng.normal(size=4), rng.normal(size=4)
for m, n in ((7, 4), (107, 104), (7, 5)):
    print(f"   four numbers a head, positions ({m}, {n}): {rotate(q, m) @ rotate(k, n):.6f}")

print("5. a gated unit, and the width that keeps the weights equal")
for g, u in ((-1.0, 2.0), (1.0, 2.0), (3.0, -1.0)):
    print(f"   gate {g:4}, value {u:4}: SiLU {silu(g):.4f}, output {silu(g) * u:.4f}")
d_model, d_ff = 512, 2048
for width in (d_ff, round(d_ff * 2 / 3), 1408):
    print(f"   SwiGLU of width {width}: {3 * d_model * width:,} weights, plain FFN {2 * d_model * d_ff:,}")
