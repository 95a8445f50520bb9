"""``ipj-edge verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ipj_edge import limits
from ipj_edge.cli.options.types import Number

if TYPE_CHECKING:
    from ipj_edge.runtime.verification import Verification


@click.command("verify")
@click.argument("bundle", type=click.Path())
@click.option("--threads", type=Number(limits.THREADS), help="Inference threads. Default: min(affinity, cgroup quota).")
@click.option("--allow-fallback", is_flag=True, help="Accept settings that differ from the requested ones.")
@click.option("--digest", metavar="SHA256", help="Accept only the bundle whose manifest has this digest.")
@click.option("--key", type=click.Path(), help="Accept only a bundle signed with this public key (Ed25519, PEM).")
@click.option("--json", "json_path", metavar="FILE", help="Write the result as JSON; - is stdout.")
def command(
    bundle: str, threads: int | None, allow_fallback: bool, digest: str | None, key: str | None, json_path: str | None
) -> None:
    """Prove a bundle on this machine: hashes, golden inputs, effective settings."""
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.runtime.verification import verify
    from ipj_edge.values import Settings

    verification = verify(
        bundle, settings=Settings(threads=threads, allow_fallback=allow_fallback), digest=digest, key=key
    )
    if json_path != "-":
        _print(verification)
    if json_path is not None:
        report = {
            "bundle": verification.bundle.manifest.name,
            "digest": verification.bundle.manifest.digest,
            "outputs": verification.outputs,
            "requested": verification.requested,
            "effective": verification.effective,
        }
        _console.write_json(report, json_path)


def _print(verification: Verification) -> None:
    from ipj_edge.cli.printing import console as _console

    manifest = verification.bundle.manifest
    _console.say(f"{verification.bundle.path}: {len(manifest.files)} files have the recorded hashes")
    _console.say(f"digest: {manifest.digest}")
    for figures in verification.outputs:
        _console.say(
            f"output '{figures.output}': relative L2 {figures.relative_l2:.3g}, cosine {figures.cosine:.6f} "
            f"on {figures.samples} golden inputs"
        )
    _console.say(f"requested: {settings_text(verification.requested)}")
    for effective in verification.effective:
        _console.say(f"effective: {settings_text(effective)}")
    _console.say("verified")


def settings_text(settings: object) -> str:
    """Write settings on one line, what is not set left out."""
    import msgspec

    fields = msgspec.to_builtins(settings)
    return ", ".join(f"{key} {value}" for key, value in fields.items() if value not in (None, "", [], ()))
