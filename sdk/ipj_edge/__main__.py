"""``python -m ipj_edge`` is ``ipj-edge``."""

from ipj_edge.cli import main

main()
