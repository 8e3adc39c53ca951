// Independent servers that a Company may have already: a chat model's endpoint (aimock)
// and A2A agents (the protocol's official SDK), each behind TLS on a port of its own.
// Usage: node backends.mjs CHAIN KEY. Prints the ports as a line of JSON, and ends when
// its standard input does.
import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';

import { agent } from './agent.mjs';
import { model } from './model.mjs';

const [chain, key] = process.argv.slice(2).map((name) => readFileSync(name));

// terminate puts TLS in front of a server of plain HTTP, and returns the port.
function terminate(inner) {
  const outer = tls.createServer({ cert: chain, key }, (secure) => {
    const plain = net.connect(inner, '127.0.0.1');
    secure.on('error', () => plain.destroy());
    plain.on('error', () => secure.destroy());
    secure.pipe(plain).pipe(secure);
  });
  return new Promise((done) => outer.listen(0, '127.0.0.1', () => done(outer.address().port)));
}

const plain = await model();
const ports = {
  plain,
  model: await terminate(plain),
  agent: await terminate(await agent({ version: '1.0', host: 'agent.backends.test', streaming: true })),
  older: await terminate(await agent({ version: '0.3', host: 'older.backends.test', streaming: true })),
  whole: await terminate(await agent({ version: '1.0', host: 'whole.backends.test', streaming: false })),
};
console.log(JSON.stringify(ports));

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
