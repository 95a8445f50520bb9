"""The command line: one file per command, each imported when it is called.

Commands turn arguments into one call and print what came of it. This is the only place that prints or exits.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from ipj_edge.cli.options.verbosity import with_verbosity

INTERRUPTED = 130

# Rooms and their commands, in the order of the help.
_COMMANDS = {
    "convert": ("bundles", "convert a model into a proven bundle for each target"),
    "verify": ("bundles", "prove a bundle on this machine: hashes, golden inputs, effective settings"),
    "pack": ("bundles", "write a bundle as one reproducible .tar"),
    "unpack": ("bundles", "unpack a bundle from a .tar, once all of it is checked"),
    "run": ("bundles", "run a bundle on an image or on arrays"),
    "exits": ("models", "tune when samples leave a multi-exit model early"),
    "bench": ("figures", "accuracy, latency and joules per inference of bundles"),
    "compare": ("figures", "fail when a result is worse than a baseline, beyond noise"),
    "pareto": ("figures", "the fewest joules per correct answer that meet given limits"),
    "report": ("figures", "one self-contained HTML page of results"),
    "inspect": ("bundles", "show what a bundle says of itself"),
    "measure": ("figures", "joules, watts and seconds of any command"),
    "compress": ("models", "train, distil, prune, factorise, add exits and quantize a model by a recipe"),
    "targets": ("machine", "list the targets and what works here"),
    "probes": ("machine", "list the power probes and what works here"),
    "doctor": ("machine", "check this machine and say how to mend what does not work"),
}


class _LazyGroup(click.Group):
    """Imports a command's file only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"ipj_edge.cli.{_COMMANDS[cmd_name][0]}.{cmd_name}").command
        return with_verbosity(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ipj-edge")
def group() -> None:
    """Convert a trained model for edge targets, prove the conversion, run it, and count its joules.

    ipj-edge sends nothing anywhere: there is no telemetry.
    """


def exit_code_of(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, without arguments the process's own, and return the exit code of what happened.

    Errors of ours and of click are one line on stderr; any other error is a bug and is raised.
    """
    from ipj_edge.cli.running.interrupts import exit_code
    from ipj_edge.errors import IpjEdgeError

    try:
        code = group.main(arguments, prog_name=None if arguments is None else "ipj-edge", standalone_mode=False)
    except IpjEdgeError as error:
        click.echo(f"ipj-edge: {error}", err=True)
        code = error.exit_code
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        code = exit_code(error)
        click.echo(f"ipj-edge: {'interrupted' if code == INTERRUPTED else 'terminated'}", err=True)
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        click.echo(f"ipj-edge: the disk or the output is full: {error}", err=True)
        code = 2
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command line and exit with the code of what happened."""
    from ipj_edge.cli.printing.streams import flushed, tolerate_encodings
    from ipj_edge.cli.running.interrupts import exit_on_sigterm

    tolerate_encodings()
    exit_on_sigterm()
    sys.exit(flushed(exit_code_of()))
