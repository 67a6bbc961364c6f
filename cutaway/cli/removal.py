"""What goes wrong without some parts: the prediction and the loss of the whole model and of what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.markup import escape
from torch import Tensor

from cutaway import spec
from cutaway.ablation.knobs import WITHOUT, choose, listed
from cutaway.ablation.surgery import taken_out
from cutaway.cli.evaluate import read_text, tokens_of, total_loss
from cutaway.cli.models import spec_of
from cutaway.cli.options import Writing
from cutaway.cli.output import console, print_entry, print_filled, print_json
from cutaway.encoding import Rows, names, outputs, probabilities, vectors
from cutaway.errors import InputError
from cutaway.loaded import Loaded
from cutaway.models import EncoderDecoder
from cutaway.parts.step import Given
from cutaway.training.loss import token_losses


@dataclass(frozen=True)
class Outcome:
    """What a model makes of the prompt: its numbers, the prediction in words, the loss on the text (NaN: none)."""

    numbers: Tensor
    prediction: str
    loss: float


class Removal:
    """The model with and without parts. `writes`: how what is left is to continue the prompt, if it is to.

    The loss is that of the prompt or of a file: of each next token; for a masked language model the pseudo-loss; of an
    encoder-decoder, whose source is the prompt, that of the file, else of what the whole model writes.
    """

    def __init__(
        self, loaded: Loaded, ids: list[int], words: tuple[str, ...], file: str = "",
        writes: Writing | None = None,
    ) -> None:  # fmt: skip
        self.words, self.file, self.loaded = words, file, loaded
        parts = choose(loaded.spec, words)
        self.names = list(dict.fromkeys(name for part in parts for name in part.names))
        self.text = self._text(ids)
        left = replace(loaded, model=taken_out(loaded.model, parts), last=None)
        with torch.no_grad():
            self.whole, self.left = self._outcome(loaded, ids), self._outcome(left, ids)
        self.changed = not torch.equal(self.whole.numbers, self.left.numbers)
        self.written = None
        if writes is not None and isinstance(loaded.spec.head, spec.LanguageHead):
            self.written = "".join(writes.stream(left, ids))

    def plain(self) -> dict[str, Any]:
        """All of it as data; a loss that does not exist or is not finite is null."""
        both = {
            label: {"next": each.prediction, "loss": each.loss if math.isfinite(each.loss) else None}
            for label, each in (("whole", self.whole), ("without", self.left))
        }
        return {"parts": self.names, "changed": self.changed, "written": self.written} | both

    def show(self) -> None:
        """The same for people, within 80 columns."""
        n = len(self.names)
        console.print(f"\n[bold]Without {escape(', '.join(self.words))}[/] ({n:,} part{'s' * (n != 1)})")
        for label, each in (("whole", self.whole), ("without", self.left)):
            print_filled(f"{label:8} {self._told(each)}", "  ", "    ")
        if self.written is not None:
            print_filled(f"without, it writes {self.written!r}", "  ", "    ")
        if not self.changed:
            print_filled("It changed nothing: every number of the prediction is the same.", "  ", "    ")

    def _told(self, each: Outcome) -> str:
        head = self.loaded.spec.head
        if isinstance(head, (spec.LanguageHead, spec.MaskedHead)):
            kind = "pseudo-loss" if isinstance(head, spec.MaskedHead) else "loss"
            where = self.file or ("its own text" if isinstance(self.loaded.model, EncoderDecoder) else "the prompt")
            told = f"{kind} on {where} {each.loss:.3f} nats a token"
            if math.isnan(each.loss):
                told = "one token alone has no loss" if len(self.text) < 2 else f"no {kind}: the numbers are NaN"
            return f"{'next' if kind == 'loss' else 'mask'} {each.prediction!r:14} {told}"
        if isinstance(head, spec.VectorHead):
            alike = float(torch.cosine_similarity(each.numbers, self.whole.numbers, dim=0))
            return f"{each.prediction}, cosine with the whole model's {alike:.4f}"
        return each.prediction

    def _text(self, ids: list[int]) -> list[int]:
        """The tokens whose loss is measured."""
        record = self.loaded.spec
        if self.file and not isinstance(record.head, (spec.LanguageHead, spec.MaskedHead)):
            raise InputError(f"--text: a {record.head.kind} head predicts no tokens, so no text has a loss")
        read = tokens_of(read_text(self.file), self.loaded, self.file) if self.file else None
        if not isinstance(record, spec.EncoderDecoder):
            return ids if read is None else read
        if read is None:
            read = list(_written(self.loaded, ids))
        limit = record.decoder.context_length
        return read if limit == "unlimited" else read[:limit]

    def _outcome(self, loaded: Loaded, ids: list[int]) -> Outcome:
        head, record = loaded.spec.head, loaded.spec
        if isinstance(record, spec.EncoderDecoder) and isinstance(head, spec.LanguageHead):
            return self._of_two(loaded, ids)
        numbers = outputs(loaded.model, Rows([ids]))[0]
        match head:
            case spec.LanguageHead():
                return Outcome(numbers, _word(loaded, numbers[-1]), self._loss(loaded))
            case spec.MaskedHead():
                mask = loaded.tokenizer.special.get("mask") if loaded.tokenizer is not None else None
                guess = _word(loaded, numbers[ids.index(mask)]) if mask in ids else ""
                return Outcome(numbers, guess, self._loss(loaded))
            case spec.ClassHead(pool="none"):
                found = " ".join(names(head)[int(row.argmax())] for row in numbers)
                return Outcome(numbers, f"classes {found}", math.nan)
            case spec.ClassHead():
                shares = probabilities(head, numbers)
                values = ", ".join(f"{name} {float(x):.3f}" for name, x in zip(names(head), shares, strict=True))
                return Outcome(numbers, values, math.nan)
        vector = vectors(loaded.model, Rows([ids]))[0]
        return Outcome(vector, f"a vector of length {float(vector.norm()):.4f}", math.nan)

    def _loss(self, loaded: Loaded) -> float:
        total, scored, _ = total_loss(loaded, self.text)
        return total / scored if scored else math.nan

    def _of_two(self, loaded: Loaded, ids: list[int]) -> Outcome:
        model = loaded.model
        assert isinstance(model, EncoderDecoder)
        target = [int(model.spec.generation.start_id), *self.text]
        given = Given(memory=model.encode(torch.tensor([ids])))
        numbers = model(torch.tensor([target[: max(len(target) - 1, 1)]]), given)[0]
        losses = token_losses(numbers[: len(self.text)].double(), torch.tensor(self.text, dtype=torch.long))
        return Outcome(numbers, _word(loaded, numbers[0]), float(losses.mean()) if len(losses) else math.nan)


def show_parts(name: str, as_json: bool) -> None:
    """Every part of a model that `--remove` takes, and what is left without it."""
    found = listed(spec_of(name))
    if as_json:
        print_json(found)
        return
    width = max(len(parts[0]) for parts in found.values()) + 2
    for word, parts in found.items():
        more = f"; {len(parts) - 1:,} more" if len(parts) > 1 else ""
        print_entry(parts[0], WITHOUT[word] + more, width)
    console.print("\nThe end of a name means all parts that end so: mask, attn.norm_in, head.5;\n"
                  "a pattern those that it matches: blocks[2:5], *.cross.head[0:2].", markup=False)  # fmt: skip


def _word(loaded: Loaded, logits: Tensor) -> str:
    return loaded.decode([int(logits.argmax())])


def _written(loaded: Loaded, ids: list[int]) -> list[int]:
    """What an encoder-decoder writes for a source, greedily."""
    for _ in loaded.stream_ids(ids, temperature=0.0, max_tokens=32):
        pass
    assert loaded.last is not None
    return loaded.last.rows[0].ids
