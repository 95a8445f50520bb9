"""What early exit hands from one part to the next: policies, certificates, costs, and the content of ``exits.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ipj_edge.values import Interval, Meaning

Loss = Literal["harm", "inconsistency", "error", "deviation"]
Method = Literal["exact-binomial", "hoeffding-bentkus", "none"]
CostUnit = Literal["J", "s", "MAC"]


class ExitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a sample leaves: at the first exit whose score is at least that exit's threshold, else at the last.

    Attributes:
        rule: Name of the exit rule (entry-point group ``ipj_edge.exit_rules``).
        thresholds: One for every exit but the last; None where nothing ever leaves.
        parameters: Parameters of the rule by name, one number for every exit, the last included.
        recall: Answer with the surest exit passed so far, not with the one a sample leaves at.
    """

    rule: str
    thresholds: tuple[float | None, ...]
    parameters: dict[str, tuple[float, ...]] = {}
    recall: bool = False

    @property
    def never_exits(self) -> bool:
        """True when no sample ever leaves early: the unsplit program may answer."""
        return all(threshold is None for threshold in self.thresholds)


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What is proven of a policy: its risk is at most epsilon, at a confidence of 1 − delta.

    It holds for data like those it was tested on, in the files and under the settings it names. A certificate of
    method ``none`` proves nothing and says why.

    Attributes:
        method: The test behind the p-value.
        reason: Why method is ``none``; empty otherwise.
        loss: What risk is the mean of: ``harm`` (early answer wrong where the last exit is right),
            ``inconsistency`` (early answer differs from the last exit), ``error`` (answer wrong),
            ``deviation`` (distance to the last exit's output, 0..1).
        epsilon: Largest risk allowed, 0..1.
        delta: Probability allowed that the risk is larger all the same, 0..1.
        n_search: Samples the thresholds were searched on.
        n_test: Other samples the policy was tested on.
        risk: Mean loss on the test samples; None where none was tested.
        errors: Number of losses among the test samples where a loss is 0 or 1; None otherwise.
        p_value: p-value of "the risk is above epsilon" for this policy; None where none was tested.
        samples_missing: Samples, of both parts together, that are missing for a certificate at the risk seen;
            None where there is a certificate or no number would do.
        seed: Seed of the split and of the search.
        leavers: How many of the test samples left at each exit, the last included.
        data_sha256: Hash of the data.
        files: sha256 of every engine file, by path in the bundle.
        settings: Effective settings of the engine that produced the outputs.
    """

    method: Method
    reason: str = ""
    loss: Loss
    epsilon: float
    delta: float
    n_search: int
    n_test: int
    risk: float | None = None
    errors: int | None = None
    p_value: float | None = None
    samples_missing: int | None = None
    seed: int
    leavers: tuple[int, ...]
    data_sha256: str
    files: dict[str, str]
    settings: dict[str, str]

    @property
    def holds(self) -> bool:
        """True when something is proven."""
        return self.method != "none"


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a stage costs: ``fixed`` once a batch, ``per_row`` for every sample in it."""

    fixed: float
    per_row: float


class StageCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's stages cost, heads included, in one unit.

    Attributes:
        unit: Joules, seconds or multiply-accumulates.
        source: Where the figures come from, e.g. ``measured (rapl, package)``.
        stages: One entry a stage, in order of depth.
        unsplit: The unsplit program that answers when no exit is wanted; None takes all stages instead.
    """

    unit: CostUnit
    source: str
    stages: tuple[StageCost, ...]
    unsplit: StageCost | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy did on samples it was not searched on.

    Attributes:
        cost: Mean cost of an inference, in the unit of the stage costs.
        risk: Mean loss, 0..1.
        accuracy: Share of right answers with its 95 % interval; None without labels.
        leavers: How many samples left at each exit, the last included.
    """

    cost: float
    risk: float
    accuracy: Interval | None
    leavers: tuple[int, ...]


class FrontPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the trade between cost and risk: thresholds found on one part of the data, seen on the other.

    Attributes:
        thresholds: One for every exit but the last; None where nothing leaves.
        expected: What they did on the test samples. Not certified.
    """

    thresholds: tuple[float | None, ...]
    expected: Expectation


class ExitsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``exits.json``.

    Attributes:
        digest: sha256 of the file's own bytes with this field's 64 digits set to zero.
        costs: The stage costs the thresholds were searched with.
        times: Seconds of every stage, for answers before a deadline; None when they were not measured.
        batch: Batch size the costs were weighed for.
        expected: The policy on the test samples.
        never: The same samples without early exit.
    """

    schema_version: int
    digest: str = "0" * 64
    created_with: dict[str, str]
    policy: ExitPolicy
    certificate: Certificate
    costs: StageCosts
    times: StageCosts | None = None
    batch: int = 1
    expected: Expectation
    never: Expectation


class TunedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning as ``ipj-edge exits tune --json`` writes it and ``ipj-edge report`` reads it.

    Attributes:
        name: Name of the bundle's folder.
        record: What was written into its ``exits.json``.
        front: Trades between cost and accuracy seen on the way, cheapest first. Not certified.
    """

    name: str = ""
    record: ExitsRecord
    front: tuple[FrontPoint, ...] = ()


class TuneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants.

    Attributes:
        epsilon: Largest risk allowed, above 0 and below 1.
        delta: Probability allowed that the risk is larger all the same, above 0 and below 1.
        loss: What risk is the mean of; None means harm with labels and inconsistency without.
        meaning: What the exits answer with.
        rules: Exit rules to choose from.
        temperature: Fit a temperature for every exit of rules that take one.
        recall: Answer with the surest exit so far.
        batch: Batch size that costs are weighed for.
        deviation_scale: For loss ``deviation``: the distance that counts as a whole loss, in the outputs' unit.
        certify: False gives what the search finds, marked as not certified.
        search_share: Share of the samples that thresholds are searched on.
        seed: Seed of the split and of the search.
    """

    epsilon: float
    delta: float = 0.05
    loss: Loss | None = None
    meaning: Meaning = "logits"
    rules: tuple[str, ...] = ("max-probability",)
    temperature: bool = True
    recall: bool = False
    batch: int = 1
    deviation_scale: float | None = None
    certify: bool = True
    search_share: float = 0.25
    seed: int = 0


class PolicyOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the outputs come from; see `Certificate` for the fields."""

    data_sha256: str
    files: Mapping[str, str]
    settings: Mapping[str, str]


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What tuning found.

    Attributes:
        policy: The policy to ship: certified, or never exiting, or (only when asked for) not certified.
        certificate: What is proven of it.
        expected: The policy on the test samples.
        never: The same samples without early exit.
        front: Trades between cost and accuracy seen on the way, cheapest first. Not certified.
    """

    policy: ExitPolicy
    certificate: Certificate
    expected: Expectation
    never: Expectation
    front: tuple[FrontPoint, ...]
