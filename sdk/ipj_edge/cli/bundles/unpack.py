"""``ipj-edge unpack``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("unpack")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "-o", "--into", default=".", show_default=True, type=click.Path(path_type=Path), help="Folder for the bundle."
)
@click.option("--digest", metavar="SHA256", help="Accept only the bundle whose manifest has this digest.")
@click.option("--key", type=click.Path(path_type=Path), help="Accept only a bundle signed with this public key (PEM).")
def command(archive: Path, into: Path, digest: str | None, key: Path | None) -> None:
    """Unpack a bundle that `pack` wrote, once all of it is checked; nothing is left behind otherwise."""
    from ipj_edge.bundles.packing import unpack_bundle
    from ipj_edge.cli.printing import console as _console

    bundle = unpack_bundle(archive, into, digest=digest, key=key)
    _console.say(f"unpacked {bundle.path}: {len(bundle.manifest.files)} files have the recorded hashes")
    _console.say(f"digest: {bundle.manifest.digest}")
