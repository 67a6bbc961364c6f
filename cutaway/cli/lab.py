"""`cutaway lab`: the course in the browser; `cutaway lab run LAB`: one lab in the terminal."""

from __future__ import annotations

import json
import webbrowser
from typing import Annotated, Any

from cyclopts import App, Parameter

from cutaway.cli.options import Json, Texts
from cutaway.cli.output import print_entry, print_filled, print_json
from cutaway.errors import InputError

app = App(name="lab", help="Open the course and its labs in the browser, or run one lab here.")


@app.default
def start(
    *, host: str = "127.0.0.1", port: int = 8765, browser: bool = True, allow: Texts = (), json: Json = False
) -> None:
    """Start the lab and open it in the browser; ends with Ctrl+C.

    :param host: address to listen on; learners' code is run only on a loopback address
    :param port: port to listen on; another one is taken if the usual one is busy
    :param browser: open the browser
    :param allow: further host names under which the page may be reached
    """
    from cutaway.lab.app import serve

    def ready(address: str) -> None:
        if json:
            print_json({"address": address})
        else:
            print(f"Cutaway lab: {address}\nEnds with Ctrl+C.", flush=True)
        if browser:
            webbrowser.open(address)

    serve(host, port, ready, allow)


@app.command
def run(
    lab: str,
    /,
    *,
    set_: Annotated[
        tuple[str, ...], Parameter(name="--set", consume_multiple=True, negative="", show_default=False)
    ] = (),
    json: Json = False,
) -> None:
    """Run one lab on its default state and print what it shows.

    :param lab: the lab, for example rope, stack or block
    :param set_: values of its state as key=value, the value written as JSON: m=2 'remove=["mask"]'
    """
    from cutaway.lab import labs

    result = labs.run(lab, dict(_setting(text) for text in set_))
    if json:
        print_json(result)
        return
    print_filled(result["text"])
    width = max(map(len, result["numbers"]), default=0)
    for name, number in result["numbers"].items():
        print_entry(f"  {name}", str(number), width + 2)


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List the labs with their default states."""
    from cutaway.lab import labs

    states = {lab: labs.default(lab) for lab in labs.IDS}
    if json:
        print_json(states)
        return
    for lab, state in states.items():
        print_entry(lab, ", ".join(state), 16)


def _setting(text: str) -> tuple[str, Any]:
    """ "m=2" as ("m", 2); what is not JSON is taken as text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set {text!r}: a key and a value are needed; write for example --set m=2")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value
