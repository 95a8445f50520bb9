"""A signal may arrive between any two instructions of `Model.run`: the model goes on to answer, and rightly."""

import subprocess
import sys
from pathlib import Path

import pytest

# Signals come from a process of their own, at random moments, until the child has taken as many as it was told to.
CHILD = """
import os, random, signal, subprocess, sys
import numpy as np
import ipj_edge
from ipj_edge.errors import InputError

class Struck(BaseException):  # as KeyboardInterrupt is: numpy takes an Exception for an answer
    pass

armed = False

def strike(*_):
    global armed
    if armed:
        armed = False
        raise Struck

signals, struck, done = int(sys.argv[2]), 0, 0
model = ipj_edge.load(sys.argv[1], threads=1)
images = np.random.default_rng(0).random((4, 1, 8, 8)).astype(np.float32)
wanted = {rows: model.run(images[:rows]).outputs["logits"] for rows in (1, 4)}
sender = subprocess.Popen([sys.executable, "-c", f'''
import os, random, time
random.seed(0)
while True:
    time.sleep(random.uniform(0.0005, 0.002))
    os.kill({os.getpid()}, 10)
'''], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
signal.signal(signal.SIGUSR1, strike)
while struck < signals:
    rows = 1 if done % 3 else 4
    done += 1
    try:
        armed = True
        for _ in range(20):
            answer = model.run(images[:rows]).outputs["logits"]
            if not np.array_equal(answer, wanted[rows]):
                raise SystemExit(f"a wrong answer after an interrupt, {rows} rows")
        armed = False
    except Struck:
        struck += 1
    except InputError as error:
        raise SystemExit(f"locked after {struck} signals: {error}")
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
sender.kill()
sender.wait()
print("struck", struck)
"""


@pytest.mark.parametrize("target", ["openvino-cpu", "onnxruntime-cpu", "tflite-cpu"])
def test_hundreds_of_signals_leave_a_model_that_answers_rightly(bundles: Path, target: str) -> None:
    bundle = bundles / f"digits.{target}.int8.ipj"
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(bundle), "400"], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr
    assert "struck 400" in child.stdout
