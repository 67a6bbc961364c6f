"""The numbers of the chapter "The whole model". Needs NumPy only: python whole_model.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)
WORDS = "the a cat dog mat bird sat ran saw on to .".split()
NOUNS, VERBS, ARTICLES = "cat dog mat bird", "sat ran saw", "the a"
FOLLOWS = [NOUNS, NOUNS, VERBS, VERBS, ".", VERBS, "on .", "to .", *[ARTICLES] * 4]  # what may follow each of WORDS
N, CLOCK = len(WORDS), 8
follows = np.array([[float(word in after.split()) for word in WORDS] for after in FOLLOWS])


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True))


def positions(places):
    angles = places[:, None] * 10000 ** (-np.arange(0, CLOCK, 2) / CLOCK)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(places), CLOCK)


def attend(scores, values, mask):
    return softmax(np.where(np.triu(np.ones_like(scores), 1) * mask > 0, -np.inf, scores)) @ values


def head(x):
    return softmax(4 * rms_norm(x)[:, 2 * N : 3 * N])


def model(ids, mask=True, order=True):
    """A stream of four slots: the word, the word before, what may come next, the place."""
    places = np.arange(len(ids))
    x = np.zeros((len(ids), 3 * N + CLOCK))
    x[:, :N] = np.eye(N)[ids]
    x[:, 3 * N :] = positions(places) * order
    seen = [head(x)]
    h, one_back = rms_norm(x), positions(places - 1) * order / np.sqrt((x**2).mean(-1, keepdims=True))
    x[:, N : 2 * N] += 0.3 * attend(20 * one_back @ h[:, 3 * N :].T / np.sqrt(N), h[:, :N], mask)
    x[:, 2 * N : 3 * N] += rms_norm(x)[:, :N] @ follows / 3
    seen.append(head(x))
    h = rms_norm(x)
    x[:, 2 * N : 3 * N] += 0.3 * attend(3 * h[:, :N] @ h[:, N : 2 * N].T / np.sqrt(N), h[:, :N], mask)
    x[:, 2 * N : 3 * N] -= rms_norm(x)[:, :N] / 3
    return [*seen, head(x)]


text = "the cat sat on the".split()
ids = np.array([WORDS.index(word) for word in text])
for depth, p in zip(("embedding", "block 0", "block 1"), model(ids)):
    print(f"after {depth:9}:", dict(zip(WORDS, p[-1].round(2).tolist())))
for name, how in (("whole", {}), ("no mask", {"mask": False}), ("no positions", {"order": False})):
    p = model(ids, **how)[-1]
    loss = -np.log(p[np.arange(4), ids[1:]]).mean()
    print(f"{name:12} loss {loss:.3f}, expects {WORDS[p[-1].argmax()]} with {p[-1].max():.2f}")
