"use strict";
let page = JSON.parse(document.getElementById("data").textContent);
let plots = [];
const input = (id) => document.getElementById(id);
const titles = { env: "env steps", opt: "optimization steps", s: "wall time, seconds" };
const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
const ends = { solved: ["star", 13], done: ["circle", 8], recorded: ["circle", 8], stopped: ["square", 8], running: null };
const killed = ["x", 9];
const listed = 16; // lines whose values are shown at once
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const number = (value) => Math.abs(value) >= 1e4 && Number.isInteger(value) ? value.toLocaleString("en") : String(parseFloat(value.toPrecision(5)));
const symbol = (i) => symbols[(i + Math.floor(i / symbols.length)) % symbols.length];
const hidden = (line) => ["config", "run"].some((kind) => kind in line
  && document.querySelector(`[data-${kind}="${line[kind]}"]`)?.checked === false);

/** Exponential moving average without the bias of its first value; null stays null. */
function smoothed(values) {
  const weight = Number(input("smooth").value);
  if (!weight || !values) return values;
  let sum = 0, mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + 1 - weight;
    return sum / mass;
  });
}

/** The columns of a line against the chosen x, smoothed. */
function columns(chart, line) {
  const of = (kind) => line.aggregate ? line.aggregate[kind] : page.xs[line.x][kind] && { ...line, x: page.xs[line.x][kind] };
  const found = of(input("x").value || chart.x) ?? of(chart.x);
  return { ...found, y: smoothed(found.y), low: smoothed(found.low), high: smoothed(found.high) };
}

/** The index of the last point at or before a place; -1 before the first. */
function before(x, place) {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= place) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** A column's value at a place, between two points on the line through them; null outside of it. */
function valueAt(x, column, place) {
  const i = before(x, place);
  if (i < 0 || column?.[i] == null) return null;
  if (x[i] === place) return column[i];
  if (i + 1 >= x.length || column[i + 1] === null) return null;
  return column[i] + (column[i + 1] - column[i]) * (place - x[i]) / (x[i + 1] - x[i]);
}

/** How many runs a mean is of at each point: those that go on, those in the mean, and all. They are seeds where each has one. */
const membersOf = ({ live, counted, seeds, live_runs, counted_runs, runs }) => runs
  ? { live: live_runs, counted: counted_runs, all: runs, unit: "runs" } : { live, counted, all: seeds, unit: "seeds" };

/** How many seeds a mean is of, where it is not of all that run. */
function seedsAt(drawn, place) {
  const i = Math.max(0, before(drawn.x, place)), { live, counted, all, unit } = membersOf(drawn);
  if (live[i] === all) return "";
  if (counted[i] === live[i]) return `${live[i]} of ${all} ${unit}`;
  return `${live[i]} of ${all} ${unit} still run${live[i] === 1 ? "s" : ""}, ${counted[i] - live[i]} stopped at the target`;
}

function traces(line, drawn, style) {
  const { x, y, low, high } = drawn, { live, all } = membersOf(drawn);
  const colour = style.getPropertyValue(`--c${line.colour % 8}`).trim();
  const single = !line.aggregate && page.several;
  const base = { name: escaped(line.label), hoverinfo: "none", opacity: single ? 0.6 : 1 };
  const marker = { color: colour, size: single ? 3 : 7, symbol: single ? "circle" : symbol(line.colour), maxdisplayed: x.length < 20 ? 0 : 8 };
  const mode = x.length < 20 || !single ? "lines+markers" : "lines";
  const look = { ...base, mode, marker, line: { color: colour, width: single ? 0.8 : 2.2 } };
  const made = stretches(drawn).filter(([begin, end]) => end - begin > 1 && low && low[begin] !== null).map(([begin, end]) => {
    const part = (column) => column.slice(begin, end);
    return { x: [...part(x), ...part(x).reverse()], y: [...part(high), ...part(low).reverse()],
      fill: "toself", fillcolor: colour + "2e", line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false };
  });
  if (!live || live.every((count) => count === all)) return [...made, { ...look, x, y }];
  const least = (x.at(-1) - x[0]) / 50; // a narrower mean of other seeds would be a dot beside the line
  for (const [begin, end] of stretches(drawn).filter(([begin, end]) => x[end - 1] - x[begin] > least)) {
    const parts = [[begin, end, live[begin] === all]];
    const whole = live.slice(begin, end).lastIndexOf(all);
    if (whole >= 0 && begin + whole + 1 < end) parts.splice(0, 1, [begin, begin + whole + 1, true], [begin + whole, end, false]);
    for (const [from, to, solid] of parts) made.push({ ...look, x: x.slice(from, to), y: y.slice(from, to),
      showlegend: from === 0, line: { ...look.line, dash: solid ? "solid" : "dash" } });
  }
  return made;
}

/** The parts of a curve, ``[begin, end]``, in which it is of the same number of seeds and has, or has not, an interval. */
function stretches(drawn) {
  const found = [], { x, low } = drawn, { counted } = membersOf(drawn);
  let begin = 0;
  for (let i = 1; i <= x.length; i++) {
    const changes = i === x.length || (counted && counted[i] !== counted[i - 1]) || (low && (low[i] === null) !== (low[i - 1] === null));
    if (!changes) continue;
    found.push([begin, i]);
    begin = i;
  }
  return found;
}

/** The marks at the ends of runs; of evaluations, at the one that stands for a run from its end on. */
function endMarks(chart, lines, style) {
  const x = input("x").value || chart.x;
  const at = { x: [], y: [], color: [], symbol: [], size: [] };
  for (const { line, drawn } of lines) {
    const state = "run" in line ? page.runs[line.run].state : "running";
    const mark = state in ends ? ends[state] : killed;
    if (!mark || !drawn.x.length) continue;
    const kept = chart.evaluations ? page.runs[line.run].evaluated : undefined;
    at.x.push(kept?.[x] ?? drawn.x.at(-1));
    at.y.push(kept?.[x] === undefined ? drawn.y.at(-1) : kept.y);
    at.color.push(style.getPropertyValue(`--c${line.colour % 8}`).trim());
    at.symbol.push(mark[0]);
    at.size.push(mark[1]);
  }
  const marker = { color: at.color, symbol: at.symbol, size: at.size, line: { width: 1, color: style.getPropertyValue("--card").trim() } };
  return at.x.length ? [{ x: at.x, y: at.y, mode: "markers", marker, hoverinfo: "skip", showlegend: false, name: "ends" }] : [];
}

/** What an axis shows besides its values, where they are all the same: a tenth at either side, and the levels. Else its ticks are parts of a step. */
function besides(values, levels = []) {
  const known = values.filter((value) => value !== null), [value] = known;
  if (!known.length || known.some((other) => other !== value)) return { autorangeoptions: { include: null } };
  const room = Math.abs(value) / 10 || 1;
  return { autorangeoptions: { include: [value - room, value + room, ...levels] } };
}

/** The layout that all charts share. */
function layout(style) {
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--rule"), zeroline: false, exponentformat: "SI", automargin: true };
  return { axis, color, base: {
    paper_bgcolor: color("--card"), plot_bgcolor: color("--card"), margin: { l: 8, r: 12, t: 10, b: 8 },
    font: { color: color("--soft"), size: 11, family: getComputedStyle(document.body).fontFamily },
  } };
}

function draw(plot) {
  const index = Number(plot.dataset.chart), chart = page.charts[index];
  const style = getComputedStyle(document.documentElement);
  const { axis, color, base } = layout(style);
  const lines = chart.lines.filter((line) => !hidden(line)).map((line) => ({ line, drawn: columns(chart, line) }));
  const x = input("x").value || chart.x;
  const all = lines.flatMap(({ drawn }) => drawn.y);
  const logy = input("logy").checked && all.every((y) => y === null || y > 0);
  const shapes = [
    ...chart.levels.map(([y]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y })),
    ...page.moments.map((at) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: at[x], x1: at[x] })),
  ];
  const zoom = zooms[chart.title], sameKinds = zoom && zoom[0] === [x, logy, input("logx").checked].join();
  plot.lines = lines;
  plot.setAttribute("aria-label", described(chart, lines, x));
  Plotly.react(plot, [...lines.flatMap(({ line, drawn }) => traces(line, drawn, style)), ...endMarks(chart, lines, style)], {
    ...base,
    xaxis: { ...axis, title: { text: titles[x] }, type: input("logx").checked ? "log" : "linear", ...besides(lines.flatMap(({ drawn }) => drawn.x)), ...(sameKinds && { range: zoom[1], autorange: false }) },
    yaxis: { ...axis, type: logy ? "log" : "linear", ...besides(all, chart.levels.map(([y]) => y)), ...(sameKinds && { range: zoom[2], autorange: false }) },
    uirevision: [x, logy, input("logx").checked].join(),
    hovermode: "x", hoverdistance: -1,
    showlegend: !page.several && lines.length > 1, legend: { orientation: "h", y: 1.15 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    shapes: shapes.map((shape) => ({ ...shape, layer: "below", line: { color: color("--soft"), dash: "dash", width: 1 } })),
    annotations: chart.levels.map(([y, label]) => ({ text: `${label} ${number(y)}`, xref: "paper", x: 0, y: logy ? Math.log10(y) : y,
      xanchor: "left", yanchor: "bottom", showarrow: false })),
  }, { displayModeBar: false, responsive: true });
  if (!plot.follows) {
    plot.follows = true;
    plot.on("plotly_relayout", () => keepZoom(plot));
  }
}

/** A chart in a sentence: its lines with their first and last values. */
function described(chart, lines, x) {
  const own = lines.filter(({ line }) => line.aggregate || !page.several);
  const told = (own.length ? own : lines).slice(0, 8).map(({ line, drawn }) => {
    const known = drawn.y.filter((y) => y !== null);
    return known.length ? `${line.label}: from ${number(known[0])} to ${number(known.at(-1))}, at most ${number(Math.max(...known))}` : line.label;
  });
  return `${chart.title}${chart.unit ? `, ${chart.unit}` : ""}, against ${titles[x]}. ${told.join("; ")}. Arrow keys show values.`;
}

// The values at one place of a chart, by the pointer or the arrow keys

const cursor = document.body.appendChild(Object.assign(document.createElement("div"), { id: "cursor", hidden: true }));
const box = document.body.appendChild(Object.assign(document.createElement("div"), { id: "hover", hidden: true }));

/** A row for each line that has a value at a place, the greatest first. */
function valuesAt(plot, place) {
  const rows = [];
  let ended = 0;
  for (const { line, drawn } of plot.lines) {
    const value = valueAt(drawn.x, drawn.y, place);
    if (value === null) { ended += place > drawn.x.at(-1) && !line.aggregate ? 1 : 0; continue; }
    const low = valueAt(drawn.x, drawn.low, place), high = valueAt(drawn.x, drawn.high, place);
    const seeds = line.aggregate ? seedsAt(drawn, place) : "";
    rows.push({ line, value, text: `${number(value)}${low === null || high === null ? "" : ` [${number(low)}, ${number(high)}]`}`, seeds });
  }
  rows.sort((a, b) => b.value - a.value);
  const means = rows.filter(({ line }) => line.aggregate), others = rows.filter(({ line }) => !line.aggregate);
  return { rows: [...means, ...others], ended };
}

function showValues(plot, place, say) {
  const area = plot.querySelector(".nsewdrag")?.getBoundingClientRect(), axis = plot._fullLayout?.xaxis;
  if (!area || !axis) return;
  const left = area.left + axis.d2p(place);
  const { rows, ended } = valuesAt(plot, place);
  const shown = rows.slice(0, listed), style = getComputedStyle(document.documentElement);
  const x = input("x").value || page.charts[Number(plot.dataset.chart)].x;
  const at = `${titles[x].replace(", seconds", "")} ${number(x === "s" ? Math.round(place) : Math.round(place))}${x === "s" ? " s" : ""}`;
  const more = [rows.length > listed ? `and ${rows.length - listed} more` : "", ended ? `${ended} ended before` : ""].filter(Boolean).join("; ");
  box.replaceChildren(Object.assign(document.createElement("p"), { textContent: at }));
  for (const { line, text, seeds } of shown) {
    const row = document.createElement("div"), mark = document.createElement("i"), name = document.createElement("span"), value = document.createElement("b");
    mark.style.background = style.getPropertyValue(`--c${line.colour % 8}`);
    mark.className = line.aggregate ? "mean" : "";
    name.textContent = line.label;
    value.textContent = text;
    row.append(mark, name, value);
    box.append(row);
    if (seeds) box.append(Object.assign(document.createElement("p"), { textContent: seeds }));
  }
  if (more) box.append(Object.assign(document.createElement("p"), { textContent: more }));
  box.hidden = cursor.hidden = false;
  Object.assign(cursor.style, { left: `${left}px`, top: `${area.top}px`, height: `${area.height}px` });
  const room = innerWidth - box.offsetWidth - 8, side = left + 14 > room ? left - box.offsetWidth - 14 : left + 14;
  Object.assign(box.style, { left: `${Math.max(4, Math.min(room, side))}px`, top: `${Math.max(4, Math.min(area.top, innerHeight - box.offsetHeight - 4))}px` });
  if (say) input("values").textContent = [at, ...shown.map(({ line, text, seeds }) => `${line.label} ${text} ${seeds}`), more].join(", ");
}

function hideValues() { box.hidden = cursor.hidden = true; }

document.addEventListener("pointermove", ({ target, clientX, clientY, buttons }) => {
  const plot = target.closest?.(".plot");
  const area = plot?.querySelector(".nsewdrag")?.getBoundingClientRect();
  const inside = area && clientX >= area.left && clientX <= area.right && clientY >= area.top && clientY <= area.bottom;
  if (!inside || buttons) return hideValues();
  plot.place = plot._fullLayout.xaxis.p2d(clientX - area.left);
  showValues(plot, plot.place, false);
});
document.addEventListener("scroll", hideValues, { passive: true });
document.addEventListener("focusout", hideValues);
document.addEventListener("keydown", (event) => {
  const plot = document.activeElement?.closest?.(".plot"), axis = plot?._fullLayout?.xaxis;
  if (event.key === "Escape") hideValues();
  if (!axis || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  const width = axis._length, now = axis.d2p(plot.place ?? axis.p2d(0));
  const next = { ArrowLeft: now - width / 50, ArrowRight: now + width / 50, Home: 0, End: width }[event.key];
  plot.place = axis.p2d(Math.max(0, Math.min(width, next)));
  showValues(plot, plot.place, true);
});

// What is chosen is in the page's address

let zooms = {};
const choices = () => [...document.querySelectorAll("#tools [data-config], #tools [data-run]")];
const choiceName = (box) => ("config" in box.dataset ? "c:" : "r:") + box.value;

function keepZoom(plot) {
  const chart = page.charts[Number(plot.dataset.chart)], { xaxis, yaxis, uirevision } = plot.layout;
  if (xaxis.autorange !== false && yaxis.autorange !== false) delete zooms[chart.title];
  else zooms[chart.title] = [uirevision, xaxis.range.map((v) => Number(v.toPrecision(6))), yaxis.range.map((v) => Number(v.toPrecision(6)))];
  keepChoices();
}

function keepChoices() {
  const kept = new URLSearchParams();
  for (const id of ["x", "smooth"]) if (input(id).value && input(id).value !== "0") kept.set(id, input(id).value);
  for (const id of ["logx", "logy"]) if (input(id).checked) kept.set(id, "1");
  for (const box of choices()) if (!box.checked) kept.append("off", choiceName(box));
  if (Object.keys(zooms).length) kept.set("zoom", JSON.stringify(zooms));
  for (const [name, value] of Object.entries(window.listChoices?.() ?? {})) if (value) kept.set(name, value);
  history.replaceState(null, "", `${location.pathname}${location.search}${kept.size ? `#${kept}` : ""}`);
}

function readChoices() {
  const kept = new URLSearchParams(location.hash.slice(1)), off = new Set(kept.getAll("off"));
  if (!kept.size) return;
  for (const id of ["x", "smooth"]) if (kept.has(id)) input(id).value = kept.get(id);
  for (const id of ["logx", "logy"]) input(id).checked = kept.has(id);
  for (const box of choices()) box.checked = !off.has(choiceName(box));
  try { zooms = JSON.parse(kept.get("zoom") ?? "{}"); } catch { zooms = {}; }
}

// The results of runs by setting

function drawSettings() {
  const plot = input("scatter");
  if (!plot || !input("by-setting").open) return;
  const style = getComputedStyle(document.documentElement), { axis, base } = layout(style);
  const key = input("setting").value, keys = Object.keys(page.settings);
  const runs = page.runs.map((run, i) => ({ ...run, i })).filter((run) => run.result !== null && !hidden({ config: run.config, run: run.i }));
  const colourOf = (run) => style.getPropertyValue(`--c${run.config % 8}`).trim();
  const text = (run) => escaped(`${run.name}: ${number(run.result)}`);
  if (key) {
    const values = page.settings[key], numeric = runs.every((run) => Number.isFinite(Number(values[run.i])));
    const numbers = runs.map((run) => Number(values[run.i]));
    const log = numeric && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) >= 50;
    return Plotly.react(plot, [{ x: runs.map((run) => numeric ? Number(values[run.i]) : values[run.i]), y: runs.map((run) => run.result), text: runs.map(text), mode: "markers",
      hovertemplate: "%{text}<extra></extra>", marker: { size: 9, color: runs.map(colourOf), symbol: runs.map((run) => symbol(run.config)) } }], {
      ...base, xaxis: { ...axis, title: { text: key }, type: log ? "log" : numeric ? "linear" : "category" },
      yaxis: { ...axis, title: { text: "last evaluation" } }, hovermode: "closest" }, { displayModeBar: false, responsive: true });
  }
  // parallel coordinates: a line for each run over the values of every setting, and its result
  const places = keys.map((name) => {
    const distinct = [...new Set(runs.map((run) => page.settings[name][run.i]))];
    distinct.sort((a, b) => Number(a) - Number(b) || String(a).localeCompare(b));
    return { name, distinct, at: (run) => distinct.length < 2 ? 0.5 : distinct.indexOf(page.settings[name][run.i]) / (distinct.length - 1) };
  });
  const results = runs.map((run) => run.result), least = Math.min(...results), span = Math.max(...results) - least || 1;
  const marks = places.flatMap(({ distinct }, i) => distinct.map((value, k) => ({ x: i, y: distinct.length < 2 ? 0.5 : k / (distinct.length - 1), text: escaped(value), showarrow: false, xanchor: "right", xshift: -4 })));
  const sides = [0, 1].map((y) => ({ x: keys.length, y, text: number(least + y * span), showarrow: false, xanchor: "left", xshift: 4 }));
  Plotly.react(plot, runs.map((run) => ({ x: [...keys.keys(), keys.length], y: [...places.map(({ at }) => at(run)), (run.result - least) / span],
    mode: "lines", line: { color: colourOf(run), width: 1.5 }, opacity: 0.7, name: text(run), hovertemplate: `${text(run)}<extra></extra>`, showlegend: false })), {
    ...base, margin: { l: 60, r: 60, t: 10, b: 30 }, hovermode: "closest", annotations: [...marks, ...sides],
    xaxis: { ...axis, tickvals: [...keys.keys(), keys.length], ticktext: [...keys.map(escaped), "last evaluation"], range: [-0.3, keys.length + 0.2] },
    yaxis: { ...axis, visible: false, range: [-0.05, 1.05] } }, { displayModeBar: false, responsive: true });
}

function save(url, name) {
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
}

function csv(chart) {
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const rows = chart.lines.filter((line) => !hidden(line)).flatMap((line) => {
    const { x, y, low, high } = columns(chart, line);
    return x.map((at, i) => [quoted(line.label), at, y[i], low?.[i] ?? "", high?.[i] ?? ""].join());
  });
  const head = `line,${titles[input("x").value || chart.x].replaceAll(",", "")},value,low,high`;
  return URL.createObjectURL(new Blob([[head, ...rows].join("\n") + "\n"], { type: "text/csv" }));
}

/** Where a dashboard has every recorded number of a chart, of which not all are drawn. */
function rawNumbers(chart) {
  const query = new URLSearchParams(chart.tags.map((tag) => ["tag", tag]));
  input("live").dataset.keys.split(" ").forEach((key) => query.append("run", key));
  return `/numbers.csv?${query}`;
}

/** Let a chart be as wide as the paper, which is narrower than the window in which it was drawn. */
function scaleToPaper(plot) {
  const { width, height } = plot._fullLayout;
  plot.style.setProperty("--ratio", `${width} / ${height}`);
  plot.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("viewBox", `0 0 ${width} ${height}`));
}

const seen = new Set(); // charts that are near the window
const observer = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  if (isIntersecting) { seen.add(target); draw(target); } else seen.delete(target);
}), { rootMargin: "200px" });
const redraw = () => { seen.forEach(draw); drawSettings(); };

/** Draw other data, in other elements if the charts are not the same as before. */
function show(data) {
  page = data;
  plots.filter((plot) => !plot.isConnected).forEach((plot) => { observer.unobserve(plot); seen.delete(plot); Plotly.purge(plot); });
  plots = [...document.querySelectorAll(".plot")];
  plots.forEach((plot) => observer.observe(plot));
  redraw();
}

if (input("x")) readChoices();
show(page);
document.addEventListener("input", ({ target }) => { if (target.closest(".tools, #by-setting")) { redraw(); keepChoices(); } });
document.addEventListener("toggle", ({ target }) => { if (target.id === "by-setting") drawSettings(); }, true);
addEventListener("hashchange", () => { if (location.hash.includes("=")) location.reload(); }); // somebody's link, not ours
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => plots.forEach((plot) => { draw(plot); scaleToPaper(plot); }));
addEventListener("afterprint", () => document.querySelectorAll(".plot .main-svg").forEach((svg) => svg.removeAttribute("viewBox")));
document.addEventListener("click", async ({ target }) => {
  if (!target.dataset.save) return;
  const index = Number(target.dataset.chart), chart = page.charts[index];
  const name = chart.title.replace(/\W+/g, "-").toLowerCase();
  const thinned = chart.thinned ? "-thinned" : "";
  if (target.dataset.save === "csv" && thinned && input("live")) return save(rawNumbers(chart), `${name}.csv`);
  if (target.dataset.save === "csv") return save(csv(chart), `${name}${thinned}.csv`);
  const plot = plots.find((each) => Number(each.dataset.chart) === index);
  save(await Plotly.toImage(plot, { format: "png", scale: 2 }), `${name}.png`);
});
