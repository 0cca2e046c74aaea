// What a document would change. Nothing is written: the result is a file, or a command.
import { useEffect, useRef, useState } from "./hooks.js";
import { get, post } from "./api.js";
import { readContexts } from "./flag.js";
import { Copy, Failure, Table, Text, html, useLoaded, visible } from "./ui.js";

const EXAMPLE = `flags:
  new-flag:
    state: ENABLED
    variants: { "on": true, "off": false }
    defaultVariant: "off"
`;

export function WhatIf({ serial }) {
  const [text, setText] = useState(sessionStorage.getItem("wigwag-whatif") || EXAMPLE);
  const [source, setSource] = useState("");
  const [contexts, setContexts] = useState("");
  const [result, setResult] = useState({ data: null, error: null });
  const sources = useLoaded(() => get("/sources"), [serial]);
  useEffect(() => {
    sessionStorage.setItem("wigwag-whatif", text.slice(0, 1_000_000));
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const data = await post("/whatif", { document: text, source, contexts: readContexts(contexts) });
        if (current) setResult({ data, error: null });
      } catch (error) {
        if (current) setResult({ data: null, error });
      }
    }, 250);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, source, contexts, serial]);
  const names = sources.data ? sources.data.sources.map((each) => each.source) : [];
  return html`<section class="whatif" aria-label="What if"><h2>What if</h2>
    <p class="dim">Nothing is written. The document is compared with what is served now.</p>
    <div class="two"><div>
      <label class="field">The document <select id="source" name="source" value=${source} onChange=${(event) => setSource(event.target.value)}><option value="">comes on top of all sources</option>${names.map((name) => html`<option value=${name}>replaces ${visible(name, 80)}</option>`)}</select></label>
      <${Editor} text=${text} setText=${setText} findings=${(result.data && result.data.findings) || []} />
      <p><${Download} text=${text} /> <${Copy} label="copy kubectl apply" text=${kubectl(text)} /></p>
      <label class="field">Contexts to try (optional): a JSON list, or one context or targeting key per line
        <textarea id="whatif-contexts" name="whatif-contexts" rows="3" spellcheck="false" value=${contexts} onInput=${(event) => setContexts(event.target.value)}></textarea></label>
    </div><div><${Failure} error=${result.error} />${result.data && html`<${Result} data=${result.data} />`}</div></div>
  </section>`;
}

// The text with line numbers; lines with findings are marked.
function Editor({ text, setText, findings }) {
  const gutter = useRef(null);
  const lines = text.split("\n").length;
  const marked = new Map(findings.filter((each) => each.line).map((each) => [each.line, each]));
  return html`<div class="editor">
    <div class="gutter" aria-hidden="true" ref=${gutter}>${Array.from({ length: Math.min(lines, 5000) }, (_, at) => html`<span class=${marked.has(at + 1) ? (marked.get(at + 1).severity === "error" ? "bad-text" : "warn-text") : ""}>${at + 1}</span>`)}</div>
    <textarea id="document" name="document" aria-label="Flag document, JSON or YAML" spellcheck="false" wrap="off" rows="18" value=${text} onInput=${(event) => setText(event.target.value)} onScroll=${(event) => (gutter.current.scrollTop = event.target.scrollTop)}></textarea>
  </div>`;
}

function Result({ data }) {
  const { comparison } = data;
  return html`<h3>Findings</h3>
    ${data.findings.length ? html`<ul class="findings" id="whatif-findings">${data.findings.map((each) => html`<li><span class=${`badge ${each.severity === "error" ? "bad" : "warn"}`}>${each.severity}</span> ${each.line ? html`<b>line ${each.line}</b> ` : ""}<code><${Text}>${each.path}<//></code> <${Text} most=${400}>${each.message}<//>${each.hint && html`<br /><span class="dim"><${Text}>${each.hint}<//></span>`}</li>`)}</ul>` : html`<p>None.</p>`}
    ${!data.usable && html`<p class="failure">The document cannot be used; clients would keep the flags of now.</p>`}
    ${data.usable && html`<h3>Difference</h3><pre class="code" tabindex="0" id="whatif-diff">${data.text.split("\n").map((line) => html`<span class=${line[0] === "+" ? "new" : line[0] === "-" ? "gone" : line[0] === "~" ? "changed" : ""}>${visible(line, 500)}${"\n"}</span>`)}</pre>
      ${data.shares.length > 0 && html`<h3>Shares that move</h3><${Table} label="Shares that move" columns=${[["Flag", (row) => html`<${Text}>${row.key}<//>`], ["Users", (row) => row.text]]} rows=${data.shares} />`}
      ${comparison.contexts > 0 && html`<p role="status" id="whatif-moved"><b>${comparison.affected} of ${comparison.contexts}</b> contexts would get another answer.</p>`}`}`;
}

function Download({ text }) {
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = text.trim().startsWith("{") ? "flags.json" : "flags.yaml";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<button type="button" class="small" onClick=${save}>download the file</button>`;
}

const kubectl = (text) => `kubectl apply -f - <<'FLAGS'
apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlag
metadata: { name: flags }
spec:
  flagSpec:
${text.trimEnd().split("\n").map((line) => "    " + line).join("\n")}
FLAGS`;
