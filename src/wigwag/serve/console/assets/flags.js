// The table of all flags. Only the rows in sight are in the page, so ten thousand flags scroll as ten do.
import { useEffect, useMemo, useRef, useState } from "./hooks.js";
import { Empty, Sparkline, Text, When, full, html } from "./ui.js";

const AHEAD = 8;

// What search looks at: key, flag set, source, variants, metadata and the rule in words.
function haystack(row) {
  return [row.key, row.flagSetId, row.source, row.rule, ...(row.variants || []), JSON.stringify(row.metadata || {})]
    .join("\n")
    .toLowerCase();
}

export function indexed(rows) {
  return rows.map((row) => ({ ...row, text: haystack(row), id: `${row.flagSetId}\n${row.key}\n${row.source}` }));
}

export const FILTERS = {
  "": () => true,
  enabled: (row) => row.state === "ENABLED",
  disabled: (row) => row.state === "DISABLED",
  stale: (row) => row.stale,
  quarantined: (row) => row.quarantined,
  findings: (row) => row.findings && row.findings.error + row.findings.warning > 0,
  unused: (row, counts) => !counts[row.key],
  targeted: (row) => Boolean(row.rule),
};

export function matching(rows, words, filter, counts) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const choose = FILTERS[filter.state] || FILTERS[""];
  return rows.filter(
    (row) =>
      wanted.every((word) => row.text.includes(word)) &&
      (!filter.set || row.flagSetId === filter.set) &&
      (!filter.source || row.source === filter.source) &&
      choose(row, counts),
  );
}

const unique = (rows, name) => [...new Set(rows.map((row) => row[name]).filter(Boolean))].sort();

export function Flags({ rows, evaluations, query, go, since }) {
  const [words, setWords] = useState(query.q || "");
  const [filter, setFilter] = useState({ state: query.state || "", set: query.set || "", source: query.source || "" });
  const counts = evaluations.flags || {};
  const shown = useMemo(() => matching(rows, words, filter, counts), [rows, words, filter, filter.state === "unused" ? counts : 0]);
  const sets = useMemo(() => unique(rows, "flagSetId"), [rows]);
  const sources = useMemo(() => unique(rows, "source"), [rows]);
  const change = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  return html`<section class="flags" aria-label="Flags">
    <div class="bar" role="search">
      <input id="search" name="search" type="search" placeholder="Search keys, variants, rules, metadata ( / )" aria-label="Search flags" value=${words} onInput=${(event) => setWords(event.target.value)} />
      <${Choice} label="State" value=${filter.state} onChange=${change("state")} names=${Object.keys(FILTERS)} all="all states" />
      ${sets.length > 1 && html`<${Choice} label="Flag set" value=${filter.set} onChange=${change("set")} names=${["", ...sets]} all="all flag sets" />`}
      ${sources.length > 1 && html`<${Choice} label="Source" value=${filter.source} onChange=${change("source")} names=${["", ...sources]} all="all sources" />`}
      <span class="count" role="status">${shown.length === rows.length ? `${rows.length} flags` : `${shown.length} of ${rows.length} flags`}</span>
    </div>
    ${shown.length ? html`<${Grid} rows=${shown} counts=${counts} go=${go} since=${since} />` : html`<${Empty}>${rows.length ? "No flag matches. Esc clears the search." : "There are no flags yet."}<//>`}
  </section>`;
}

const Choice = ({ label, value, onChange, names, all }) =>
  html`<select aria-label=${label} name=${label} value=${value} onChange=${onChange}>
    ${names.map((name) => html`<option value=${name} selected=${name === value}>${name || all}</option>`)}
  </select>`;

function Grid({ rows, counts, go, since }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [size, setSize] = useState({ row: 40, height: 600 });
  const [active, setActive] = useState(0);
  useEffect(() => {
    const measure = () => {
      if (!box.current) return;
      const row = parseFloat(getComputedStyle(box.current).getPropertyValue("--row")) || 40;
      setSize({ row, height: box.current.clientHeight });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const at = Math.min(active, rows.length - 1);
  const first = Math.max(0, Math.floor(top / size.row) - AHEAD);
  const last = Math.min(rows.length, Math.ceil((top + size.height) / size.row) + AHEAD);
  const move = (to) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setActive(next);
    const [begin, end] = [next * size.row, (next + 1) * size.row];
    if (begin < box.current.scrollTop) box.current.scrollTop = begin;
    else if (end > box.current.scrollTop + size.height) box.current.scrollTop = end - size.height;
  };
  const page = Math.max(1, Math.floor(size.height / size.row) - 1);
  const keys = {
    ArrowDown: () => move(at + 1),
    ArrowUp: () => move(at - 1),
    PageDown: () => move(at + page),
    PageUp: () => move(at - page),
    Home: () => move(0),
    End: () => move(rows.length - 1),
    Enter: () => go("flag", { key: rows[at].key, set: rows[at].flagSetId }),
  };
  const onKeyDown = (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  return html`<div id="grid" class="grid" ref=${box} role="grid" tabindex="0" aria-label="Flags" aria-rowcount=${rows.length + 1}
      aria-activedescendant=${`row-${at}`} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${onKeyDown}>
    <div class="row head" role="row" aria-rowindex="1">
      ${["Flag", "Type", "State", "Default", "Rule", "Source", "Changed", "Evaluations", "Findings"].map((title) => html`<span role="columnheader">${title}</span>`)}
    </div>
    <div class="space" role="presentation" style=${{ height: `${rows.length * size.row}px` }}>
      <div class="window" role="presentation" style=${{ transform: `translateY(${first * size.row}px)` }}>
        ${rows.slice(first, last).map((row, offset) => html`<${Row} key=${row.id} row=${row} counts=${counts[row.key]} index=${first + offset} active=${first + offset === at} go=${go} since=${since} />`)}
      </div>
    </div>
  </div>`;
}

function Row({ row, counts, index, active, go, since }) {
  const name = active ? "row active" : "row";
  const open = () => go("flag", { key: row.key, set: row.flagSetId });
  const { error = 0, warning = 0 } = row.findings || {};
  return html`<div class=${name} role="row" id=${`row-${index}`} aria-rowindex=${index + 2} aria-selected=${active} onClick=${open}>
    <span role="gridcell" class="key"><${Text} most=${120}>${row.key}<//>${row.flagSetId && html`<${Text} class="set" most=${60}>${row.flagSetId}<//>`}</span>
    <span role="gridcell" class="dim">${row.type || ""}</span>
    <span role="gridcell"><${State} row=${row} /></span>
    <span role="gridcell"><${Text} most=${60}>${row.defaultVariant || ""}<//></span>
    <span role="gridcell" class="dim rule"><${Text} most=${160}>${row.rule || ""}<//></span>
    <span role="gridcell" class="dim source"><${Text} most=${120}>${row.source || ""}<//></span>
    <span role="gridcell" class="dim">${row.lastChange ? html`<${When} at=${row.lastChange} />` : row.quarantined ? "" : html`<span title=${`not since ${since ? full(since) : "the start"}, the oldest snapshot that is kept`}>unchanged</span>`}</span>
    <span role="gridcell">${!row.quarantined && html`<${Sparkline} counts=${counts} variants=${row.variants} />`}</span>
    <span role="gridcell">${error > 0 && html`<span class="badge bad">${error} ${error === 1 ? "error" : "errors"}</span>`} ${warning > 0 && html`<span class="badge warn">${warning} ${warning === 1 ? "warning" : "warnings"}</span>`}</span>
  </div>`;
}

export function State({ row }) {
  if (row.quarantined) return html`<span class="badge bad">quarantined</span>`;
  if (row.stale) return html`<span class="badge warn">stale</span>`;
  return row.state === "DISABLED" ? html`<span class="badge off">disabled</span>` : html`<span class="badge on">enabled</span>`;
}
