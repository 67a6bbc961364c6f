"""Feed-forward networks: two matrices, three, or a mixture of experts."""

from __future__ import annotations

import re

from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, Router, SharedExpert
from cutaway.spec.source.writing import WIDTH, File, Part, linear, module, number, shape

ACTIVATIONS = {
    "relu": "F.relu({})",
    "relu2": "F.relu({}).square()",
    "gelu": "F.gelu({})",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "quick_gelu": "{0} * torch.sigmoid(1.702 * {0})",
    "silu": "F.silu({})",
    "tanh": "torch.tanh({})",
    "sigmoid": "torch.sigmoid({})",
    "identity": "{}",
}


def dense(
    file: File, part: Dense, d_model: int, attributes: list[str], dropout: float, name: str = "FeedForward"
) -> Part:
    """down(activation(up(x)))."""
    own = [
        f"self.up_proj = {linear(d_model, part.d_ff, part.up_bias)}",
        f"self.down_proj = {linear(part.d_ff, d_model, part.down_bias)}",
    ]
    forward = _hidden({"pre": "self.up_proj(x)"}, ACTIVATIONS[part.activation].format("pre"), part.d_ff)
    forward += _dropped(dropout) + ["return self.down_proj(hidden)"]
    text = module("Two matrices, each token alone.", attributes + own, forward)
    return Part(f"{file.define(text, name, f'Dense{name}')}()")


def gated(
    file: File, part: Gated, d_model: int, attributes: list[str], dropout: float, name: str = "FeedForward"
) -> Part:
    """down(activation(gate(x)) * up(x))."""
    removed = part.activation == "removed"
    own = [
        f"self.gate_proj = {linear(d_model, part.d_ff, part.gate_bias)}{'  # not read' if removed else ''}",
        f"self.up_proj = {linear(d_model, part.d_ff, part.up_bias)}",
        f"self.down_proj = {linear(part.d_ff, d_model, part.down_bias)}",
    ]
    made = {"gate": "self.gate_proj(x)", "up": "self.up_proj(x)"}
    if part.clamp != "none":
        limit = number(part.clamp)
        made = {"gate": f"{made['gate']}.clamp(max={limit})", "up": f"{made['up']}.clamp(-{limit}, {limit})"}
    act = "gate * torch.sigmoid(ALPHA * gate)".replace("ALPHA", number(part.alpha))
    if part.alpha == 1.0 and not removed:
        act = ACTIVATIONS[part.activation].format("gate")
    if removed:
        del made["gate"]
    up = f"(up + {number(part.up_offset)})" if part.up_offset else "up"
    forward = _hidden(made, up.strip("()") if removed else f"{act} * {up}", part.d_ff)
    forward += _dropped(dropout) + ["return self.down_proj(hidden)"]
    doc = "Three matrices, the gate removed." if removed else "Three matrices, one a gate; each token alone."
    return Part(f"{file.define(module(doc, attributes + own, forward), name, f'Gated{name}')}()")


def _hidden(made: dict[str, str], result: str, d_ff: int) -> list[str]:
    """`hidden = result`, in one line where each name in it is read once and all of it fits, else named one by one."""
    whole = re.sub(r"\b(pre|gate|up)\b(?!_)", lambda word: made[word[0]], result)
    line = f"hidden = {whole}{shape('...', d_ff)}"
    if len(line) <= WIDTH - 8 and all(len(re.findall(rf"\b{name}\b", result)) == 1 for name in made):
        return [line]
    return [*(f"{name} = {value}" for name, value in made.items()), f"hidden = {result}{shape('...', d_ff)}"]


def mixture(file: File, part: MixtureOfExperts, d_model: int, attributes: list[str], dropout: float) -> Part:
    """sum of weight * expert(x) over a token's chosen experts."""
    expert, router = _expert(file, part.expert, d_model, dropout), part.router
    own = [f"self.router = {linear(d_model, part.n_experts, router.bias)}"]
    if router.choice_bias:
        own += [f"self.router.choice_bias = nn.Parameter(torch.zeros({part.n_experts}))"]
    own += [f"self.experts = nn.ModuleList({expert} for _ in range({part.n_experts}))"]
    result = "routed.view_as(x)"
    if isinstance(part.shared, SharedExpert):
        own += [f"self.shared = {_expert(file, part.shared.expert, d_model, dropout)}"]
        own += [f"self.shared_gate = {linear(d_model, 1, False)}"] if part.shared.gated else []
        gate = "self.shared_gate(x).sigmoid() * " if part.shared.gated else ""
        result += f" + {gate}self.shared(x)"
    forward = [
        f"rows = x.flatten(0, 1)  # M {d_model}: M = B T tokens",
        f"logits = self.router(rows){shape('M', part.n_experts)}",
        *_choice(router, part),
        "routed = torch.zeros_like(rows)",
        "for index, expert in enumerate(self.experts):",
        "    row, place = (chosen == index).nonzero(as_tuple=True)",
        "    update = expert(rows[row]) * weights[row, place, None]",
        "    routed = routed.index_add(0, row, update)",
        f"return {result}",
    ]
    doc = f"{part.n_active} of {part.n_experts} experts a token"
    doc += ", and one for all." if isinstance(part.shared, SharedExpert) else "."
    return Part(f"{file.define(module(doc, attributes + own, forward), 'MixtureOfExperts')}()")


def _expert(file: File, expert: Dense | Gated, d_model: int, dropout: float) -> str:
    if isinstance(expert, Dense):
        return dense(file, expert, d_model, [], dropout, "Expert").make
    return gated(file, expert, d_model, [], dropout, "Expert").make


def _choice(router: Router, part: MixtureOfExperts) -> list[str]:
    """Lines that make `chosen` and `weights`, both M n_active; of equal scores the first expert's is taken."""

    def first(scores: str, n: int) -> str:
        return f"{scores}.argsort(descending=True, stable=True)[:, :{n}]"

    late = router.score == "softmax_after"
    score = {"softmax": "logits.softmax(-1)", "sigmoid": "logits.sigmoid()"}
    lines = [] if late else [f"scores = {score[router.score]}"]
    held = ranked = "logits" if late else "scores"
    if router.choice_bias:
        lines += [f"ranked = {ranked} + self.router.choice_bias  # picks, but does not weigh"]
        ranked = "ranked"
    if router.n_groups > 1:
        best = "amax(-1)" if router.group_score == "max" else "topk(2, -1).values.sum(-1)"
        lines += [
            f"groups = {ranked}.view(-1, {router.n_groups}, {part.n_experts // router.n_groups})",
            f"best = {first(f'groups.{best}', router.n_active_groups)}",
            "out = torch.ones_like(groups[:, :, 0], dtype=torch.bool).scatter(1, best, False)",
            "ranked = groups.masked_fill(out[..., None], -torch.inf).flatten(1)",
        ]
        ranked = "ranked"
    lines += [f"chosen = {first(ranked, part.n_active)}", f"weights = {held}.gather(-1, chosen)"]
    if late:
        lines += ["weights = weights.softmax(-1)"]
    elif router.normalise:
        lines += ["weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)"]
    return lines + ([f"weights = {number(router.factor)} * weights"] if router.factor != 1.0 else [])


def _dropped(dropout: float) -> list[str]:
    return [f"hidden = F.dropout(hidden, {number(dropout)}, self.training)"] if dropout else []
