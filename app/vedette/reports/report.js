"use strict";
let page = JSON.parse(document.getElementById("data").textContent);
let plots = [];
const input = (id) => document.getElementById(id);
const titles = { env: "env steps", opt: "optimization steps", s: "wall time, seconds" };
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const number = (value) => String(parseFloat(value.toPrecision(5)));
const hidden = (line) => ["config", "run"].some((kind) => kind in line
  && document.querySelector(`[data-${kind}="${line[kind]}"]`)?.checked === false);

/** Exponential moving average without the bias of its first value; null stays null. */
function smoothed(values) {
  const weight = Number(input("smooth").value);
  let sum = 0, mass = 0;
  return values?.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + 1 - weight;
    return sum / mass;
  });
}

/** The columns of a line against the chosen x, smoothed. */
function columns(chart, line) {
  const of = (kind) => line.aggregate ? line.aggregate[kind] : page.xs[line.x][kind] && { ...line, x: page.xs[line.x][kind] };
  const columns_of_x = of(input("x").value || chart.x) ?? of(chart.x);
  return { x: columns_of_x.x, y: smoothed(columns_of_x.y), low: smoothed(columns_of_x.low), high: smoothed(columns_of_x.high) };
}

/** The value of a run between two points of its curve; "–" outside. */
function valueAt({ x, y }, place) {
  const i = x.findIndex((each) => each >= place);
  if (i < 0 || (i === 0 && x[0] !== place)) return "–";
  return number(i === 0 ? y[0] : y[i - 1] + (y[i] - y[i - 1]) * (place - x[i - 1]) / (x[i] - x[i - 1]));
}

function traces(chart, line, style, crowded) {
  const { x, y, low, high } = columns(chart, line);
  const colour = style.getPropertyValue(`--c${line.colour % 8}`).trim();
  const single = !line.aggregate && page.several;
  const has = (i) => low && low[i] !== null;
  const seeds = crowded && line.aggregate
    ? chart.lines.filter((each) => each.config === line.config && !each.aggregate && !hidden(each)) : [];
  const seedColumns = seeds.map((each) => columns(chart, each));
  const text = y.map((_, i) => (has(i) ? ` [${number(low[i])}, ${number(high[i])}]` : "")
    + (seeds.length ? "<br>its runs: " + seedColumns.map((each) => valueAt(each, x[i])).join(", ") : ""));
  const drawn = {
    x, y, text, name: escaped(line.label), mode: x.length < 20 ? "lines+markers" : "lines",
    line: { color: colour, width: single ? 0.8 : 2.2 }, marker: { color: colour, size: single ? 3 : 5 },
    opacity: single ? 0.6 : 1, ...(crowded && single ? { hoverinfo: "skip" } : { hovertemplate: "%{y:.5~g}%{text}" }),
  };
  const within = x.map((_, i) => i).filter(has);
  const band = within.length > 1 && {
    x: [...within, ...[...within].reverse()].map((i) => x[i]),
    y: [...within.map((i) => high[i]), ...within.reverse().map((i) => low[i])],
    fill: "toself", fillcolor: colour + "2e", line: { width: 0 }, mode: "lines", hoverinfo: "skip",
    showlegend: false,
  };
  return band ? [band, drawn] : [drawn];
}

function draw(plot) {
  const index = Number(plot.dataset.chart), chart = page.charts[index];
  const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
  const lines = chart.lines.filter((line) => !hidden(line));
  const x = input("x").value || chart.x;
  const crowded = lines.length * 20 > plot.clientHeight && lines.some((line) => line.aggregate);
  const all = lines.flatMap((line) => columns(chart, line).y);
  const logy = input("logy").checked && all.every((y) => y === null || y > 0);
  const axis = { gridcolor: color("--rule"), zeroline: false, exponentformat: "SI", automargin: true };
  const shapes = [
    ...chart.levels.map(([y]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y })),
    ...page.moments.map((at) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: at[x], x1: at[x] })),
  ];
  plot.setAttribute("aria-label", `${chart.title}, against ${titles[x]}`);
  Plotly.react(plot, lines.flatMap((line) => traces(chart, line, style, crowded)), {
    paper_bgcolor: color("--card"), plot_bgcolor: color("--card"), margin: { l: 8, r: 12, t: 10, b: 8 },
    font: { color: color("--soft"), size: 11, family: getComputedStyle(document.body).fontFamily },
    xaxis: { ...axis, title: { text: titles[x] }, type: input("logx").checked ? "log" : "linear" },
    yaxis: { ...axis, type: logy ? "log" : "linear" },
    uirevision: [x, logy, input("logx").checked].join(),
    hovermode: crowded || lines.length < 30 ? "x unified" : "closest", hoverdistance: -1,
    hoverlabel: { bgcolor: color("--paper"), font: { color: color("--ink"), size: 11 }, namelength: 40 },
    showlegend: !page.several && lines.length > 1, legend: { orientation: "h", y: 1.15 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    shapes: shapes.map((shape) => ({ ...shape, layer: "below", line: { color: color("--soft"), dash: "dash", width: 1 } })),
    annotations: chart.levels.map(([y, label]) => ({ text: `${label} ${number(y)}`, xref: "paper", x: 0, y: logy ? Math.log10(y) : y,
      xanchor: "left", yanchor: "bottom", showarrow: false })),
  }, { displayModeBar: false, responsive: true });
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

const seen = new Set(); // charts that are near the window
const observer = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  if (isIntersecting) { seen.add(target); draw(target); } else seen.delete(target);
}), { rootMargin: "200px" });
const redraw = () => seen.forEach(draw);

/** Draw other data, in other elements if the charts are not the same as before. */
function show(data) {
  page = data;
  plots.filter((plot) => !plot.isConnected).forEach((plot) => { observer.unobserve(plot); seen.delete(plot); Plotly.purge(plot); });
  plots = [...document.querySelectorAll(".plot")];
  plots.forEach((plot) => observer.observe(plot));
  redraw();
}

show(page);
document.addEventListener("input", ({ target }) => { if (target.closest(".tools")) redraw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => plots.forEach(draw));
document.addEventListener("click", async ({ target }) => {
  if (!target.dataset.save) return;
  const index = Number(target.dataset.chart), chart = page.charts[index];
  const name = chart.title.replace(/\W+/g, "-").toLowerCase();
  if (target.dataset.save === "csv") return save(csv(chart), `${name}.csv`);
  const plot = plots.find((each) => Number(each.dataset.chart) === index);
  save(await Plotly.toImage(plot, { format: "png", scale: 2 }), `${name}.png`);
});
