"""The numbers of the chapter "The whole picture". Needs NumPy only: python transformers.py"""

import json

import numpy as np

np.set_printoptions(precision=4, suppress=True)


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


print("1. four positions, and four embeddings with their positions added")
angles = np.arange(4)[:, None] / 10000 ** (2 * (np.arange(4) // 2) / 4)
table = np.where(np.arange(4) % 2, np.cos(angles), np.sin(angles))
embeddings = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0.5, 0.5, 0.5, 0.5]])
print(table)
print(embeddings + table)

print("2. scores under a causal mask, as weights")
scores = np.random.RandomState(1).randn(4, 4)
future = np.triu(np.ones((4, 4)), 1) > 0
print(softmax(np.where(future, -np.inf, scores)))

print("6. a chat is one list of ids (a toy vocabulary: one id a word)")
turns = [("system", "You are a pirate ."), ("user", "Where is the treasure ?"), ("assistant", "On the island .")]
turns.append(("user", "Which island ?"))
ids: dict[str, int] = {}


def encode(text):
    return [ids.setdefault(word, len(ids)) for word in text.split()]


sequence = []
for role, text in turns:
    part = encode(f"<start> {role} <line> {text} <end> <line>")
    print(f"   {role:9} {part}")
    sequence += part
sequence += encode("<start> assistant <line>")
print(f"   {len(sequence)} ids enter the model, which returns one probability for each of {len(ids)} words")

print("7. one round of an agent: the model writes text, the program does the rest")
model_output = '{"tool": "weather", "city": "Bergen"}'
tools = {"weather": lambda city: {"Bergen": "rain, 9 °C"}.get(city, "unknown city")}
call = json.loads(model_output)
allowed = call["tool"] in tools
result = tools[call.pop("tool")](**call) if allowed else "refused"
print("   model wrote ", model_output)
print("   runtime: allowed", allowed, "-> result", repr(result), "-> back into the conversation as text")
