"""`cutaway verify`: the parity record of a checkpoint, and those of this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutaway.checkpoints.parity import Parity, Peer, records
from cutaway.cli.models import fetch
from cutaway.cli.output import console, print_entry, print_json, print_table


def show_verify(name: str, peers: bool, as_json: bool) -> bool:
    """Verify a checkpoint and print what was found; whether it is verified."""
    from cutaway.checkpoints.verify import verify

    record = verify(fetch(name), peers)
    if as_json:
        print_json(asdict(record) | {"verified": record.verified})
    else:
        show_record(record)
    return record.verified


def show_record(record: Parity) -> None:
    """The record as text."""
    state = "verified" if record.verified else "NOT VERIFIED"
    console.print(f"{record.path}\n{record.family}: {state}", markup=False, soft_wrap=True)
    _told("read", f"{len(record.read)} keys of the configuration")
    for title, table in (("assumed", record.assumed), ("ignored", record.ignored_keys)):
        for i, (key, value) in enumerate(table.items()):
            _told(title if i == 0 else "", f"{key}: {value}")
    others = [f"{len(record.copies)} copies"] * bool(record.copies)
    others += [
        f"{len(record.ignored_tensors)} ignored ({', '.join(sorted(set(record.ignored_tensors.values())))})"
    ] * bool(record.ignored_tensors)
    _told("tensors", ", ".join([f"{record.n_tensors} used", *others]))
    console.print()
    rows = [(x.name, f"{x.worst:.1e}", f"{x.largest:.3g}", "" if x.close else "far") for x in record.layers]
    print_table(("after", "worst difference from float64", "largest number", ""), rows)
    console.print()
    for peer in record.peers:
        _told(peer.name, _peer_words(peer))
    if not record.peers:
        _told("peers", "none is installed that reads this format, or none was asked")


def _told(title: str, text: str) -> None:
    print_entry(title, " ".join(text.split()), 20)


def _peer_words(peer: Peer) -> str:
    if peer.said:
        return peer.said
    words = f"within {peer.worst:.1e} (largest {peer.largest:.3g}); largest number at the same place in "
    words += f"{peer.n_same} of {peer.n_sure} rows"
    return words if peer.agrees else f"DISAGREES: {words}"


def verified_models() -> list[dict[str, Any]]:
    """The records of this machine, for `cutaway list`."""
    return [
        {"path": record.path, "family": record.family, "verified": record.verified, "made": record.made,
         "stale": record.stale, "here": Path(record.path).exists()}
        for record in records()
    ]  # fmt: skip


def state_words(entry: dict[str, Any]) -> str:
    """What a record of files that are here says today."""
    if entry["stale"]:
        return "changed since it was verified"
    return f"{'verified' if entry['verified'] else 'not verified'} {entry['made'][:10]}"
