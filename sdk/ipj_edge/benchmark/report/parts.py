"""The parts of the page that need no script: warnings, cards, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ipj_edge.benchmark.compare.pareto import rank
from ipj_edge.benchmark.report.view import kind_text, short_name
from ipj_edge.benchmark.result.pairs import title
from ipj_edge.benchmark.result.schema import BenchResult, Entry
from ipj_edge.benchmark.result.tables import mode_text
from ipj_edge.energy import Cost
from ipj_edge.exits import TunedBundle
from ipj_edge.units import bytes_text, interval_text, joules_text, seconds_text


def warnings(entries: Sequence[Entry], tuned: Sequence[TunedBundle]) -> str:
    """Return what a reader has to know first; the same warning of several entries is said once."""
    said: dict[str, list[str]] = {}
    for entry in entries:
        for text in _warnings_of(entry):
            said.setdefault(text, []).append(title(entry))
    for one in tuned:
        certificate = one.record.certificate
        if not certificate.holds:
            said.setdefault(f"the exits are not certified: {certificate.reason}", []).append(one.name)
    if not said:
        return ""
    items = "".join(f"<li>{escape(_sentence(text))} {_whose(names, len(entries))}</li>" for text, names in said.items())
    return f'<section class="warnings" id="warnings"><h2>Read this first</h2><ul>{items}</ul></section>'


def _warnings_of(entry: Entry) -> list[str]:
    found = list(entry.warnings)
    for target in entry.targets:
        if target.met is False:
            found.append(
                f"quality target missed: {target.figure} {target.value:.4g} where {target.least:g} is asked for"
            )
    if entry.joules_per_inference.value is None:
        found.append(f"no joules: {entry.joules_per_inference.reason}")
    elif entry.joules_per_inference.provenance == "modelled":
        found.append("joules are modelled from CPU time, not measured: good for comparing, not for a battery")
    return found


def cards(entries: Sequence[Entry]) -> str:
    """Return the winners: correct answers per joule for each kind of joules, latency, accuracy, size."""
    found = [
        _card("correct answers per joule" + f" ({group.provenance}, {group.boundary})",
              _rate_text(group.chosen.ipj.value), group.chosen)
        for group in rank(entries) if group.chosen and group.chosen.ipj
    ]  # fmt: skip
    queries = [entry for entry in entries if entry.scenario == "single-stream"] or list(entries)
    fast = min(queries, key=lambda entry: entry.latency_s.p50)
    found.append(_card("fastest median", seconds_text(fast.latency_s.p50), fast))
    right = [entry for entry in entries if entry.accuracy is not None]
    if right:
        best = max(right, key=lambda entry: entry.accuracy.value if entry.accuracy else 0.0)
        share = best.accuracy.value if best.accuracy else 0.0
        found.append(_card("most accurate", f"{100 * share:.2f} %", best))
    small = min(entries, key=lambda entry: entry.bytes)
    found.append(_card("smallest", bytes_text(small.bytes), small))
    return f'<div class="cards">{"".join(found)}</div>'


def summary(entries: Sequence[Entry]) -> str:
    """Return the table of all entries, intervals drawn as whiskers."""
    heads = ("bundle", "accuracy", "J / inference", "correct / J", "latency p50 – p99", "CPU / inf", "inf / s", "size")
    ranges = _Ranges(entries)
    rows = "".join(_summary_row(entry, ranges) for entry in entries)
    head = "".join(f'<th scope="col" aria-sort="none">{escape(name)}</th>' for name in heads)
    return (
        '<section id="summary"><h2>Summary</h2>'
        '<p class="soft small">Dots are values, bars their 95 % intervals (latency: p50 to p99). '
        "Click a heading to sort.</p>"
        f'<div class="scroll"><table class="stack" data-sortable><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def settings(entries: Sequence[Entry]) -> str:
    """Return what was asked for beside what really ran."""
    rows = "".join(_settings_row(entry) for entry in entries)
    heads = ("bundle", "threads", "spinning", "precision", "engine", "providers", "CPUs", "read back")
    return _section(
        "settings", "Requested and effective settings", "What differs from the request is marked.", heads, rows
    )


def quality(entries: Sequence[Entry]) -> str:
    """Return the scores of all metrics that were asked for; empty where there is accuracy alone."""
    rows = "".join(
        f"<tr>{_name(entry)}<td data-label='metric'>{escape(score.metric)}</td>"
        f"<td data-label='value' class='num'>{'—' if score.value is None else f'{score.value:.4g}'}</td>"
        f"<td data-label='interval' class='num'>{_ends(score.low, score.high, score.interval)}</td>"
        f"<td data-label='samples' class='num'>{score.n}</td><td>{escape(score.reason)}</td></tr>"
        for entry in entries
        for score in entry.quality
        if entry.accuracy is None or score.metric != entry.accuracy.metric
    )
    heads = ("bundle", "metric", "value", "95 % interval", "samples", "")
    return _section("quality", "Further scores", "", heads, rows) if rows else ""


def energy(entries: Sequence[Entry]) -> str:
    """Return energy in every form: gross, net, per 1,000, energy-delay product, TOPS/W, cost."""
    known = [entry for entry in entries if entry.joules_per_inference.value is not None]
    priced = ("carbon / 1,000", "price / 1,000") if any(entry.cost for entry in known) else ()
    rows = "".join(_energy_row(entry, priced) for entry in known)
    heads = ("bundle", "gross", "net of idle", "per 1,000", "energy × delay", "TOPS/W", *priced, "provenance")
    note = "Gross is all the probe saw. Net takes the idle power before and after away."
    notes = "".join(
        f"<p><b>{escape(title(entry))}</b>: {escape(entry.joules_per_inference.note)}</p>"
        for entry in known
        if entry.joules_per_inference.note
    )
    folded = f'<details class="small"><summary>Notes of the probes</summary>{notes}</details>' if notes else ""
    return _section("energy", "Energy", note, heads, rows, folded) if rows else ""


def environment(result: BenchResult) -> str:
    """Return the machine, versions and hashes, folded away."""
    facts = {**result.environment, **{f"version of {name}": text for name, text in result.created_with.items()}}
    rows = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items()
    )
    hashes = "".join(
        f"<tr>{_name(entry)}<td data-label='bundle' class='mono'>{escape(entry.digest)}</td>"
        f"<td data-label='data' class='mono'>{escape(entry.data_sha256)}</td></tr>"
        for entry in result.results
    )
    return (
        '<section id="environment"><details><summary>Machine, versions and hashes</summary>'
        f'<table>{rows}</table><div class="scroll"><table class="stack"><thead><tr><th>bundle</th>'
        f"<th>digest of its manifest</th><th>sha256 of the data</th></tr></thead><tbody>{hashes}</tbody></table></div>"
        "</details></section>"
    )


def stages(tuned: Sequence[TunedBundle]) -> str:
    """Return what every stage costs, from the tuning."""
    rows = "".join(
        f"<tr><td class='name'><b>{escape(one.name)}</b></td><td data-label='stage'>{index + 1}</td>"
        f"<td data-label='cost' class='num'>{escape(_cost_text(stage.fixed + stage.per_row, costs.unit))}</td>"
        f"<td data-label='source'>{escape(costs.source)}</td></tr>"
        for one in tuned
        for costs in (one.record.costs,)
        for index, stage in enumerate(costs.stages)
    )
    heads = ("bundle", "stage", "cost at batch 1", "source")
    return _section("stages", "What the stages cost", "", heads, rows) if rows else ""


class _Ranges:
    """The scales that whiskers of a column share."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.accuracy = _span([end for entry in entries if (own := entry.accuracy) for end in (own.low, own.high)])
        joules = [entry.joules_per_inference for entry in entries if entry.joules_per_inference.value is not None]
        self.joules = _span([0.0, *(own.high or own.value or 0.0 for own in joules)])
        self.latency = _span([0.0, *(entry.latency_s.p99 for entry in entries)])
        rates = [entry.ipj for entry in entries if entry.ipj is not None]
        self.ipj = _span([0.0, *(own.high or own.value for own in rates)])


def _summary_row(entry: Entry, ranges: _Ranges) -> str:
    accuracy, own, latency = entry.accuracy, entry.joules_per_inference, entry.latency_s
    cells = [
        _cell("accuracy", None if accuracy is None else accuracy.value,
              "—" if accuracy is None else f"{100 * accuracy.value:.2f} %",
              "" if accuracy is None else _whisker(accuracy.low, accuracy.value, accuracy.high, ranges.accuracy),
              entry.accuracy_reason if accuracy is None else ""),
        _cell("J / inference", own.value,
              "—" if own.value is None else interval_text(own.value, own.low, own.high, joules_text),
              "" if own.value is None else _whisker(own.low, own.value, own.high, ranges.joules),
              own.reason if own.value is None else f"{kind_text(entry)} ({own.probe})"),
        _cell("correct / J", None if entry.ipj is None else entry.ipj.value,
              "—" if entry.ipj is None else _rate_text(entry.ipj.value),
              "" if entry.ipj is None else _whisker(entry.ipj.low, entry.ipj.value, entry.ipj.high, ranges.ipj), ""),
        _cell("latency", latency.p50, f"{seconds_text(latency.p50)} – {seconds_text(latency.p99)}",
              _whisker(latency.p50, latency.p50, latency.p99, ranges.latency), ""),
        _cell("CPU / inf", entry.cpu_s_per_inference, seconds_text(entry.cpu_s_per_inference), "", ""),
        _cell("inf / s", entry.throughput_hz, _rate_text(entry.throughput_hz), "", ""),
        _cell("size", entry.bytes, bytes_text(entry.bytes), "", ""),
    ]  # fmt: skip
    return f"<tr>{_name(entry)}{''.join(cells)}</tr>"


def _name(entry: Entry) -> str:
    return (
        f'<td class="name" data-value="{escape(entry.bundle, quote=True)}">'
        f'<span class="swatch" data-swatch="{escape(entry.target, quote=True)}"></span>'
        f"<b>{escape(short_name(entry))}</b>"
        f'<br><span class="soft small">{escape(mode_text(entry))}</span></td>'
    )


def _cell(label: str, value: float | None, text: str, drawn: str, note: str) -> str:
    key = "" if value is None else f"{value!r}"
    below = f'<div class="soft small">{escape(note)}</div>' if note else ""
    return (
        f'<td data-label="{escape(label)}" data-value="{key}"><div><span class="num">{escape(text)}</span>'
        f"{drawn}{below}</div></td>"
    )


def _whisker(low: float | None, value: float, high: float | None, span: tuple[float, float]) -> str:
    """Draw a value and its interval on a scale; the text beside it says the same."""

    def place(at: float) -> float:
        return max(0.0, min(100.0, 100 * (at - span[0]) / (span[1] - span[0])))

    left, right = place(value if low is None else low), place(value if high is None else high)
    return (
        f'<span class="range" aria-hidden="true" style="color: var(--accent)">'
        f'<i style="left:{left:.2f}%;width:{right - left:.2f}%"></i><b style="left:{place(value):.2f}%"></b></span>'
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5 * abs(low) - 1e-12, high + 0.5 * abs(high) + 1e-12)


def _settings_row(entry: Entry) -> str:
    asked = entry.requested
    rows = []
    for effective in entry.effective:
        threads = "default" if asked.threads is None else str(asked.threads)
        spinning = "—" if effective.spinning is None else _word(effective.spinning)
        rows.append(
            f"<tr>{_name(entry)}"
            + _asked("threads", threads, str(effective.threads), asked.threads in (None, effective.threads))
            + _asked("spinning", _word(asked.spinning), spinning, effective.spinning in (None, asked.spinning))
            + f"<td data-label='precision'>{escape(entry.precision)} → {escape(effective.execution_precision)}</td>"
            + f"<td data-label='engine'>{escape(effective.engine)} {escape(effective.engine_version)}</td>"
            + f"<td data-label='providers'>{escape(', '.join(effective.providers) or '—')}</td>"
            + f"<td data-label='CPUs'>{effective.affinity}{_quota(effective.cpu_quota)}</td>"
            + f"<td data-label='read back' class='small'>{escape(', '.join(effective.read_back) or 'nothing')}</td>"
            + "</tr>"
        )
    return "".join(rows)


def _asked(label: str, asked: str, got: str, as_asked: bool) -> str:
    kind = "" if as_asked else " class='differs'"
    return f"<td data-label='{label}'{kind}>{escape(asked)} → {escape(got)}</td>"


def _energy_row(entry: Entry, priced: Sequence[str]) -> str:
    own, net, cost = entry.joules_per_inference, entry.joules_per_inference.net, entry.cost
    value = own.value or 0.0
    net_text = "—"
    if net is not None:
        net_text = net.reason if net.value is None else interval_text(net.value, net.low, net.high, joules_text)
    gain = "not stated" if own.accuracy is None else f"±{100 * own.accuracy:g} %"
    cells = {
        "gross": interval_text(value, own.low, own.high, joules_text),
        "net of idle": net_text,
        "per 1,000": joules_text(1000 * value),
        "energy × delay": "—" if entry.energy_delay_js is None else f"{entry.energy_delay_js.value:.3g} J·s",
        "TOPS/W": "—" if entry.tops_per_watt is None else f"{entry.tops_per_watt:.3g}",
        "carbon / 1,000": "—" if cost is None or cost.carbon_g is None else f"{cost.carbon_g.value:.3g} g",
        "price / 1,000": _price_text(cost),
        "provenance": f"{kind_text(entry)} ({own.probe}), {own.windows} windows, gain error {gain}",
    }
    left_out = {"carbon / 1,000", "price / 1,000"} - set(priced)
    drawn = "".join(_plain(label, text) for label, text in cells.items() if label not in left_out)
    return f"<tr>{_name(entry)}{drawn}</tr>"


def _price_text(cost: Cost | None) -> str:
    return "—" if cost is None or cost.price is None else f"{cost.price.value:.3g} {cost.currency}".strip()


def _plain(label: str, text: str) -> str:
    # Figures stay on one line; reasons and notes may wrap.
    kind = " class='num'" if len(text) < 24 else ""
    return f"<td data-label='{label}'><span{kind}>{escape(text)}</span></td>"


def _section(name: str, heading: str, note: str, heads: Sequence[str], rows: str, after: str = "") -> str:
    below = f'<p class="soft small">{escape(note)}</p>' if note else ""
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in heads)
    return (
        f'<section id="{name}"><h2>{escape(heading)}</h2>{below}<div class="scroll"><table class="stack"><thead>'
        f"<tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{after}</section>"
    )


def _card(what: str, big: str, entry: Entry) -> str:
    return (
        f'<div class="card"><div class="what">{escape(what)}</div><div class="big num">{escape(big)}</div>'
        f'<div class="who">{escape(short_name(entry))}</div>'
        f'<div class="soft small">{escape(mode_text(entry))}</div></div>'
    )


def _whose(names: Sequence[str], entries: int) -> str:
    text = f"all {entries} measurements" if len(names) == entries > 1 else ", ".join(names)
    return f'<span class="small">— {escape(text)}</span>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _ends(low: float | None, high: float | None, kind: str) -> str:
    return "—" if low is None or high is None else f"{low:.4g} to {high:.4g} ({kind})"


def _cost_text(cost: float, unit: str) -> str:
    known = {"J": joules_text, "s": seconds_text}
    return known[unit](cost) if unit in known else f"{cost:,.0f} {unit}"


def _rate_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _word(flag: bool) -> str:
    return "on" if flag else "off"


def _quota(quota: float | None) -> str:
    return "" if quota is None else f", quota {quota:g}"
