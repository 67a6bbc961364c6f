"""The numbers of the chapter "Masks and heads". Needs NumPy only: python heads.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def masked(scores):
    return softmax(np.where(np.triu(np.ones(scores.shape[-2:]), 1) > 0, -np.inf, scores))


print("1. row 2 with the scores 1, 1, 1, 5, without and with the mask")
scores = np.array([[0.0, 0, 0, 0], [2, 2, 7, 7], [1, 1, 1, 5], [0, 0, 0, 0]])
print("  ", softmax(scores)[2], masked(scores)[2], "row 1:", masked(scores)[1])
late = np.where(np.triu(np.ones((4, 4)), 1) > 0, 0, softmax(scores))
print("   set to zero after the softmax, row 2 sums to", round(late[2].sum(), 2))

print("2. jobs of four heads for: the cat slept because it was tired")
kinds = np.array([3, 0, 1, 3, 2, 1, 3])  # noun 0, verb 1, pronoun 2, other 3
angle = np.arange(7) * np.pi / 4
hand = np.stack([np.cos(angle), np.sin(angle)], -1)
back = np.stack([np.cos(angle - np.pi / 4), np.sin(angle - np.pi / 4)], -1)
previous = 14 * back @ hand.T
noun = 14 * np.outer(kinds == 2, kinds == 0).astype(float)
for name, job in (("previous", previous), ("noun", noun)):
    print(f"   {name:9} alone, row 'it':  ", softmax(job[4] / np.sqrt(2)))
print("   both in one softmax, row 'it':", softmax((previous + noun)[4] / np.sqrt(4)))

print("3. parameters and shapes")
d_model, length = 8, 7
for heads in (1, 2, 4, 8):
    d_k = d_model // heads
    x = np.zeros((1, length, d_model)).reshape(1, length, heads, d_k).swapaxes(1, 2)
    print(
        f"   {heads} heads: d_k {d_k}, q {x.shape}, weights {(x @ x.swapaxes(2, 3)).shape}, {4 * d_model**2} parameters"
    )
