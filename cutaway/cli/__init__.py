"""The command line. `main` starts it, and says what to do where something that it needs is missing."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit 2."""
    for name in ("stdin", "stdout", "stderr"):  # Python has None where the caller closed one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows another
    try:
        _run()
    except ModuleNotFoundError as error:
        if (error.name or "cutaway").split(".")[0] == "cutaway":
            raise
        if sys.argv[1:2] == ["doctor"]:  # it needs nothing but Python
            from cutaway.cli.doctor import show_doctor

            sys.exit(show_doctor("--json" in sys.argv))
        _fail(f"the package {error.name} is missing; `cutaway doctor` says what to install")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has enough; nothing more may be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _run() -> None:
    import cyclopts

    from cutaway.cli.app import app
    from cutaway.errors import CutawayError

    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_none")
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        verb = " ".join(["cutaway", *(error.command_chain or ())])
        _fail(f"{' '.join(str(error).split())} `{verb} --help` lists what there is")
    except CutawayError as error:
        _fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:  # the disk is full, the output is gone
        what = f"{error.filename}: " if error.filename else ""
        _fail(f"{what}{error.strerror or error}; check the place and the free space")
    except MemoryError:
        _fail("the memory is not enough; take a smaller model or a shorter text")


def _fail(message: str) -> None:
    print(f"cutaway: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(2)
