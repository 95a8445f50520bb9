"""Make and check policies: what a user gives, and what a file claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ipj_edge.errors import ConfigError
from ipj_edge.exits.policy.values import ExitPolicy
from ipj_edge.protocols import ExitRule
from ipj_edge.values import Meaning


def make_policy(
    rule: ExitRule,
    thresholds: Sequence[float | None],
    meanings: Sequence[Meaning],
    *,
    parameters: Mapping[str, Sequence[float]] | None = None,
    recall: bool = False,
) -> ExitPolicy:
    """Make a policy for a model, checked.

    Args:
        rule: The exit rule.
        thresholds: One for every exit but the last; None or inf where nothing leaves.
        meanings: What the output of every exit holds, the last included.
        parameters: Parameters of the rule by name, one number for every exit.
        recall: Answer with the surest exit so far.

    Raises:
        ConfigError: see `check_policy`.
    """
    policy = ExitPolicy(
        rule=rule.name,
        thresholds=tuple(None if t is None or t == math.inf else float(t) for t in thresholds),
        parameters={name: tuple(map(float, values)) for name, values in (parameters or {}).items()},
        recall=recall,
    )
    check_policy(policy, rule, meanings)
    return policy


def check_policy(policy: ExitPolicy, rule: ExitRule, meanings: Sequence[Meaning]) -> None:
    """Check that a policy fits its rule and a model.

    Raises:
        ConfigError: a model with one exit, a wrong number of thresholds or parameters, a threshold outside the
            rule's range, or outputs the rule cannot judge; says what was expected.
    """
    exits = len(meanings)
    if exits < 2:
        raise ConfigError("this model has one exit: there is nothing to leave early; convert a model with two or more")
    if len(policy.thresholds) != exits - 1:
        raise ConfigError(
            f"{len(policy.thresholds)} thresholds for a model with {exits} exits: "
            f"give {exits - 1}, one for every exit but the last"
        )
    _check_meanings(rule, meanings)
    low, high = rule.bounds(exits)
    for index, threshold in enumerate(policy.thresholds):
        if threshold is not None and not (low <= threshold <= high and math.isfinite(threshold)):
            raise ConfigError(
                f"threshold {threshold:g} of exit {index}: scores of '{rule.name}' lie in {low:g}..{high:g}; "
                "use null (or inf) for an exit where nothing may leave"
            )
    for name, values in policy.parameters.items():
        _check_parameter(rule, name, values, exits)


def parameters_at(parameters: Mapping[str, Sequence[float]], exit_index: int) -> dict[str, float]:
    """Return the parameters of one exit by name."""
    return {name: values[exit_index] for name, values in parameters.items()}


def _check_meanings(rule: ExitRule, meanings: Sequence[Meaning]) -> None:
    if len(set(meanings)) > 1:
        raise ConfigError(f"the exits answer with different things ({', '.join(meanings)}): one rule cannot judge them")
    if meanings[0] not in rule.meanings:
        raise ConfigError(
            f"'{rule.name}' judges {' or '.join(rule.meanings)}, but the exits answer with '{meanings[0]}'; "
            "if they are scores of classes, convert again with --labels FILE, or with --output NAME:logits for each"
        )


def _check_parameter(rule: ExitRule, name: str, values: tuple[float, ...], exits: int) -> None:
    if name not in rule.parameters:
        known = ", ".join(rule.parameters) or "none"
        raise ConfigError(f"'{rule.name}' has no parameter '{name}'; it has: {known}")
    if len(values) != exits or not all(map(math.isfinite, values)):
        raise ConfigError(f"'{name}': expected {exits} finite numbers, one for every exit; got {list(values)}")
