// What the official client makes of the same streams. Usage: node second-opinion.mjs PORT QUESTION…
// Prints for each question a line of JSON: the text, and the tools that were called.
import OpenAI from 'openai';

const [port, ...questions] = process.argv.slice(2);
const client = new OpenAI({ apiKey: 'test-key', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
for (const content of questions) {
  const stream = client.chat.completions.stream({ model: 'gpt-4o', messages: [{ role: 'user', content }], stream: true });
  let pieces = '';
  stream.on('content', (piece) => { pieces += piece; });
  const { message } = (await stream.finalChatCompletion()).choices[0];
  if (pieces !== (message.content ?? '')) throw new Error('the pieces are not the message');
  console.log(JSON.stringify({ text: message.content ?? '', tools: (message.tool_calls ?? []).map((c) => c.function.name) }));
}
