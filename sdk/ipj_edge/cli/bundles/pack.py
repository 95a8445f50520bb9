"""``ipj-edge pack``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("pack")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("-o", "--into", type=click.Path(path_type=Path), help="The .tar to write.  [default: BUNDLE.tar]")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(bundle: Path, into: Path | None, force: bool) -> None:
    """Write a bundle as one .tar. The same bundle gives the same bytes; `unpack` checks every one of them."""
    from ipj_edge.bundles.packing import pack_bundle
    from ipj_edge.cli.printing import console as _console

    destination = into or Path(f"{bundle.resolve()}.tar")
    packed = pack_bundle(bundle, destination, force=force)
    _console.say(f"packed {bundle} into {destination}")
    _console.say(f"digest: {packed.manifest.digest}")
