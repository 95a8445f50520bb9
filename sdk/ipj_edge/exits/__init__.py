"""Early exit: when a sample may leave, thresholds chosen for joules, and the proof of what they cost.

Pure functions over arrays; nothing here knows an engine. The only file is ``exits.json``. What a device needs is
imported here; the search and the proof are in `ipj_edge.exits.proof.tuning`.
"""

from __future__ import annotations

from ipj_edge.exits.policy.policies import check_policy, make_policy
from ipj_edge.exits.policy.record import (
    EXITS_NAME,
    check_record,
    engine_files,
    make_record,
    read_exits,
    tuned_under,
    write_exits,
)
from ipj_edge.exits.policy.values import (
    Certificate,
    ExitPolicy,
    ExitsRecord,
    Expectation,
    FrontPoint,
    PolicyOrigin,
    StageCost,
    StageCosts,
    Tuned,
    TunedBundle,
    TuneRequest,
)
from ipj_edge.exits.run.drift import ExitShares
from ipj_edge.exits.run.gate import Gate, answering_exits

__all__ = [
    "EXITS_NAME",
    "Certificate",
    "ExitPolicy",
    "ExitShares",
    "ExitsRecord",
    "Expectation",
    "FrontPoint",
    "Gate",
    "PolicyOrigin",
    "StageCost",
    "StageCosts",
    "TuneRequest",
    "Tuned",
    "TunedBundle",
    "answering_exits",
    "check_policy",
    "check_record",
    "engine_files",
    "make_policy",
    "make_record",
    "read_exits",
    "tuned_under",
    "write_exits",
]
