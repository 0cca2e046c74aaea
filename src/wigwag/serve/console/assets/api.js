// The API of the console: requests, the token for other machines, and the live stream.
const base = new URL("api/v1", document.baseURI).pathname;
const KEY = "wigwag-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more) {
  const given = token.get();
  return { ...more, ...(given ? { authorization: `Bearer ${given}` } : {}) };
}

async function checked(response) {
  if (response.ok) return response;
  const text = await response.text();
  let message = text.slice(0, 300);
  try {
    const body = JSON.parse(text);
    message = body.error || body.errorDetails || message;
  } catch {
    // not JSON: the text is what there is
  }
  throw new ApiError(response.status, message || `the server answered ${response.status}`);
}

export async function get(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  const response = await fetch(`${base}${path}${text ? "?" + text : ""}`, { headers: headers() });
  return (await checked(response)).json();
}

export async function post(path, body) {
  const response = await fetch(base + path, {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify(body),
  });
  return (await checked(response)).json();
}

// Follow the live stream for ever. `on` is called with each event, `state` with "live", "lost" or an ApiError.
// EventSource cannot send a token, so the stream is read with fetch.
export async function follow(on, state) {
  for (let failures = 0; ; failures += 1) {
    try {
      const response = await checked(await fetch(`${base}/events`, { headers: headers() }));
      state("live");
      failures = 0;
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader(), on);
      state("lost");
    } catch (error) {
      if (error instanceof ApiError && [401, 403].includes(error.status)) return state(error);
      state("lost");
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** failures, 5000)));
  }
}

async function read(reader, on) {
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const name = /^event: (.*)$/m.exec(block);
      const data = /^data: (.*)$/m.exec(block);
      if (name && data) on(name[1], JSON.parse(data[1]));
    }
  }
}
