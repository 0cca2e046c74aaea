// @openfeature/ofrep-web-provider: OFREP over fetch and EventSource. The argument is its options: {"baseUrl": …}

import { OFREPWebProvider } from '@openfeature/ofrep-web-provider';
import { OpenFeature, ProviderEvents } from '@openfeature/web-sdk';
import { drive, logger, saw } from './lines.mjs';

// Node has no storage without a file for it. Its own EventSource needs --experimental-eventsource.
const stored = new Map();
Object.defineProperty(globalThis, 'localStorage', {
  value: {
    getItem: (key) => stored.get(key) ?? null,
    setItem: (key, value) => stored.set(key, value),
    removeItem: (key) => stored.delete(key),
  },
});

/** Node's EventSource, whose openings the test waits for: a change before the first one would go unnoticed. */
globalThis.EventSource = class extends EventSource {
  constructor(...words) {
    super(...words);
    this.addEventListener('open', () => saw('open', this.url));
  }
};

async function fetchImplementation(...words) {
  const response = await fetch(...words);
  saw('response', response.status);
  return response;
}

const options = { ...JSON.parse(process.argv[2]), fetchImplementation };
await drive(OpenFeature, ProviderEvents, new OFREPWebProvider(options, logger));
