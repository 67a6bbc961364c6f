"""The numbers of the chapter "Inference cost". Needs NumPy only: python inference.py"""

import numpy as np


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


print("1. the same eight outputs, computed at once and one by one with a cache")
rng = np.random.default_rng(0)
n, d = 8, 8
x, (wq, wk, wv) = rng.normal(size=(n, d)), rng.normal(size=(3, d, d)) / np.sqrt(d)
scores = (x @ wq) @ (x @ wk).T / np.sqrt(d)
at_once = softmax(np.where(np.triu(np.ones((n, n)), 1) > 0, -np.inf, scores)) @ (x @ wv)
keys, values, outputs, products = [], [], [], 0
for token in x:
    keys.append(token @ wk)
    values.append(token @ wv)
    products += len(keys)
    outputs.append(softmax(np.array(keys) @ (token @ wq) / np.sqrt(d)) @ np.array(values))
print("   largest difference:", f"{np.abs(at_once - np.array(outputs)).max():.1e}")
print("   products with a cache:", products, " without:", sum(t * (t + 1) // 2 for t in range(1, n + 1)))

print("2. bytes of cache, 2 a number")
models = {  # layers, query heads, key heads, head width, d_model, d_ff, vocabulary, tables
    "SmolLM2-135M": (30, 9, 3, 64, 576, 1536, 49152, 1),
    "Llama 2 7B": (32, 32, 32, 128, 4096, 11008, 32000, 2),
    "Llama 3 8B": (32, 32, 8, 128, 4096, 14336, 128256, 2),
}
weights = {}
for name, (layers, heads, kv, width, d_model, d_ff, vocabulary, tables) in models.items():
    token = 2 * layers * kv * width * 2
    block = 2 * d_model * (heads + kv) * width + 3 * d_model * d_ff + 2 * d_model
    weights[name] = layers * block + tables * vocabulary * d_model + d_model
    print(f"   {name:13} {token:7,} a token, {token * 8192 / 1e9:.2f} GB for 8,192; {weights[name]:,} parameters")

print("3. the most that one text can be decoded at, on a memory of 40 GB a second, without a cache to read")
for bits in (16, 8, 4):
    print(f"   SmolLM2 with {bits:2} bits a weight: {40e9 / (weights['SmolLM2-135M'] * bits / 8):.0f} tokens a second")
for batch in (1, 4, 16, 64):
    step = (weights["Llama 3 8B"] * 2 + batch * 2048 * 131072) / 1000e9
    print(f"   Llama 3 8B on 1,000 GB a second, {batch:2} texts of 2,048 tokens: {batch / step:,.0f} tokens/s in all")
