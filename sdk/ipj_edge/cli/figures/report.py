"""``ipj-edge report``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML page to write.")
@click.option("--force", is_flag=True, help="Replace a page that is there.")
def command(files: tuple[str, ...], output: str, force: bool) -> int:
    """Write one self-contained HTML page of results, and of tunings of early exits.

    \b
    ipj-edge report result.json tuned.json -o report.html

    The page opens from disk and makes no request.
    """
    from ipj_edge.benchmark.report import is_tuned, read_tuned, render
    from ipj_edge.benchmark.result.files import check_free, read_result
    from ipj_edge.writing import write_file

    check_free([output], force=force)
    paths = [Path(file) for file in files]
    tuned = [read_tuned(path) for path in paths if is_tuned(path)]
    results = [read_result(path) for path in paths if not is_tuned(path)]
    write_file(Path(output), render(results, tuned).encode())
    return 0
