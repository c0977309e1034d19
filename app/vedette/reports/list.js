"use strict";
/* The list of runs: filter, order and groups, which stay while the page is refreshed. */
const listState = { filter: "", group: "", sort: "", down: "" };
const part = document.getElementById("runs");
const rowsOf = () => [...part.querySelectorAll("tbody tr:not(.group)")];

/** What the address of the page keeps of the list. */
window.listChoices = () => listState;

{
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(listState)) listState[name] = kept.get(name) ?? "";
}

/** The value of a row in a column: a number where it is one. */
function valueOf(row, column, kind) {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
  if (kind === "text") return text;
  const number = text === "" ? NaN : Number(text.replaceAll(",", ""));
  return kind === "number" || !Number.isNaN(number) ? number : text;
}

/** Orders values; those that are not known are last either way. */
function order(a, b, down) {
  const unknown = (x) => x === "" || Number.isNaN(x);
  if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
  const way = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return down ? -way : way;
}

function groupOf(row) {
  if (listState.group === "state") return row.cells[2].textContent.trim();
  if (["agent", "environment"].includes(listState.group)) return row.dataset[listState.group];
  const own = row.dataset.settings.split("\n").find((line) => line.startsWith(`${listState.group}=`));
  return own?.slice(listState.group.length + 1) ?? "–";
}

/** Show the list as it was chosen. */
window.arrangeList = () => {
  const table = document.getElementById("table"), body = table?.tBodies[0];
  if (!body) return;
  for (const id of ["filter", "group"]) {
    const element = document.getElementById(id);
    if (element !== document.activeElement && element.value !== listState[id]) element.value = listState[id];
  }
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  body.querySelectorAll(".group").forEach((row) => row.remove());
  const heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex((head) => head.textContent === listState.sort);
  heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : listState.down ? "descending" : "ascending"));
  const rows = rowsOf();
  if (column >= 0) {
    const kind = heads[column].dataset.kind;
    rows.sort((a, b) => order(valueOf(a, column, kind), valueOf(b, column, kind), listState.down));
  }
  const words = listState.filter.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) row.hidden = !words.every((word) => row.dataset.text.includes(word));
  const shown = rows.filter((row) => !row.hidden);
  const groups = new Map();
  for (const row of rows) groups.set(listState.group ? groupOf(row) : "", [...(groups.get(listState.group ? groupOf(row) : "") ?? []), row]);
  const names = [...groups.keys()].sort((a, b) => order(Number.isNaN(Number(a)) ? a : Number(a), Number.isNaN(Number(b)) ? b : Number(b), ""));
  for (const name of names) {
    const own = groups.get(name), visible = own.filter((row) => !row.hidden);
    if (listState.group && visible.length) {
      const results = visible.map((row) => valueOf(row, 3, "number")).filter((x) => !Number.isNaN(x));
      const mean = results.length ? `, last evaluation ${(results.reduce((a, b) => a + b, 0) / results.length).toFixed(1)} on average` : "";
      const head = body.insertRow(), cell = head.appendChild(document.createElement("th"));
      head.className = "group";
      cell.colSpan = heads.length;
      cell.scope = "rowgroup";
      cell.textContent = `${listState.group} = ${name}: ${visible.length} run${visible.length === 1 ? "" : "s"}${mean}`;
    }
    body.append(...own);
  }
  focused?.focus({ preventScroll: true }); // a row that moves loses it
  document.getElementById("counted").textContent = shown.length === rows.length ? `${rows.length} runs` : `${shown.length} of ${rows.length} runs`;
};

part.addEventListener("input", ({ target }) => {
  if (!["filter", "group"].includes(target.id)) return;
  listState[target.id] = target.value;
  window.arrangeList();
  keepList();
});
part.addEventListener("click", ({ target }) => {
  if (target.dataset.mark !== undefined) {
    for (const row of rowsOf()) row.querySelector("input").checked = target.dataset.mark === "shown" && !row.hidden;
  } else if (target.className === "sort") {
    const name = target.textContent;
    const numeric = target.parentElement.dataset.kind === "number";
    if (listState.sort !== name) Object.assign(listState, { sort: name, down: numeric ? "1" : "" });
    else listState.down = listState.down ? "" : "1";
    window.arrangeList();
    keepList();
  }
});

/** Keep what was chosen in the address; without charts there is nobody else who does. */
function keepList() {
  if (typeof keepChoices === "function" && document.getElementById("x")) return keepChoices();
  const kept = new URLSearchParams(Object.entries(listState).filter(([, value]) => value));
  history.replaceState(null, "", `${location.pathname}${location.search}${kept.size ? `#${kept}` : ""}`);
}

window.arrangeList();
