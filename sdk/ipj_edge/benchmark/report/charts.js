"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const entries = data.entries;
  const tip = document.getElementById("tip");
  const NS = "http://www.w3.org/2000/svg";
  const targets = [...new Set(entries.map((e) => e.target))];
  const color = (target) => `var(--c${targets.indexOf(target) % 8})`;
  const hidden = new Set();

  // Numbers as people read them.
  const SI = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const digits = (v) => {
    if (v === 0) return "0";
    const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(v))));
    return v.toFixed(Math.min(places, 6)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  };
  const si = (v, unit) => {
    if (v === 0) return `0 ${unit}`;
    const [factor, prefix] = SI.find(([f]) => Math.abs(v) >= 0.9995 * f) || SI[SI.length - 1];
    return `${digits(v / factor)} ${prefix}${unit}`;
  };
  const percent = (v) => `${(100 * v).toFixed(2)} %`;
  const between = (low, high, write) => (low === null || high === null ? "" : ` (${write(low)} to ${write(high)})`);

  // SVG without a library.
  const make = (name, attributes = {}, text) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const canvas = (host, height, label) => {
    const width = Math.max(260, host.clientWidth);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    host.replaceChildren(svg);
    return { svg, width, height };
  };
  const linear = (d0, d1, r0, r1) => {
    const scale = (v) => r0 + ((v - d0) / (d1 - d0 || 1)) * (r1 - r0);
    scale.ticks = (n) => {
      const raw = (d1 - d0) / n || 1;
      const size = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= raw);
      const found = [];
      for (let i = Math.ceil(d0 / step - 1e-9); i * step <= d1 + 1e-9 * step; i++) found.push(i * step);
      return found;
    };
    return scale;
  };
  const logarithmic = (d0, d1, r0, r1) => {
    const inner = linear(Math.log10(d0), Math.log10(d1), r0, r1);
    const scale = (v) => inner(Math.log10(v));
    scale.ticks = (n) => {
      const at = (marks) => {
        const found = [];
        for (let p = Math.floor(Math.log10(d0)); p <= Math.ceil(Math.log10(d1)); p++)
          for (const m of marks) { const v = m * 10 ** p; if (v >= d0 && v <= d1) found.push(v); }
        return found;
      };
      // The finest marks that still have room.
      const sets = [[1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8], [1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].map(at);
      const fitting = sets.find((found) => found.length <= n) || sets[4].filter((_, k) => k % Math.ceil(sets[4].length / n) === 0);
      return fitting.length ? fitting : sets[0].slice(0, 1);
    };
    return scale;
  };
  const axisX = (svg, scale, y0, y1, ticks, write, title) => {
    for (const v of ticks) {
      svg.append(make("line", { class: "grid", x1: scale(v), x2: scale(v), y1: y0, y2: y1 }));
      svg.append(make("text", { x: scale(v), y: y1 + 16, "text-anchor": "middle" }, write(v)));
    }
    if (title) svg.append(make("text", { x: (scale.left + scale.right) / 2, y: y1 + 34, "text-anchor": "middle" }, title));
  };
  const axisY = (svg, scale, x0, x1, ticks, write, title) => {
    for (const v of ticks) {
      svg.append(make("line", { class: "grid", x1: x0, x2: x1, y1: scale(v), y2: scale(v) }));
      svg.append(make("text", { x: x0 - 6, y: scale(v) + 4, "text-anchor": "end" }, write(v)));
    }
    if (title) svg.append(make("text", { x: 0, y: 12 }, title));
  };

  // One tooltip for mouse, finger and keyboard.
  const place = (x, y) => {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 12, innerWidth - box.width - 6))}px`;
    tip.style.top = `${y + box.height + 18 > innerHeight ? y - box.height - 12 : y + 14}px`;
  };
  const explain = (node, text) => {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", text);
    const show = (x, y) => { tip.textContent = text; place(x, y); };
    node.addEventListener("pointermove", (e) => show(e.clientX, e.clientY));
    node.addEventListener("pointerdown", (e) => show(e.clientX, e.clientY));
    node.addEventListener("pointerleave", () => { tip.hidden = true; });
    node.addEventListener("focus", () => { const b = node.getBoundingClientRect(); show(b.right, b.top); });
    node.addEventListener("blur", () => { tip.hidden = true; });
  };

  const SHAPES = { fp32: "circle", int8: "square", fp16: "diamond", bf16: "triangle" };
  const marker = (x, y, precision, fill) => {
    const r = 6.5;
    const paths = {
      circle: `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
      square: `M${x - r + 0.5},${y - r + 0.5}h${2 * r - 1}v${2 * r - 1}h${1 - 2 * r}z`,
      diamond: `M${x},${y - r - 1}l${r + 1},${r + 1}l${-r - 1},${r + 1}l${-r - 1},${-r - 1}z`,
      triangle: `M${x},${y - r - 1}l${r + 1},${2 * r}h${-2 * r - 2}z`,
    };
    return make("path", { d: paths[SHAPES[precision] || "circle"], fill, stroke: "var(--card)", "stroke-width": 1.5 });
  };
  const story = (e) => [
    e.title,
    e.accuracy && `${e.accuracy.metric}: ${percent(e.accuracy.value)}${between(e.accuracy.low, e.accuracy.high, percent)}`,
    e.joules.value !== null && `energy: ${si(e.joules.value, "J")}${between(e.joules.low, e.joules.high, (v) => si(v, "J"))} per inference, ${e.joules.provenance}, ${e.joules.boundary}`,
    e.ipj && `${digits(e.ipj.value)} correct answers per joule`,
    `p50 ${si(e.p50, "s")}, p99 ${si(e.p99, "s")}, CPU ${si(e.cpu, "s")}`,
  ].filter(Boolean).join("\n");
  const visible = () => entries.filter((e) => !hidden.has(e.target));

  // Accuracy against joules.
  const paretoPlot = (host) => {
    const kind = document.getElementById("kind");
    const wanted = kind ? kind.value : host.dataset.kind;
    const points = visible().filter((e) => e.accuracy && e.joules.value !== null && e.kind === wanted);
    const { svg, width, height } = canvas(host, Math.min(420, Math.max(300, host.clientWidth * 0.5)), "Accuracy against joules per inference");
    if (!points.length) { svg.append(make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show for this choice")); return; }
    const left = 56, right = width - 14, top = 24, bottom = height - 44;
    const lows = points.map((e) => e.joules.low || e.joules.value), highs = points.map((e) => e.joules.high || e.joules.value);
    const x = logarithmic(Math.min(...lows) / 1.15, Math.max(...highs) * 1.15, left, right);
    x.left = left; x.right = right;
    const floor = Math.min(...points.map((e) => e.accuracy.low)), roof = Math.max(...points.map((e) => e.accuracy.high));
    const slack = Math.max(0.002, 0.08 * (roof - floor));
    const y = linear(Math.max(0, floor - slack), Math.min(1, roof + slack), bottom, top);
    axisX(svg, x, top, bottom, x.ticks(width < 480 ? 4 : 8), (v) => si(v, "J"), "joules per inference (fewer is better)");
    axisY(svg, y, left, right, y.ticks(6), (v) => `${digits(100 * v)} %`, "accuracy");
    const front = points.filter((e) => e.front).sort((a, b) => a.joules.value - b.joules.value);
    if (front.length > 1) {
      const steps = front.map((e, i) => (i ? `H${x(e.joules.value)}V${y(e.accuracy.value)}` : `M${x(e.joules.value)},${y(e.accuracy.value)}`));
      svg.append(make("path", { d: steps.join(""), fill: "none", stroke: "var(--soft)", "stroke-width": 1.5, "stroke-dasharray": "5 4" }));
    }
    const taken = [];
    for (const e of points) {
      const px = x(e.joules.value), py = y(e.accuracy.value), stroke = color(e.target);
      const group = make("g", {});
      const whisker = (x1, x2, y1, y2) => group.append(make("line", { x1, x2, y1, y2, stroke, "stroke-width": 1.5, opacity: 0.55 }));
      if (e.joules.low !== null) whisker(x(Math.max(e.joules.low, 1e-12)), x(e.joules.high), py, py);
      whisker(px, px, y(e.accuracy.low), y(e.accuracy.high));
      group.append(make("circle", { cx: px, cy: py, r: 16, fill: "transparent" }), marker(px, py, e.precision, stroke));
      explain(group, story(e));
      svg.append(group);
      taken.push([px, py]);
    }
    for (const e of front) {
      const px = x(e.joules.value), py = y(e.accuracy.value), flip = px > (left + right) / 2;
      const free = !taken.some(([tx, ty]) => (tx !== px || ty !== py) && Math.abs(ty - (py - 12)) < 14 && (flip ? tx < px && tx > px - 150 : tx > px && tx < px + 150));
      if (free || e.best) svg.append(make("text", { class: "label", x: px + (flip ? -10 : 10), y: py - 10, "text-anchor": flip ? "end" : "start" }, e.short));
    }
  };

  // Latencies: one histogram a row on one logarithmic axis.
  const latencyPlot = (host) => {
    const shown = visible().filter((e) => e.histogram);
    const row = 54, top = 8, bottomSpace = 40;
    const { svg, width, height } = canvas(host, top + bottomSpace + row * Math.max(1, shown.length), "Distribution of latencies");
    if (!shown.length) { svg.append(make("text", { x: width / 2, y: 30, "text-anchor": "middle" }, "no latencies to show")); return; }
    const left = 4, right = width - 8, bottom = height - bottomSpace;
    // The last thousandth would squeeze everything else into a corner.
    const cut = (e) => { const total = e.histogram.counts.reduce((a, b) => a + b, 0); let seen = 0; for (let i = 0; i < e.histogram.counts.length; i++) { seen += e.histogram.counts[i]; if (seen >= 0.999 * total) return e.histogram.edges[i + 1]; } return e.histogram.edges.at(-1); };
    const x = logarithmic(Math.min(...shown.map((e) => e.histogram.edges[0])) / 1.05, Math.max(...shown.map((e) => Math.max(cut(e), e.p99))) * 1.1, left, right);
    x.left = left; x.right = right;
    axisX(svg, x, top, bottom, x.ticks(width < 480 ? 4 : 9), (v) => si(v, "s"), "seconds of a query (logarithmic)");
    shown.forEach((e, index) => {
      const base = top + row * (index + 1) - 6, tall = Math.max(...e.histogram.counts), group = make("g", {});
      let path = "";
      e.histogram.counts.forEach((count, i) => {
        const x0 = x(e.histogram.edges[i]), x1 = Math.min(right, x(e.histogram.edges[i + 1])), h = (count / tall) * (row - 24);
        if (x0 < right) path += `${i ? "L" : "M"}${x0},${base - h}H${x1}`;
      });
      group.append(make("path", { d: `${path}V${base}H${x(e.histogram.edges[0])}Z`, fill: color(e.target), opacity: 0.28 }));
      group.append(make("path", { d: path, fill: "none", stroke: color(e.target), "stroke-width": 1.2 }));
      for (const [value, wide] of [[e.p50, 2.5], [e.p90, 1.5], [e.p99, 1.5]])
        if (x(value) <= right) group.append(make("line", { x1: x(value), x2: x(value), y1: base - row + 24, y2: base, stroke: color(e.target), "stroke-width": wide }));
      group.append(make("line", { x1: left, x2: right, y1: base, y2: base, class: "grid" }));
      const far = x(e.p50) > (left + right) / 2;
      group.append(make("text", { class: "label", x: far ? left : right, y: base - row + 20, "text-anchor": far ? "start" : "end" }, width < 480 ? e.short : e.title));
      explain(group, `${e.title}\np50 ${si(e.p50, "s")}, p90 ${si(e.p90, "s")}, p99 ${si(e.p99, "s")}\nleast ${e.least === null ? "not known" : si(e.least, "s")}, most ${e.most === null ? "not known" : si(e.most, "s")}`);
      svg.append(group);
    });
  };

  // Power over time with the windows; without power, CPU time per window.
  const windowPlot = (host) => {
    const e = entries[Number(document.getElementById("entry").value)];
    const { svg, width, height } = canvas(host, 330, "Windows of the measurement");
    const note = document.getElementById("window-note");
    note.textContent = "";
    if (!e.windows.length) { svg.append(make("text", { x: width / 2, y: 120, "text-anchor": "middle" }, "this result holds no windows")); return; }
    const left = 56, right = width - 10, top = 24, bottom = height - 40;
    const power = e.windows.every((w) => w.joules !== null);
    const level = (w) => (power ? w.joules / w.seconds : w.cpu_s / w.inferences);
    const write = (v) => si(v, power ? "W" : "s");
    const trace = power && e.trace;
    const levels = e.windows.map(level).concat(trace ? trace.power : []);
    const end = Math.max(...e.windows.map((w) => w.start + w.seconds), ...(trace ? trace.time : [0]));
    const begin = Math.min(0, ...(trace ? trace.time : [0]));
    const x = linear(begin, end, left, right), y = linear(0, Math.max(...levels) * 1.1 || 1, bottom, top);
    x.left = left; x.right = right;
    axisY(svg, y, left, right, y.ticks(5), write, power ? "power" : "CPU time per inference");
    for (const w of e.windows) svg.append(make("rect", { class: "band", x: x(w.start), width: Math.max(1, x(w.start + w.seconds) - x(w.start)), y: top, height: bottom - top }));
    axisX(svg, x, bottom, bottom, x.ticks(width < 480 ? 5 : 9), (v) => `${digits(v)} s`, "time");
    if (trace) {
      const points = trace.time.map((t, i) => `${x(t)},${y(trace.power[i])}`).join(" ");
      svg.append(make("polyline", { points, fill: "none", stroke: color(e.target), "stroke-width": 1, opacity: 0.8 }));
    }
    e.windows.forEach((w, i) => {
      const group = make("g", {});
      group.append(make("line", { x1: x(w.start), x2: x(w.start + w.seconds), y1: y(level(w)), y2: y(level(w)), stroke: color(e.target), "stroke-width": 3, "stroke-linecap": "round" }));
      group.append(make("rect", { x: x(w.start), width: Math.max(6, x(w.start + w.seconds) - x(w.start)), y: top, height: bottom - top, fill: "transparent" }));
      explain(group, [
        `window ${i + 1}: ${digits(w.seconds)} s, ${w.inferences} inferences`,
        power ? `${si(w.joules, "J")}, ${si(w.joules / w.seconds, "W")}, ${si(w.joules / w.inferences, "J")} per inference` : w.reason,
        `CPU ${si(w.cpu_s / w.inferences, "s")} per inference, p50 ${si(w.p50_s, "s")}, p99 ${si(w.p99_s, "s")}`,
        w.waited_s !== null && `waited ${si(w.waited_s, "s")} for a CPU`,
        w.frequency_hz !== null && `clock ${si(w.frequency_hz, "Hz")}`,
        w.temperature_celsius !== null && `${digits(w.temperature_celsius)} °C`,
      ].filter(Boolean).join("\n"));
      svg.append(group);
    });
    note.textContent = !power ? `No joules: ${e.joules.reason}. Shown is CPU time.` : trace ? "Line: the probe's samples. Bars: mean of each window." : "This probe counts energy: each bar is the mean power of a window.";
  };

  // Which exit answered, and how right it was.
  const exitPlot = (host) => {
    const staged = entries.filter((e) => e.exits.length > 1);
    const row = 30, gap = 26;
    const total = staged.reduce((sum, e) => sum + e.exits.length * row + gap, 0);
    const { svg, width } = canvas(host, total + 30, "Share of inputs that left at each exit");
    const narrow = width < 480, left = narrow ? 74 : 130, right = width - (narrow ? 56 : 150), x = linear(0, 1, left, right);
    let y = 0;
    for (const e of staged) {
      svg.append(make("text", { class: "label", x: 0, y: y + 15 }, narrow ? e.short : e.title));
      y += gap;
      for (const exit of e.exits) {
        const group = make("g", {});
        group.append(make("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, exit.name));
        group.append(make("rect", { x: left, y: y + 3, width: right - left, height: row - 10, class: "band", rx: 4 }));
        group.append(make("rect", { x: left, y: y + 3, width: Math.max(1, x(exit.share) - left), height: row - 10, fill: color(e.target), opacity: 0.75, rx: 4 }));
        const right_share = exit.accuracy ? `, ${percent(exit.accuracy.value)} right` : "";
        group.append(make("text", { class: "label", x: right + 8, y: y + 17 }, `${digits(100 * exit.share)} %${narrow ? "" : right_share}`));
        explain(group, `${exit.name}: ${digits(100 * exit.share)} % of the inputs${right_share}`);
        svg.append(group);
        y += row;
      }
    }
  };

  // Is a confidence of 90 % right 90 % of the time?
  const reliabilityPlot = (host) => {
    const shown = visible().filter((e) => e.reliability.length);
    const side = Math.min(380, host.clientWidth);
    const { svg, width, height } = canvas(host, side, "Reliability of confidences");
    const left = 48, right = Math.min(width - 10, left + side), top = 24, bottom = height - 44;
    const x = linear(0, 1, left, right), y = linear(0, 1, bottom, top);
    x.left = left; x.right = right;
    axisX(svg, x, top, bottom, [0, 0.25, 0.5, 0.75, 1], (v) => `${100 * v} %`, "confidence");
    axisY(svg, y, left, right, [0, 0.25, 0.5, 0.75, 1], (v) => `${100 * v} %`, "share that is right");
    svg.append(make("line", { x1: left, y1: bottom, x2: right, y2: top, stroke: "var(--soft)", "stroke-dasharray": "4 4" }));
    for (const e of shown) {
      svg.append(make("polyline", { points: e.reliability.filter((b) => b.n >= 10).map((b) => `${x(b.confidence)},${y(b.accuracy)}`).join(" "), fill: "none", stroke: color(e.target), "stroke-width": 1.2, opacity: 0.6 }));
      for (const b of e.reliability) {
        const dot = make("circle", { cx: x(b.confidence), cy: y(b.accuracy), r: 3 + 5 * Math.sqrt(b.n / e.samples), fill: color(e.target), opacity: 0.8 });
        explain(dot, `${e.title}\nconfidence ${percent(b.confidence)}: ${percent(b.accuracy)} right, ${b.n} samples`);
        svg.append(dot);
      }
    }
  };

  // What `exits tune` found: risk or accuracy against cost.
  const tuningPlot = (host) => {
    const { svg, width, height } = canvas(host, 300, "Tuning front");
    const left = 56, right = width - 14, top = 24, bottom = height - 44;
    const points = data.tuned.flatMap((t) => t.front.map((p) => ({ ...p, name: t.name })));
    const x = linear(0, Math.max(...points.map((p) => p.cost)) * 1.05, left, right);
    const lows = points.map((p) => p.accuracy), slack = Math.max(0.002, 0.1 * (Math.max(...lows) - Math.min(...lows)));
    const y = linear(Math.min(...lows) - slack, Math.min(1, Math.max(...lows) + slack), bottom, top);
    x.left = left; x.right = right;
    const unit = data.tuned[0].unit;
    axisX(svg, x, top, bottom, x.ticks(width < 480 ? 4 : 8), (v) => si(v, unit), "expected cost of an inference");
    axisY(svg, y, left, right, y.ticks(5), (v) => `${digits(100 * v)} %`, "accuracy");
    data.tuned.forEach((t, i) => {
      const sorted = [...t.front].sort((a, b) => a.cost - b.cost);
      svg.append(make("polyline", { points: sorted.filter((p) => !p.chosen).map((p) => `${x(p.cost)},${y(p.accuracy)}`).join(" "), fill: "none", stroke: `var(--c${i % 8})`, "stroke-width": 1.5 }));
      for (const p of sorted) {
        const dot = make("circle", { cx: x(p.cost), cy: y(p.accuracy), r: p.chosen ? 7 : 4, fill: `var(--c${i % 8})` });
        explain(dot, `${t.name}${p.chosen ? " (chosen)" : ""}\n${percent(p.accuracy)} at ${si(p.cost, unit)}\nleave early: ${p.leave}`);
        svg.append(dot);
      }
    });
  };

  const PLOTS = { pareto: paretoPlot, latency: latencyPlot, windows: windowPlot, exits: exitPlot, reliability: reliabilityPlot, tuning: tuningPlot };
  const draw = () => { for (const host of document.querySelectorAll("[data-plot]")) PLOTS[host.dataset.plot](host); };

  for (const host of document.querySelectorAll("[data-legend]")) {
    for (const target of targets) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.target = target;
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = color(target);
      button.append(swatch, target);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (hidden.has(target)) hidden.delete(target); else hidden.add(target);
        for (const other of document.querySelectorAll("[data-legend] button")) other.setAttribute("aria-pressed", String(!hidden.has(other.dataset.target)));
        draw();
      });
      host.append(button);
    }
  }
  for (const swatch of document.querySelectorAll("[data-swatch]")) swatch.style.background = color(swatch.dataset.swatch);
  for (const select of document.querySelectorAll("select")) select.addEventListener("change", draw);

  // Sort the summary by the values behind its cells.
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    table.querySelectorAll("th[aria-sort]").forEach((head) => {
      head.setAttribute("tabindex", "0");
      const column = [...head.parentNode.children].indexOf(head);
      const sort = () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const key = (row) => { const raw = row.children[column].dataset.value; return raw === undefined || raw === "" ? null : Number.isNaN(Number(raw)) ? raw : Number(raw); };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [p, q] = [key(a), key(b)];
          if (p === null || q === null) return (p === null) - (q === null);
          return (p < q ? -1 : p > q ? 1 : 0) * (rising ? 1 : -1);
        });
        table.tBodies[0].append(...rows);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
    });
  }

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  let last = 0;
  addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; draw(); } });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  draw();
})();
