// The shell: what is shown, where the data comes from, and the keyboard.
import { render } from "./preact.js";
import { useEffect, useState } from "./hooks.js";
import { ApiError, follow, get, token } from "./api.js";
import { Flag } from "./flag.js";
import { Flags, indexed } from "./flags.js";
import { When, html, visible } from "./ui.js";
import { AllFindings, Snapshots, Sources, Streams, TableView } from "./views.js";
import { WhatIf } from "./whatif.js";

const TITLES = { flags: "Flags", sources: "Sources", streams: "Streams", snapshots: "Snapshots", findings: "Findings", whatif: "What if" };

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "flags", query: Object.fromEntries(new URLSearchParams(query || "")) };
}

const go = (view, query) => {
  const text = new URLSearchParams(query || {}).toString();
  location.hash = `#/${view}${text ? "?" + text : ""}`;
};

function useLive() {
  const [live, setLive] = useState({ state: "lost", snapshot: null, serial: 0, samples: 0 });
  useEffect(() => {
    follow(
      (name, data) =>
        setLive((before) =>
          name === "evaluations" ? { ...before, samples: before.samples + 1 } : { ...before, serial: before.serial + 1, ...(name === "snapshot" ? { snapshot: data } : {}) },
        ),
      (state) => setLive((before) => ({ ...before, state, serial: before.serial + 1 })),
    );
  }, []);
  return live;
}

function App() {
  const live = useLive();
  const [place, setPlace] = useState(where());
  const [overview, setOverview] = useState(null);
  const [rows, setRows] = useState({ flags: [], since: null });
  const [evaluations, setEvaluations] = useState({ flags: {} });
  const [, tick] = useState(0);
  useEffect(() => {
    const moved = () => setPlace(where());
    addEventListener("hashchange", moved);
    const timer = setInterval(() => tick((count) => count + 1), 10_000);
    return () => (removeEventListener("hashchange", moved), clearInterval(timer));
  }, []);
  useEffect(() => {
    get("").then(setOverview, (error) => setOverview((before) => (error instanceof ApiError || !before ? { error } : before)));
  }, [live.serial]);
  const shown = overview && overview.views ? overview.views : [];
  const ofAgent = shown.includes("flags") && !overview.titles;
  useEffect(() => {
    if (ofAgent) get("/flags").then((data) => setRows({ flags: indexed(data.flags), since: data.since }), () => {});
  }, [live.serial, ofAgent]);
  useEffect(() => {
    if (ofAgent) get("/evaluations").then(setEvaluations, () => {});
  }, [live.samples, ofAgent]);
  useEffect(() => keyboard(), []);
  useEffect(() => {
    document.title = `${place.query.key ? visible(place.query.key, 60) : TITLES[place.view] || "wigwag"} · wigwag console`;
  }, [place]);
  if (overview && overview.error) return html`<${Refused} error=${overview.error} />`;
  if (!overview) return html`<p class="blank">Loading …</p>`;
  const props = { serial: live.serial, query: place.query, go };
  const views = {
    flags: () => html`<${Flags} ...${props} rows=${rows.flags} since=${rows.since} evaluations=${evaluations} />`,
    flag: () => html`<${Flag} ...${props} />`,
    sources: () => html`<${Sources} ...${props} />`,
    streams: () => html`<${Streams} ...${props} />`,
    snapshots: () => html`<${Snapshots} ...${props} />`,
    findings: () => html`<${AllFindings} ...${props} />`,
    whatif: () => html`<${WhatIf} ...${props} />`,
  };
  const own = overview.titles || TITLES;
  const chosen = shown.includes(place.view) || (place.view === "flag" && shown.includes("flags")) ? place.view : shown[0];
  const current = chosen === "flag" ? "flags" : chosen;
  return html`<a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <h1><img src="icon.svg" alt="" width="20" height="20" /> wigwag <span class="dim">${overview.face}</span></h1>
      <nav aria-label="Views">${shown.map((name) => html`<a href=${`#/${name}`} aria-current=${name === current ? "page" : undefined}>${own[name]}</a>`)}</nav>
      <p class="live" role="status"><${Connection} live=${live} /></p>
      <${Theme} />
    </header>
    <main id="main" tabindex="-1">${overview.titles ? html`<${TableView} name=${chosen} ...${props} />` : views[chosen]()}</main>`;
}

function Connection({ live }) {
  if (live.state !== "live") return html`<span class="badge warn">reconnecting</span>`;
  if (!live.snapshot || live.snapshot.id === undefined) return html`<span class="badge on">live</span>`;
  if (!live.snapshot.number) return html`<span class="badge warn">no flags yet</span>`;
  return html`<span class="badge on">live</span> <span class="dim">snapshot ${live.snapshot.number} <code>${live.snapshot.id.slice(0, 8)}</code> <${When} at=${live.snapshot.published} /></span>`;
}

function Theme() {
  const stored = localStorage.getItem("wigwag-theme") || "auto";
  const [theme, setTheme] = useState(stored);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("wigwag-theme", theme);
  }, [theme]);
  const next = { auto: "light", light: "dark", dark: "auto" };
  return html`<button type="button" class="small" onClick=${() => setTheme(next[theme] || "auto")} aria-label=${`Theme: ${theme}`} title="light, dark, or as the system">◐ ${theme}</button>`;
}

function Refused({ error }) {
  const asked = error instanceof ApiError && error.status === 401;
  const send = (event) => {
    event.preventDefault();
    token.set(new FormData(event.target).get("token"));
    location.reload();
  };
  return html`<main class="blank"><h1>wigwag console</h1><p role="alert" class="failure">${visible(error.message)}</p>
    ${asked ? html`<form onSubmit=${send}><label class="field">Token <input name="token" type="password" autocomplete="off" /></label> <button>Show the flags</button></form>` : html`<p><button type="button" onClick=${() => location.reload()}>Try again</button></p>`}</main>`;
}

// `/` searches, Esc clears and goes back, arrows walk through the table wherever the focus is not in a field.
function keyboard() {
  const onKeyDown = (event) => {
    const field = event.target.matches("input, textarea, select");
    if (event.key === "/" && !field && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      if (where().view !== "flags") go("flags");
      requestAnimationFrame(() => document.querySelector("#search")?.focus());
    } else if (event.key === "Escape") {
      if (event.target.id === "search" && event.target.value) {
        event.target.value = "";
        event.target.dispatchEvent(new Event("input", { bubbles: true }));
      } else if (event.target.id === "search") document.querySelector("#grid")?.focus();
      else if (field) event.target.blur();
      else if (where().view === "flag") history.length > 1 ? history.back() : go("flags");
    } else if (event.target.id === "search" && ["ArrowDown", "Enter"].includes(event.key)) {
      event.preventDefault();
      const grid = document.querySelector("#grid");
      grid?.focus();
      if (event.key === "Enter") grid?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    } else if (["ArrowDown", "ArrowUp"].includes(event.key) && event.target === document.body) {
      document.querySelector("#grid")?.focus();
    }
  };
  addEventListener("keydown", onKeyDown);
  return () => removeEventListener("keydown", onKeyDown);
}

render(html`<${App} />`, document.querySelector("#app"));
