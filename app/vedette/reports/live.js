"use strict";
/* Fetches the page again every few seconds and puts in what has changed. Runs before report.js, which draws. */
const live = document.getElementById("live"), said = live.querySelector("span");
const source = (root) => Object.fromEntries([...root.querySelectorAll("[data-part]")].map((part) => [part.id, part.innerHTML]));
const numbers = (root) => root.getElementById("data").textContent;
const parts = source(document);
let drawn = numbers(document), timer, busy = false;

/** What a user has changed of an element, or may have. */
const states = (element) => ["open", "checked", "value", "scrollLeft", "scrollTop"].map((name) => [name, element[name]])
  .filter(([name, value]) => value !== undefined && !(name === "checked" && value === element.defaultChecked));

/** Replace what is in a part; what is zoomed, open, marked, scrolled or in focus stays so. */
function put(part, html) {
  const elements = () => [...part.querySelectorAll("a, details, input, select, .wide")].map((element, i) => {
    const name = element.id || (element.getAttribute("value") ?? element.getAttribute("href"));
    return [element.tagName + (name ?? element.querySelector("summary")?.textContent.replace(/[\d,]+/g, "") ?? i), element];
  });
  const before = new Map(elements().map(([name, element]) => [name, [element === document.activeElement, states(element)]]));
  const titled = () => [...part.querySelectorAll("figure:has(.plot)")].map((figure) => [figure.querySelector("span").textContent, figure.querySelector(".plot")]);
  const plots = new Map(titled());
  part.innerHTML = html;
  for (const [title, plot] of titled().filter(([title]) => plots.has(title))) {
    const old = plots.get(title);
    Object.assign(old.dataset, plot.dataset);
    old.classList.toggle("hero", plot.classList.contains("hero"));
    plot.replaceWith(old);
  }
  for (const [name, element] of elements()) {
    const [focused, values] = before.get(name) ?? [false, []];
    values.forEach(([state, value]) => { if (element[state] !== value) element[state] = value; });
    if (focused) element.focus({ preventScroll: true });
  }
}

/** Show another version of the page, but for parts in which somebody has selected a text. */
function update(page) {
  const newest = source(page), now = numbers(page), selection = getSelection();
  const selected = (id) => !selection.isCollapsed && document.getElementById(id).contains(selection.anchorNode);
  const news = Object.keys(newest).filter((id) => newest[id] !== parts[id]), changed = news.filter((id) => !selected(id));
  changed.forEach((id) => { put(document.getElementById(id), newest[id]); parts[id] = newest[id]; });
  if (changed.includes("runs")) window.arrangeList();
  document.title = page.title;
  if (now !== drawn || changed.includes("figures")) show(JSON.parse(now));
  drawn = now;
  if (changed.length === news.length) Object.assign(live.dataset, page.getElementById("live").dataset);
}

async function refresh() {
  const headers = { "If-None-Match": live.dataset.etag }, signal = AbortSignal.timeout(60000);
  const answer = await fetch(location.href, { headers, signal });
  if (answer.status === 304) return;
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  update(new DOMParser().parseFromString(text, "text/html"));
}

/** Refresh, then again after a while, but not while the page is hidden. */
async function poll() {
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  const begun = performance.now();
  if (!document.hidden) {
    const at = new Date(Date.now() - 60000 * new Date().getTimezoneOffset()).toISOString().slice(0, 19).replace("T", " ");
    try {
      await refresh();
      said.textContent = `updated ${at}`;
      live.className = "soft";
    } catch (error) {
      const why = error instanceof TypeError ? "the dashboard does not answer" : error.message;
      if (live.className === "soft") said.textContent += `; since then: ${why}`;
      live.className = "note bad";
    }
  }
  busy = false;
  timer = setTimeout(poll, Math.max(1000 * live.dataset.wait, 4 * (performance.now() - begun)));
}

document.addEventListener("visibilitychange", poll);
timer = setTimeout(poll, 1000 * live.dataset.wait);
