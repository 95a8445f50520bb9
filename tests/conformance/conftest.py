"""The modules of the suite lie beside the tests: they run without pytest too (``make conformance``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
