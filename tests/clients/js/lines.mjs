// A provider behind a line protocol: one JSON request per line in, one JSON line out for every answer, event and sight.
//
//   in   {"do": "evaluate", "key": …, "type": …, "default": …, "context": …}      {"do": "context", "context": …}
//   out  {"answer": …}    {"event": "PROVIDER_READY", "flags": […]}    {"sight": "response", "detail": "304"}
//
// Requests are answered in order; events and sights come when they happen. The end of the input is the end of all.

import { createInterface } from 'node:readline';

const GETTERS = {
  boolean: 'getBooleanDetails',
  string: 'getStringDetails',
  number: 'getNumberDetails',
  object: 'getObjectDetails',
};

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Tell the test what is to be seen from outside of a provider, such as the status of an HTTP answer. */
export const saw = (sight, detail) => print({ sight, detail: String(detail) });

/** A logger for providers: what it is told may be the only sign of a connection made again. */
const write = (...words) => saw('log', words.join(' '));
export const logger = { error: write, warn: write, info: write, debug: write };

/** Connect a provider to an SDK, print its events, and answer until the input ends. */
export async function drive(openFeature, events, provider) {
  const client = openFeature.getClient();
  for (const event of Object.values(events)) {
    client.addHandler(event, (details) => print({ event, flags: details?.flagsChanged ?? [], message: details?.message }));
  }
  openFeature.setProvider(provider);
  for await (const line of createInterface({ input: process.stdin })) {
    print({ answer: await perform(openFeature, client, JSON.parse(line)) });
  }
  process.exit(0); // some providers would go on trying to connect
}

async function perform(openFeature, client, request) {
  if (request.do === 'context') {
    await openFeature.setContext(request.context);
    return null;
  }
  // Web clients take no context here; the argument in its place, their options, is empty either way.
  const found = await client[GETTERS[request.type]](request.key, request.default, request.context ?? {});
  return [found.value, found.variant || null, found.reason ?? null, found.errorCode ?? null];
}
