// One flag: its rule in words, what a context gets and why, who gets what, and how it came to be as it is.
import { useEffect, useMemo, useState } from "./hooks.js";
import { get, post } from "./api.js";
import { Copy, Diff, Failure, Json, Text, When, clock, colour, html, pretty, useLoaded, visible } from "./ui.js";

const CONTEXT = "wigwag-context";
const remembered = () => sessionStorage.getItem(CONTEXT) || '{\n  "targetingKey": "user-1"\n}';

export function Flag({ query, serial, go }) {
  const asked = { key: query.key, ...(query.set === undefined ? {} : { set: query.set }) };
  const { data, error } = useLoaded(() => get("/flag", asked), [query.key, query.set, serial]);
  if (!data || data.key !== query.key)
    return html`<section><${Failure} error=${error} />${error && html`<p><a href="#/flags">All flags</a></p>`}</section>`;
  return html`<section class="flag" aria-label="One flag" key=${query.key + query.set}>
    <${Failure} error=${error} />
    <header class="title"><h2><${Text}>${data.key}<//></h2>
      ${data.flagSetId && html`<span class="dim">flag set <${Text}>${data.flagSetId}<//></span>`}
      <span class=${data.definition.state === "DISABLED" ? "badge off" : "badge on"}>${data.definition.state === "DISABLED" ? "disabled" : "enabled"}</span>
      <span class="dim">${data.type}, from <${Text}>${data.source}<//></span>
    </header>
    <${Explained} flag=${data} serial=${serial} />
    <${Shadows} flag=${data} />
    <${Findings} findings=${data.findings} />
    <details><summary>Definition</summary><${Json} value=${data.definition} /><${Copy} text=${pretty(data.definition)} /></details>
    <${History} flag=${data} />
  </section>`;
}

// The rule, the editor of the context, and the answer. What is taken is marked in the rule.
function Explained({ flag, serial }) {
  const [text, setText] = useState(remembered());
  const [outcome, setOutcome] = useState({ data: null, error: null });
  const context = useMemo(() => parsed(text), [text]);
  useEffect(() => {
    sessionStorage.setItem(CONTEXT, text);
    if (context.error) return undefined;
    let current = true;
    const timer = setTimeout(() => {
      post("/try", { key: flag.key, context: context.value }).then(
        (data) => current && setOutcome({ data, error: null }),
        (error) => current && setOutcome({ data: null, error }),
      );
    }, 120);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, flag.key, serial]);
  const taken = useMemo(() => paths(outcome.data && outcome.data.explanation.targeting), [outcome.data]);
  return html`<div class="two">
    <div>
      <h3 id="rule">Rule</h3>
      ${flag.words.length ? html`<ul class="words" aria-labelledby="rule"><${Phrases} phrases=${flag.words} taken=${taken} flag=${flag} /></ul>` : html`<p>No rule: everybody gets <b><${Text}>${flag.definition.defaultVariant || "the default in the code"}<//></b>.</p>`}
      <${Variants} flag=${flag} answer=${outcome.data && outcome.data.answer} />
    </div>
    <div>
      <h3 id="try">Try it</h3>
      <${Context} text=${text} setText=${setText} attributes=${flag.attributes} error=${context.error} />
      <${Failure} error=${outcome.error} />
      ${outcome.data && html`<${Answer} outcome=${outcome.data} />`}
      ${!context.error && html`<${Snippets} flag=${flag} context=${context.value} />`}
      <${Distribution} flag=${flag} />
    </div>
  </div>`;
}

function parsed(text) {
  try {
    const value = JSON.parse(text || "{}");
    if (value === null || typeof value !== "object" || Array.isArray(value)) return { error: "the context must be a JSON object" };
    return { value };
  } catch (error) {
    return { error: error.message };
  }
}

// Every piece of the rule that was evaluated, by its path.
function paths(step, into = new Map()) {
  if (step) {
    into.set(step.path, step);
    if (step.details && step.details.branch === null) into.set(`${step.path}#otherwise`, step);
    for (const inner of step.inputs || []) paths(inner, into);
  }
  return into;
}

const Phrases = ({ phrases, taken, flag }) => phrases.map((phrase) => html`<${Phrase} key=${phrase.path + phrase.kind} phrase=${phrase} taken=${taken} flag=${flag} />`);

function Phrase({ phrase, taken, flag }) {
  const step = taken.get(phrase.path);
  const truth = phrase.kind === "if" || phrase.kind === "condition" ? step && Boolean(step.result) : Boolean(step);
  const mark = !taken.size ? "" : !step ? "skipped" : truth ? "taken" : "tried";
  const below = phrase.children.filter((each) => each.kind !== "share");
  return html`<li class=${`phrase ${phrase.kind} ${mark}`}>
    <span class="words-text">${mark === "taken" && html`<span class="hidden">taken: </span>`}<${Text} most=${400}>${phrase.text}<//>${step && step.error && html` <span class="badge bad"><${Text}>${step.error}<//></span>`}</span>
    ${phrase.kind === "split" && html`<${Buckets} phrase=${phrase} step=${step} flag=${flag} />`}
    ${below.length > 0 && html`<ul><${Phrases} phrases=${below} taken=${taken} flag=${flag} /></ul>`}
  </li>`;
}

// The bar of a split, with the place of this context in it.
function Buckets({ phrase, step, flag }) {
  const shares = phrase.children;
  const names = Object.keys(flag.definition.variants);
  const details = step && step.details;
  const total = details && details.boundaries && details.boundaries.at(-1);
  const place = details && details.position != null && total ? details.position / total : null;
  const label = shares.map((share) => share.text).join(", ") + (place == null ? "" : `; this context is at ${(place * 100).toFixed(1)} %`);
  return html`<div class="buckets" role="img" aria-label=${label}>
    ${shares.map((share) => html`<span class=${`share ${colour(names, share.text.replace(/^\S+ % /, ""))}`} style=${{ width: `${share.share * 100}%` }} title=${share.text}></span>`)}
    ${place != null && html`<span class="here" style=${{ left: `${place * 100}%` }} title=${`this context: ${(place * 100).toFixed(1)} %`}></span>`}
  </div>`;
}

const Variants = ({ flag, answer }) => html`<h3>Variants</h3><table class="variants"><tbody>
  ${Object.entries(flag.definition.variants).map(([name, value]) => html`<tr class=${answer && answer.variant === name ? "taken" : ""}>
    <th scope="row"><span class=${`dot ${colour(Object.keys(flag.definition.variants), name)}`}></span><${Text}>${name}<//>${name === flag.definition.defaultVariant && html` <span class="badge off">default</span>`}</th>
    <td><code><${Text} most=${200}>${JSON.stringify(value)}<//></code></td></tr>`)}
</tbody></table>`;

function Context({ text, setText, attributes, error }) {
  const add = (name) => {
    const { value } = parsed(text);
    if (value === undefined) return;
    const steps = name.split(".");
    let place = value;
    for (const step of steps.slice(0, -1)) place = place[step] = typeof place[step] === "object" && place[step] ? place[step] : {};
    if (place[steps.at(-1)] === undefined) place[steps.at(-1)] = "";
    setText(pretty(value));
  };
  const missing = attributes.filter((name) => !name.startsWith("$flagd"));
  return html`<label class="field">Context (JSON)
      <textarea id="context" name="context" spellcheck="false" rows="5" aria-invalid=${Boolean(error)} aria-describedby="context-error" onInput=${(event) => setText(event.target.value)} value=${text}></textarea>
    </label>
    <p id="context-error" class="failure small" role="status">${error ? visible(error) : ""}</p>
    ${missing.length > 0 && html`<p class="small dim">The rule looks at ${missing.map((name) => html`<button type="button" class="chip" onClick=${() => add(name)}><${Text}>${name}<//></button> `)}</p>`}`;
}

function Answer({ outcome }) {
  const { answer } = outcome;
  const value = answer.variant == null && !answer.error ? "the default in the code" : JSON.stringify(answer.value);
  return html`<div class="verdict" role="status" aria-label="Answer">
      ${answer.error ? html`<b class="bad-text">${answer.error}</b> <${Text}>${answer.message}<//>` : html`<b><${Text} most=${200}>${value}<//></b> <span class="dim">variant <${Text}>${answer.variant ?? "none"}<//>, ${answer.reason}</span>`}
    </div>
    <p class="small dim" id="over-time">${spans(outcome.over_time)}</p>`;
}

function spans(over) {
  const name = (each) => each.answer.variant ?? each.answer.error ?? "the default in the code";
  if (over.length < 2) return over.length ? `${visible(name(over[0]))} in every snapshot that is kept` : "";
  return over.map((each, at) => (at === 0 ? `${visible(name(each))} since ${clock(each.since)}` : `${visible(name(each))} until ${clock(over[at - 1].since)}`)).reverse().join(", then ");
}

// The same question, to copy.
function Snippets({ flag, context }) {
  const [which, setWhich] = useState("curl");
  const snippets = useMemo(() => written(flag, context), [flag.key, context]);
  return html`<details class="snippets"><summary>Ask from code</summary>
    <div class="tabs" role="tablist" aria-label="Language">${Object.keys(snippets).map((name) => html`<button type="button" role="tab" aria-selected=${name === which} onClick=${() => setWhich(name)}>${name}</button>`)}</div>
    <pre class="code" tabindex="0">${visible(snippets[which], 20000).replaceAll("\\u000a", "\n")}</pre><${Copy} text=${snippets[which]} />
  </details>`;
}

const METHODS = { boolean: ["boolean", "Boolean", "False", "false"], string: ["string", "String", '""', '""'], integer: ["integer", "Number", "0", "0"], float: ["float", "Number", "0.0", "0"], object: ["object", "Object", "{}", "{}"] };

function written(flag, context) {
  const [python, script, none, nothing] = METHODS[flag.type] || METHODS.object;
  const { targetingKey, ...attributes } = context;
  const body = JSON.stringify({ context }).replaceAll("'", "'\\''");
  const url = `http://${location.hostname}:8016/ofrep/v1/evaluate/flags/${encodeURIComponent(flag.key)}`;
  const key = JSON.stringify(flag.key);
  return {
    curl: `curl -s '${url.replaceAll("'", "%27")}' -d '${body}'`,
    Python: `client.get_${python}_value(${key}, ${none}, EvaluationContext(${JSON.stringify(targetingKey ?? "")}, ${literal(attributes)}))`,
    JavaScript: `await client.get${script}Value(${key}, ${nothing}, ${JSON.stringify(context)})`,
  };
}

function literal(value) {
  if (value === null) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

// Many contexts, pasted or from a file: one JSON list, or one object or targeting key per line.
export function readContexts(text) {
  const trimmed = text.trim();
  if (!trimmed) return [];
  if (trimmed.startsWith("[")) return JSON.parse(trimmed);
  return trimmed.split("\n").filter((line) => line.trim()).map((line) => (line.trim().startsWith("{") ? JSON.parse(line) : { targetingKey: line.trim() }));
}

function Distribution({ flag }) {
  const [text, setText] = useState("");
  const [result, setResult] = useState({ data: null, error: null });
  const ask = async (content) => {
    setText(content);
    try {
      const contexts = readContexts(content);
      setResult({ data: contexts.length ? await post("/distribution", { key: flag.key, contexts }) : null, error: null });
    } catch (error) {
      setResult({ data: null, error });
    }
  };
  const names = Object.keys(flag.definition.variants);
  const { data } = result;
  return html`<details class="distribution"><summary>Who gets what</summary>
    <label class="field">Contexts: a JSON list, or one context or targeting key per line
      <textarea id="contexts" name="contexts" rows="4" spellcheck="false" value=${text} onInput=${(event) => ask(event.target.value)}></textarea></label>
    <label class="small">or a file <input type="file" name="file" accept=".json,.jsonl,.txt" onChange=${async (event) => event.target.files[0] && ask(await event.target.files[0].text())} /></label>
    <${Failure} error=${result.error} />
    ${data && html`<table class="variants" id="distribution"><caption>${data.contexts} contexts</caption><tbody>${Object.entries(data.variants).map(([name, count]) => html`<tr><th scope="row"><span class=${`dot ${colour(names, name)}`}></span><${Text}>${name}<//></th><td>${count}</td><td>${((100 * count) / data.contexts).toFixed(1)} %</td></tr>`)}</tbody></table>`}
  </details>`;
}

const Shadows = ({ flag }) =>
  flag.shadows.length > 0 && html`<h3>Hides ${flag.shadows.length === 1 ? "a definition" : `${flag.shadows.length} definitions`} of lower priority</h3>
  ${flag.shadows.map((each) => html`<details><summary>from <${Text}>${each.source}<//>${each.differs.length === 0 && " (the same)"}</summary><${Diff} before=${each.definition} after=${flag.definition} /></details>`)}`;

export const Findings = ({ findings }) =>
  findings.length > 0 && html`<h3>Findings</h3><ul class="findings">${findings.map((each) => html`<li><span class=${`badge ${each.severity === "error" ? "bad" : "warn"}`}>${each.severity}</span> <code><${Text}>${each.path}<//></code> <${Text}>${each.message}<//>${each.hint && html`<br /><span class="dim"><${Text}>${each.hint}<//></span>`}</li>`)}</ul>`;

const History = ({ flag }) => html`<h3>History</h3><ol class="history">
  ${flag.history.map((entry) => html`<li><details><summary><${When} at=${entry.published} /> <span class="dim">snapshot ${entry.number}</span> <${Text}>${entry.change}<//></summary>
    ${entry.before || !entry.definition ? html`<${Diff} before=${entry.before} after=${entry.definition} />` : html`<${Json} value=${entry.definition} />`}</details></li>`)}
</ol>`;
