"""How often the certificate is broken, on real data: 200 seeded splits of MNIST.

    python -m benchmarks.exits.certificate [../shared/data] [--splits 200]

The answers of all exits of the network of ``early_exit.py`` (which trains it, when it is run first) to 20,000 images
it was not trained on are taken for the truth. Each split draws 4,000 of them with replacement, so that the harm of a
policy in the population is known exactly, and certifies harm ≤ δ with confidence 1 − α. The harm may exceed δ in at
most α + 3 standard errors of the splits. δ is 0.3 %, less than the first exit alone would do, so that the proof is
a hard one.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from benchmarks.compress.shared import mnist
from benchmarks.exits.early_exit import WEIGHTS, build
from benchmarks.exits.shared import parser

from ipj_edge.exits import Gate, PolicyOrigin, StageCost, StageCosts, TuneRequest
from ipj_edge.exits.proof.tuning import tune
from ipj_edge.plugins import load_exit_rule
from ipj_edge_compress.cost.size import size_of

DRAWN, HARM, ALPHA = 4_000, 0.003, 0.05
NOWHERE = PolicyOrigin(data_sha256="", files={}, settings={})


def answers(data: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the logits of every exit to 20,000 images that the network was not trained on, and the labels."""
    images, labels = mnist(data, "train", 60_000)
    net = build()
    with torch.no_grad():
        parts = [list(net(part).values()) for part in torch.from_numpy(images[-20_000:]).split(1000)]
    return [torch.cat(exit_parts).numpy() for exit_parts in zip(*parts, strict=True)], labels[-20_000:]


def costs() -> StageCosts:
    """Return the multiply-accumulates of every stage."""
    net, value = build(), torch.zeros(1, 1, 28, 28)
    stages = []
    for stage in net.stages:
        stages.append(StageCost(fixed=0, per_row=size_of(stage, value).macs))
        value = stage(value)
    return StageCosts(unit="MAC", source="counted", stages=tuple(stages))


def harm(gate: Gate | None, logits: list[np.ndarray], labels: np.ndarray) -> tuple[float, float]:
    """Return a policy's share of harmed samples in the population, and the share that leaves before the last exit."""
    if gate is None:
        return 0.0, 0.0
    answer, going = logits[-1].argmax(1), np.ones(len(labels), bool)
    for index in range(len(logits) - 1):
        leaves = going & gate.leaves(index, logits[: index + 1])
        answer[leaves] = logits[index][leaves].argmax(1)
        going &= ~leaves
    return float(((logits[-1].argmax(1) == labels) & (answer != labels)).mean()), float(1 - going.mean())


def main() -> None:
    """Draw, certify, count, print."""
    given = parser(__doc__ or "")
    given.add_argument("--splits", type=int, default=200)
    chosen = given.parse_args()
    if not WEIGHTS.exists():
        given.exit(1, "run early_exit.py first: it trains the network\n")
    logits, labels = answers(chosen.data)
    macs = costs()
    rule = load_exit_rule("max-probability")
    held, early, proven = [], [], 0
    for seed in range(chosen.splits):
        drawn = np.random.default_rng(seed).integers(0, len(labels), DRAWN)
        request = TuneRequest(epsilon=HARM, delta=ALPHA, seed=seed)
        tuned = tune([one[drawn] for one in logits], labels[drawn], macs, request, NOWHERE)
        proven += tuned.certificate.holds
        gate = Gate(tuned.policy, rule, "logits") if tuned.certificate.holds else None
        risk, share = harm(gate, logits, labels)
        held.append(risk <= HARM)
        early.append(share)
    broken = len(held) - sum(held)
    allowed = len(held) * ALPHA + 3 * math.sqrt(len(held) * ALPHA * (1 - ALPHA))
    verdict = "met" if broken <= allowed else "missed"
    print(
        f"MNIST, harm ≤ {HARM:.1%} at {1 - ALPHA:.0%}: {len(held)} splits, {proven} certified, "
        f"{np.mean(early):.1%} leave early on average; broken {broken} times, {allowed:.0f} allowed: {verdict}"
    )


if __name__ == "__main__":
    main()
