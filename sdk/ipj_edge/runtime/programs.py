"""The loaded programs of a bundle: the whole model, or its stages with the policy that says when to leave."""

from __future__ import annotations

from typing import Literal

import msgspec

from ipj_edge.bundles.bundle import check_unchecked
from ipj_edge.bundles.device_proof import read_proof
from ipj_edge.bundles.manifest import Bundle, Manifest, StageSpec
from ipj_edge.errors import BundleError, ConfigError, PluginNotFoundError, TargetUnavailableError
from ipj_edge.exits import (
    ExitPolicy,
    ExitsRecord,
    Gate,
    check_policy,
    check_record,
    engine_files,
    read_exits,
    tuned_under,
)
from ipj_edge.plugins import load_exit_rule, load_target
from ipj_edge.protocols import ChecksFiles, Session, Target
from ipj_edge.values import Meaning, Settings


class Programs:
    """Sessions of one bundle. Either the stages are loaded, or the whole program.

    Attributes:
        whole: The program that answers when no early exit is wanted; the last stage where the stages are loaded.
        stages: One session a stage, by depth; empty when the whole program is loaded.
        policy: When samples leave; None when only the caller decides.
        gate: The policy made ready.
        record: The ``exits.json`` the policy is from; None where there is none.
    """

    def __init__(
        self,
        whole: Session,
        stages: tuple[Session, ...] = (),
        gate: Gate | None = None,
        record: ExitsRecord | None = None,
    ) -> None:
        self.whole, self.stages, self.gate, self.record = whole, stages, gate, record
        self.policy = None if gate is None else gate.policy

    def clone(self) -> Programs:
        """Return the same programs for another thread."""
        stages = tuple(session.clone() for session in self.stages)
        return Programs(stages[-1] if stages else self.whole.clone(), stages, self.gate, self.record)

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        for session in self.stages or (self.whole,):
            session.close()


def open_programs(
    bundle: Bundle,
    settings: Settings,
    exits: ExitPolicy | Literal["auto", "off", "all"],
    on: str | None = None,
) -> Programs:
    """Load what is needed of a bundle; see `ipj_edge.load`.

    Args:
        bundle: The bundle.
        settings: How to run it.
        exits: Whether and when to leave early.
        on: Target that stands in for the bundle's own (see `HasProxy`); None runs it where it belongs.

    Raises:
        ConfigError: exits were asked for and the bundle has one, or the policy does not fit it.
        BundleError: its exits were tuned for other files or settings.
        TargetUnavailableError: the target does not run its precision, or a setting is not to be had.
    """
    stands_in = on is not None and on != bundle.manifest.target
    target = _target(bundle) if on is None else load_target(on)
    if stands_in:
        bundle = _with_proxy_files(bundle)
    manifest = bundle.manifest
    if manifest.precision not in target.precisions and not stands_in:
        raise TargetUnavailableError(
            f"'{target.name}' does not run {manifest.precision}; it runs {', '.join(target.precisions)}"
        )
    if len(manifest.stages) == 1:
        if isinstance(exits, ExitPolicy) or exits == "all":
            raise ConfigError("this bundle has one exit: there is nothing to leave early")
        return Programs(_open(target, bundle, settings)[0])
    record = read_exits(bundle.path) if exits == "auto" else None
    if exits == "off" or (exits == "auto" and (record is None or record.policy.never_exits)):
        return Programs(_unsplit(bundle, target, settings))
    stages = _open(target, bundle, settings)
    policy = exits if isinstance(exits, ExitPolicy) else None if record is None else record.policy
    return Programs(stages[-1], stages, _gate(manifest, policy, record, stages), record)


def check_later(bundle: Bundle) -> None:
    """Check what came into a bundle's folder after it was published, whether or not it is used.

    Raises:
        BundleError: it is damaged, or no plain file.
    """
    read_exits(bundle.path)
    read_proof(bundle)


def _target(bundle: Bundle) -> Target:
    try:
        return load_target(bundle.manifest.target)
    except PluginNotFoundError as error:
        raise BundleError(f"{bundle.path} is for an {error}") from error


def _open(target: Target, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
    """Open the stages of a bundle, no file of which is left unchecked: by the target as it loads it, or here."""
    loads: frozenset[str] = frozenset()
    if isinstance(target, ChecksFiles) and target.checks_files:
        loads = frozenset(stage.file for stage in bundle.manifest.stages)
    return target.open(check_unchecked(bundle, but=loads), settings)


def open_all(bundle: Bundle, settings: Settings, on: str | None = None) -> Programs:
    """Load what computes every output of the source: the stages where there are several."""
    return open_programs(bundle, settings, "all" if len(bundle.manifest.stages) > 1 else "off", on)


def exit_meanings(manifest: Manifest) -> tuple[Meaning, ...]:
    """Return what the output of every exit holds, by depth."""
    meanings = {spec.name: spec.meaning or "other" for spec in manifest.outputs}
    return tuple(meanings[name] for stage in manifest.stages if (name := stage.exit_output) is not None)


def _unsplit(bundle: Bundle, target: Target, settings: Settings) -> Session:
    manifest = bundle.manifest
    if manifest.unsplit is None:
        raise BundleError(f"{bundle.path} has several stages and no unsplit program: convert the model again")
    return _open(target, _only(bundle, manifest.unsplit), settings)[0]


def _with_proxy_files(bundle: Bundle) -> Bundle:
    """Return the bundle with the files that a stand-in runs where it cannot run the target's own."""
    stages = tuple(
        stage if stage.proxy_file is None else msgspec.structs.replace(stage, file=stage.proxy_file)
        for stage in bundle.manifest.stages
    )
    return msgspec.structs.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, stages=stages))


def _only(bundle: Bundle, stage: StageSpec) -> Bundle:
    return msgspec.structs.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, stages=(stage,)))


def _gate(
    manifest: Manifest, policy: ExitPolicy | None, record: ExitsRecord | None, stages: tuple[Session, ...]
) -> Gate | None:
    if policy is None:
        return None
    rule, meanings = load_exit_rule(policy.rule), exit_meanings(manifest)
    if record is None:
        check_policy(policy, rule, meanings)
    else:
        effective = tuple(session.effective for session in stages)
        check_record(record, rule, meanings, files=engine_files(manifest), settings=tuned_under(effective))
    return Gate(policy, rule, meanings[0])
