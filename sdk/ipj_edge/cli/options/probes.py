"""The options every command shares that talks to power probes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ipj_edge import limits
from ipj_edge.cli.options.types import Number
from ipj_edge.errors import ConfigError
from ipj_edge.values import ProbeOptions

Command = TypeVar("Command", bound=Callable[..., Any])


_OPTIONS = (
    click.option("--sysfs-root", default="/sys", metavar="DIR", help="Where sysfs is mounted.", show_default=True),
    click.option("--port", metavar="PORT", help="Serial port of a meter, or the file a probe reads."),
    click.option(
        "--voltage",
        type=Number(limits.VOLTAGE_V),
        metavar="V",
        help="Supply voltage, for meters that see current only.",
    ),
    click.option("--select", metavar="NAME", help="Chip, channel or rail, where there are several."),
    click.option(
        "--core-power", type=Number(limits.POWER_W), metavar="W", help="Watts of a busy core, for the CPU-time model."
    ),
    click.option(
        "--idle-power", type=Number(limits.POWER_W), metavar="W", help="Watts of the idle machine, for the same."
    ),
)


def probe_options(command: Command) -> Command:
    """Add the probes' options to a command; `collect` makes them one value."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def collect(given: dict[str, Any], probes: Sequence[str]) -> ProbeOptions:
    """Take the probes' options out of a command's arguments.

    Args:
        given: The arguments.
        probes: Names of the probes they are for.

    Raises:
        ConfigError: a port, and no probe that it could belong to.
    """
    port = given.pop("port")
    if port is not None and {"auto", "none"}.issuperset(probes):
        # Asking a meter in the words of another one may set it to something.
        raise ConfigError(
            f"--port {port} belongs to one meter, and none is named: say which (--probe NAME, `probes --describe NAME`)"
        )
    return ProbeOptions(
        sysfs_root=given.pop("sysfs_root"),
        port=port,
        voltage_v=given.pop("voltage"),
        select=given.pop("select"),
        core_power_w=given.pop("core_power"),
        idle_power_w=given.pop("idle_power"),
        # The command line alone reads the environment; these say which GPUs a child of ours may use.
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        device_order=os.environ.get("CUDA_DEVICE_ORDER"),
    )
