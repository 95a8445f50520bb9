"""The child of a trial: ``python -m ipj_edge.conversion.trial_child BUNDLE TARGET QUESTION ANSWER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge.bundle import open_bundle
from ipj_edge.errors import IpjEdgeError
from ipj_edge.model import open_model
from ipj_edge.values import Settings


def main(bundle: str, target: str, question: Path, answer: Path) -> int:
    """Run the sets in a question through a bundle on a target; write the answers, or what was raised."""
    report = answer.with_suffix(".json")
    try:
        opened = open_model(open_bundle(bundle), Settings(), on=target)
        with opened as model, np.load(question, allow_pickle=False) as file:
            answers: dict[str, Any] = {}
            for name in dict.fromkeys(key.partition("/")[0] for key in file.files):
                feeds = {key.partition("/")[2]: file[key] for key in file.files if key.partition("/")[0] == name}
                answers |= {f"{name}/{key}": value for key, value in model.run(feeds).outputs.items()}
            np.savez(answer.with_suffix(".npz"), **answers)
            report.write_bytes(msgspec.json.encode(model.effective))
    except IpjEdgeError as error:
        report.write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
