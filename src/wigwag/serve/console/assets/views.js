// Sources, streams, snapshots, findings: tables of what the process knows.
import { useState } from "./hooks.js";
import { get } from "./api.js";
import { Empty, Failure, Table, Text, When, ago, html, useLoaded } from "./ui.js";

const age = (seconds) => (seconds == null ? "never" : ago(Date.now() / 1000 - seconds));
const STATES = { live: "on", failing: "bad", starting: "warn" };

export function Sources({ serial }) {
  const { data, error } = useLoaded(() => get("/sources"), [serial]);
  const columns = [
    ["Source", (row) => html`<${Text}>${row.source}<//>`],
    ["Kind", (row) => row.provider],
    ["State", (row) => html`<span class=${`badge ${STATES[row.state] || "off"}`}>${row.state}</span>${row.stale && html` <span class="badge warn">stale</span>`}${row.restored && html` <span class="badge warn">restored</span>`}`],
    ["Last answer", (row) => age(row.ageSeconds)],
    ["Flags", (row) => html`${row.flags}${row.hidden > 0 && html` <span class="dim">(${row.hidden} hidden)</span>`}`],
    ["Updates", (row) => row.updates],
    ["Restarts", (row) => row.restarts],
    ["Last error", (row) => html`<${Text} class=${row.error ? "bad-text" : "dim"}>${row.error || row.lastError || ""}<//>`],
  ];
  return html`<section aria-label="Sources"><h2>Sources</h2><p class="dim">The last source has the highest priority.</p><${Failure} error=${error} />
    ${data && html`<${Table} label="Sources" columns=${columns} rows=${data.sources} empty="There are no sources." />`}</section>`;
}

export function Streams({ serial }) {
  const { data, error } = useLoaded(() => get("/streams"), [serial]);
  const columns = [
    ["Provider", (row) => html`<${Text}>${row.provider || "(unnamed)"}<//>`],
    ["Selector", (row) => html`<${Text}>${row.selector || "all flags"}<//>`],
    ["Address", (row) => html`<${Text}>${row.address}<//>`],
    ["Connected", (row) => age(row.seconds)],
    ["Snapshot", (row) => row.snapshot ?? "none yet"],
    ["Up to date", (row) => (row.newest ? html`<span class="badge on">yes</span>` : html`<span class="badge warn">behind</span>`)],
  ];
  const behind = data ? data.streams.filter((row) => !row.newest).length : 0;
  return html`<section aria-label="Streams"><h2>Streams</h2><${Failure} error=${error} />
    ${data && html`<p role="status">${data.streams.length - behind} of ${data.streams.length} on the newest flags</p><${Table} label="Streams" columns=${columns} rows=${data.streams} empty="No provider is connected to the sync port." />`}</section>`;
}

export function Snapshots({ serial, go }) {
  const { data, error } = useLoaded(() => get("/snapshots"), [serial]);
  return html`<section aria-label="Snapshots"><h2>Snapshots</h2><${Failure} error=${error} />
    ${data && (data.snapshots.length ? html`<ol class="timeline">${data.snapshots.map((entry, at) => html`<${Entry} key=${entry.number} entry=${entry} older=${data.snapshots[at + 1]} go=${go} />`)}</ol>` : html`<${Empty}>No snapshot has been published yet.<//>`)}</section>`;
}

function Entry({ entry, older, go }) {
  const [open, setOpen] = useState(false);
  const { added = 0, removed = 0, changed = 0 } = entry.changes || {};
  const said = [[added, "added"], [removed, "removed"], [changed, "changed"]].filter(([count]) => count).map(([count, what]) => `${count} ${what}`).join(", ");
  return html`<li><details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><${When} at=${entry.published} /> <b>snapshot ${entry.number}</b> ${entry.id && html`<code class="dim">${entry.id.slice(0, 12)}</code>`} <span>${said || (entry.changes ? "no flag changed" : "")}</span></summary>
    ${open && older && html`<${Changes} from=${older.number} to=${entry.number} go=${go} />`}
    ${open && !older && html`<p class="dim">The oldest snapshot that is kept.</p>`}
  </details></li>`;
}

function Changes({ from, to, go }) {
  const { data, error } = useLoaded(() => get("/diff", { from, to }), [from, to]);
  const link = (name, kind, text) => html`<li class=${kind}><a href=${`#/flag?${new URLSearchParams({ key: name.key, set: name.flagSetId })}`}><${Text}>${name.key}<//></a> ${text}</li>`;
  return html`<${Failure} error=${error} />${data && html`<ul class="changes">
    ${data.added.map((name) => link(name, "new", "added"))}${data.removed.map((name) => link(name, "gone", "removed"))}
    ${data.changed.map((each) => link(each, "changed", each.members.map(member).join(", ")))}
    ${data.same && html`<li class="dim">no flag differs</li>`}</ul>`}`;
}

function member(change) {
  if (change.how) return `${change.member} ${change.how}`;
  const names = [...(change.added || []).map((name) => `+${name}`), ...(change.removed || []).map((name) => `-${name}`), ...(change.changed || []).map((name) => `~${name}`)];
  return names.length ? `${change.member} ${names.slice(0, 8).join(", ")}` : `${change.member} ${change.before || "none"} → ${change.after || "none"}`;
}

// A view that the server describes: columns with a kind, and rows.
export function TableView({ name, serial }) {
  const { data, error } = useLoaded(() => get(`/${name}`), [name, serial]);
  if (!data || !data.columns) return html`<${Failure} error=${error} />`;
  const columns = data.columns.map((column) => [column.title, (row) => html`<${Cell} kind=${column.kind} value=${row[column.name]} />`]);
  return html`<section aria-label=${data.title}><h2>${data.title}</h2><${Failure} error=${error} />
    <p role="status">${data.rows.length}${data.more > 0 ? ` of ${data.rows.length + data.more}` : ""}</p>
    <${Table} label=${data.title} columns=${columns} rows=${data.rows} empty=${data.empty} /></section>`;
}

const GOOD = ["live", "ok", "complete", "idle", "True", "current"];
const WRONG = ["failing", "degraded", "False", "lagging"];

function Cell({ kind, value }) {
  if (value == null || value === "") return "";
  if (kind === "state") return html`<span class=${`badge ${GOOD.includes(value) ? "on" : WRONG.includes(value) ? "bad" : "warn"}`}>${value}</span>`;
  if (kind === "age") return age(value);
  if (kind === "time") return html`<${When} at=${value} />`;
  if (kind === "seconds") return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
  if (kind === "number") return String(value);
  if (kind === "error") return html`<${Text} class="bad-text" most=${500}>${value}<//>`;
  if (kind === "list") return html`<ul class="plain">${value.map((each) => html`<li><${Text}>${each}<//></li>`)}</ul>`;
  return html`<${Text}>${value}<//>`;
}

export function AllFindings({ serial }) {
  const { data, error } = useLoaded(() => get("/findings"), [serial]);
  const columns = [
    ["Severity", (row) => html`<span class=${`badge ${row.severity === "error" ? "bad" : "warn"}`}>${row.severity}</span>`],
    ["Where", (row) => html`${row.key ? html`<a href=${`#/flag?${new URLSearchParams({ key: row.key, set: row.flagSetId })}`}><${Text}>${row.path}<//></a>` : html`<${Text}>${row.path}<//>`}<br /><span class="dim"><${Text}>${row.source}<//></span>`],
    ["What", (row) => html`<${Text} most=${500}>${row.message}<//>`],
    ["What to do", (row) => html`<${Text} most=${500}>${row.hint || ""}<//>`],
  ];
  return html`<section aria-label="Findings"><h2>Findings</h2><${Failure} error=${error} />
    ${data && html`<${Table} label="Findings" columns=${columns} rows=${data.findings} empty="Nothing is wrong with the flags." />`}</section>`;
}
