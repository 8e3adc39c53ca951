// A chat model's endpoint that answers by what the user says last.
import { LLMock } from '@copilotkit/aimock';

const story = 'Your order left our warehouse this morning, and the carrier expects to bring it to you tomorrow before noon.';

export async function model() {
  const mock = new LLMock({ port: 0, auth: { apiKeys: ['test-key'] }, strict: true });
  mock.onMessage('Where is my order?', { content: story }, { chunkSize: 6, streamingProfile: { ttft: 5, tps: 100 } });
  mock.onMessage('Cut me off', { content: story }, { chunkSize: 6, truncateAfterChunks: 3 });
  mock.onMessage('Hang up', { content: story }, { chunkSize: 6, latency: 20, disconnectAfterMs: 100 });
  mock.onMessage('Say half', { content: 'It is on its', finishReason: 'length' });
  mock.onMessage('Say nothing', { content: '' });
  mock.onMessage('Show me my invoices', { content: 'Please sign in first.', toolCalls: [{ name: 'request_sign_in', arguments: '{"scopes":["poppy:read"]}' }] });
  mock.onMessage('A person, please', { content: 'I am getting someone.', toolCalls: [{ name: 'hand_off', arguments: '{"reason":"The user asks for a person."}' }] });
  mock.onMessage('Is it really me?', { content: 'I would like to hear it from the customer.', toolCalls: [{ name: 'request_user', arguments: '{"reason":"To confirm the refund."}' }] });
  mock.onMessage('That is all', { content: 'Goodbye.', toolCalls: [{ name: 'close_conversation', arguments: '{}' }] });
  mock.onMessage('Tool alone', { toolCalls: [{ name: 'hand_off', arguments: '{"reason":"No words."}' }] });
  mock.onMessage('Foreign tool', { content: 'Let me look.', toolCalls: [{ name: 'delete_everything', arguments: '{}' }] });
  mock.onMessage('Slow down', { error: { message: 'slow down', type: 'rate_limit_error', code: 'rate_limit_exceeded' }, status: 429, retryAfter: 7 });
  mock.onMessage('Break', { error: { message: 'oops', type: 'server_error' }, status: 500 });
  mock.on({ userMessage: 'No tools', predicate: (req) => (req.tools ?? []).length > 0 }, { error: { message: 'this model knows no tools', type: 'invalid_request_error', code: 'tools_unsupported' }, status: 400 });
  mock.on({ userMessage: 'No tools' }, { content: 'Without tools, then.' });
  mock.on({ userMessage: 'Remember?', predicate: (req) => req.messages.map((m) => m.role).join() === 'system,user,user,assistant,user' }, { content: 'I remember.' });
  mock.on({ userMessage: 'Who am I?', systemMessage: ['Be kind.', 'is signed in', 'acc_7', 'poppy:read', 'authorises'] }, { content: 'You are signed in.' });
  mock.on({ userMessage: 'Who am I?', systemMessage: ['is not signed in'] }, { content: 'I cannot know.' });
  mock.on({ userMessage: /\{"order":"1042"\}/ }, { content: 'Order 1042 it is.' });
  await mock.start();
  return Number(new URL(mock.url).port);
}
