"use strict";
(() => {
  const KEY = "dflag-token";
  const find = (id) => document.getElementById(id);
  const token = find("token");
  const search = find("search");

  const say = (text) => { find("said").textContent = text; };

  const note = (article, text, good) => {
    article.querySelector(".notice")?.remove();
    const notice = document.createElement("p");
    notice.className = `notice ${good ? "good" : "bad"}`;
    notice.setAttribute("role", "alert");
    notice.textContent = text;
    article.querySelector("form").before(notice);
  };

  const look = () => {
    const wanted = search.value.trim().toLowerCase();
    let found = 0;
    for (const article of document.querySelectorAll("article")) {
      const head = ["h2", ".usage", "dl"].map((part) => article.querySelector(part)?.textContent ?? "").join(" ");
      article.hidden = !head.toLowerCase().includes(wanted);
      found += !article.hidden;
    }
    say(wanted ? `${found} found` : "");
  };

  // One flag, and what is at the top, as they are now; the rest of the page stays, with whatever is being typed there.
  const refresh = async (article, url) => {
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (!answer.ok) return article;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["facts", "alerts"]) find(id)?.replaceWith(fresh.getElementById(id) ?? "");
    const next = fresh.getElementById(article.id);
    if (!next) return article;
    article.replaceWith(next);
    return next;
  };

  const explain = async (answer) => {
    try {
      return (await answer.json()).detail || answer.statusText;
    } catch {
      return `${answer.status} ${answer.statusText}`;
    }
  };

  const described = (effect) => {
    const would = effect.validate_only;
    if (!effect.in_force) return would ? "Accepted, but a value of higher precedence would stay in force." : "Set, but a value of higher precedence is in force.";
    if (effect.changed === false) return would ? "Accepted; nothing would change." : "Done; the value is the same.";
    if (effect.changed === null) return would ? "Accepted." : "Done.";
    return `${would ? "Would change" : "Changed"} from ${effect.old_value} to ${effect.new_value}`;
  };

  const request = (form, dry) => {
    const data = new FormData(form);
    const headers = { Accept: "application/json" };
    if (token?.value) headers.Authorization = `Bearer ${token.value}`;
    if (form.dataset.reset) return [form.dataset.reset, { method: "DELETE", headers }];
    headers["Content-Type"] = "application/json";
    headers["If-Match"] = `"${data.get("if_match")}"`;
    const body = { value: data.get("value") ?? "", ttl: data.get("ttl") || null };
    return [form.dataset.set + (dry ? "?validate_only=1" : ""), { method: "PUT", headers, body: JSON.stringify(body) }];
  };

  const send = async (form, dry) => {
    const article = form.closest("article");
    if (token && !token.value) {
      note(article, "Type the token first, at the top of the page.", false);
      token.focus();
      return;
    }
    const answer = await fetch(...request(form, dry));
    if (!answer.ok) {
      note(article, await explain(answer), false);
      return;
    }
    const effect = await answer.json();
    const text = described(effect) + (effect.warning ? `; but ${effect.warning}` : "");
    if (dry) {
      note(article, text, true);
      return;
    }
    const next = await refresh(article, form.dataset.set || form.dataset.reset);
    note(next, text, true);
    next.querySelector("button")?.focus({ preventScroll: true });
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.set && !form.dataset.reset) return;
    event.preventDefault();
    const buttons = form.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      await send(form, event.submitter?.name === "validate_only");
    } catch (error) {
      note(form.closest("article"), `The page cannot be reached: ${error.message}`, false);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  });

  if (token) {
    token.value = sessionStorage.getItem(KEY) ?? "";
    token.addEventListener("input", () => sessionStorage.setItem(KEY, token.value));
  }
  if (search) {
    search.hidden = false;
    search.addEventListener("input", look);
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest("input, textarea")) return;
      event.preventDefault();
      search.focus();
    });
  }
  if (document.querySelector("article")) {
    setInterval(() => {
      for (const left of document.querySelectorAll("[data-left]")) {
        const seconds = Math.max(0, Number(left.dataset.left) - 1);
        left.dataset.left = seconds;
        const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
        left.textContent = `${hours ? `${hours}h` : ""}${hours || minutes ? `${minutes}m` : ""}${seconds % 60}s`;
        const article = left.closest("article");
        const form = article.querySelector("[data-set]");
        const busy = article.contains(document.activeElement);
        if (seconds === 0 && form && !busy) refresh(article, form.dataset.set).catch(() => {});
      }
    }, 1000);
  }
})();
