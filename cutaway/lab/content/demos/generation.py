"""The numbers of the chapter "Generation strategies". Needs NumPy only: python generation.py"""

import numpy as np

np.set_printoptions(precision=2, suppress=True)
words = ["mat", "sofa", "floor", "roof", "chair", "moon", "bus", "idea"]
logits = np.array([3.0, 2.5, 2.0, 1.2, 1.0, -0.5, -1.0, -2.0])


def softmax(s):
    e = np.exp(s - s.max())
    return e / e.sum()


def scaled(p):
    return p / p.sum()


def top_k(p, k):
    return scaled(np.where(p >= np.sort(p)[-k], p, 0))


def top_p(p, bound):
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    keep = np.zeros_like(p)
    keep[order] = before < bound
    return scaled(p * keep)


def min_p(p, share):
    return scaled(np.where(p >= share * p.max(), p, 0))


print("2. temperature: logits 2 and 0")
for t in (0.5, 1, 2):
    print(f"   {t}: {softmax(np.array([2.0, 0]) / t)}")

print("3. three cuts of 0.5, 0.25, 0.15, 0.07, 0.03")
p = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
print("   top-k 2  ", top_k(p, 2))
print("   top-p 0.8", top_p(p, 0.8))
print("   min-p 0.2", min_p(p, 0.2))
rng = np.random.default_rng(0)
p = top_p(softmax(logits / 0.8), 0.9)
drawn = rng.choice(words, 200, p=p)
print("   200 draws of the lab's words:", {w: int((drawn == w).sum()) for w in words if p[words.index(w)] > 0})

print("4. greedy and two beams on the tree")
tree = {
    "a": (0.5, {"red": 0.3, "big": 0.3, "dog": 0.2}),
    "the": (0.4, {"dog": 0.9, "cat": 0.05}),
    "no": (0.1, {"one": 0.6}),
}
for beams in (1, 2):
    starts = sorted(tree, key=lambda w: -tree[w][0])[:beams]
    paths = [(tree[a][0] * q, f"{a} {b}") for a in starts for b, q in tree[a][1].items()]
    probability, text = max(paths, key=lambda path: path[0])
    print(f"   {beams} beam(s): {text!r} with {probability:.2f}")
