// Small parts that all views share: templates, texts that cannot deceive, times, sparklines, JSON.
import { h } from "./preact.js";
import { useEffect, useState } from "./hooks.js";
import htm from "./htm.js";

export const html = htm.bind(h);

// Characters that are invisible or reorder text are shown as escapes, so that a name cannot look like another one.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
export function visible(text, most = 300) {
  const whole = String(text);
  const cut = whole.length > most ? whole.slice(0, most) + "…" : whole;
  return cut.replace(HIDDEN, (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
}

export const Text = ({ children, most, class: name }) =>
  html`<bdi class=${name}>${visible(children ?? "", most)}</bdi>`;

export function ago(seconds, now = Date.now() / 1000) {
  if (seconds == null) return "";
  const age = Math.max(0, now - seconds);
  if (age < 1.5) return "just now";
  if (age < 90) return `${Math.round(age)} s ago`;
  if (age < 5400) return `${Math.round(age / 60)} min ago`;
  if (age < 129600) return `${Math.round(age / 3600)} h ago`;
  return `${Math.round(age / 86400)} d ago`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
export const full = (seconds) => new Date(seconds * 1000).toLocaleString();

export const When = ({ at }) =>
  at == null ? null : html`<time datetime=${new Date(at * 1000).toISOString()} title=${full(at)}>${ago(at)}</time>`;

// Load something now, and again whenever one of the inputs changes. Keeps what was there until the new answer is.
export function useLoaded(load, inputs) {
  const [state, setState] = useState({ data: null, error: null });
  useEffect(() => {
    let current = true;
    load().then(
      (data) => current && setState({ data, error: null }),
      (error) => current && setState((before) => ({ data: before.data, error })),
    );
    return () => {
      current = false;
    };
  }, inputs);
  return state;
}

export const Failure = ({ error }) => (error ? html`<p class="failure" role="alert">${visible(error.message)}</p>` : null);

const COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6"];
export const colour = (variants, name) => COLOURS[Math.max(0, variants.indexOf(name)) % COLOURS.length];

const SAMPLES = 30;

// Evaluations per variant in the last minutes, stacked; the newest sample is at the right.
export function Sparkline({ counts, variants }) {
  const names = Object.keys(counts || {});
  const length = Math.max(0, ...names.map((name) => counts[name].recent.length));
  const sums = Array.from({ length }, (_, at) => names.reduce((sum, name) => sum + (counts[name].recent[at] || 0), 0));
  const most = Math.max(1, ...sums);
  const total = names.reduce((sum, name) => sum + counts[name].total, 0);
  const recent = sums.reduce((sum, each) => sum + each, 0);
  const label = total ? `${recent} evaluations in the last minutes, ${total} since the start` : "never evaluated";
  const width = 90 / Math.max(SAMPLES, length);
  const bars = [];
  for (let at = 0; at < length; at += 1) {
    let y = 20;
    for (const name of names) {
      const height = (20 * (counts[name].recent[at] || 0)) / most;
      y -= height;
      if (height)
        bars.push(html`<rect x=${90 - (length - at) * width} y=${y} width=${width * 0.8} height=${height} class=${colour(variants || names, name)} />`);
    }
  }
  return html`<svg class="spark" viewBox="0 0 90 20" role="img" aria-label=${label} preserveAspectRatio="none">
    <title>${label}</title>${bars}<line x1="0" y1="19.5" x2="90" y2="19.5" />
  </svg>`;
}

export const pretty = (value) => JSON.stringify(value, null, 2);

// Lines of two texts side by side: "same", "gone" or "new". Longest common subsequence; large texts are not compared.
export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  if (a.length * b.length > 1_000_000) return [...a.map((text) => ["gone", text]), ...b.map((text) => ["new", text])];
  const rows = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      rows[i][j] = a[i] === b[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push(["same", a[i]]), (i += 1), (j += 1);
    else if (j >= b.length || (i < a.length && rows[i + 1][j] >= rows[i][j + 1])) lines.push(["gone", a[i]]), (i += 1);
    else lines.push(["new", b[j]]), (j += 1);
  }
  return lines;
}

const SIGNS = { same: " ", gone: "-", new: "+" };
export const Diff = ({ before, after }) => html`<pre class="code diff" tabindex="0">${lineDiff(before ? pretty(before) : "", after ? pretty(after) : "")
  .filter(([, text]) => text !== "")
  .map(([kind, text]) => html`<span class=${kind}>${SIGNS[kind]} ${visible(text, 2000)}${"\n"}</span>`)}</pre>`;

export const Json = ({ value }) => html`<pre class="code" tabindex="0">${visible2(pretty(value))}</pre>`;

function visible2(text) {
  return text.split("\n").map((line) => visible(line, 2000)).join("\n");
}

export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = () =>
    navigator.clipboard.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  return html`<button type="button" class="small" onClick=${copy}>${done ? "copied" : label || "copy"}</button>`;
}

export function Empty({ children }) {
  return html`<p class="blank">${children}</p>`;
}

// A table of rows; columns are [title, cell] pairs.
export const Table = ({ label, columns, rows, empty }) =>
  rows.length
    ? html`<div class="scroll" tabindex="0" role="region" aria-label=${`${label}, table`}><table><caption class="hidden">${label}</caption>
        <thead><tr>${columns.map(([title]) => html`<th scope="col">${title}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${columns.map(([, cell]) => html`<td>${cell(row)}</td>`)}</tr>`)}</tbody></table></div>`
    : html`<${Empty}>${empty}<//>`;
