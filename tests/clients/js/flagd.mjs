// @openfeature/flagd-provider. The argument is its options: {"resolverType": "rpc", "host": …, "port": …}

import { FlagdProvider } from '@openfeature/flagd-provider';
import { OpenFeature, ProviderEvents } from '@openfeature/server-sdk';
import { drive } from './lines.mjs';

await drive(OpenFeature, ProviderEvents, new FlagdProvider(JSON.parse(process.argv[2])));
