// @openfeature/flagd-web-provider: Connect over fetch. The argument is its options: {"host": …, "port": …, "tls": false}

import { FlagdWebProvider } from '@openfeature/flagd-web-provider';
import { OpenFeature, ProviderEvents } from '@openfeature/web-sdk';
import { drive, logger } from './lines.mjs';

await drive(OpenFeature, ProviderEvents, new FlagdWebProvider(JSON.parse(process.argv[2]), logger));
