"""The fuzzer's modules lie beside its tests: they run without pytest too (``make fuzz``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
