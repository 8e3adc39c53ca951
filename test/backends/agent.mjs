// An A2A agent by the official SDK, which does what the message asks for.
import express from 'express';
import { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler } from '@a2a-js/sdk/server/express';
import { Role, TaskState } from '@a2a-js/sdk';

const text = (value) => ({ content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: 'text/plain' });
const data = (value) => ({ content: { $case: 'data', value }, metadata: undefined, filename: '', mediaType: 'application/json' });
let count = 0;
const next = (prefix) => `${prefix}-${++count}`;

class Executor {
  async execute({ userMessage, taskId, contextId }, bus) {
    const say = (...parts) => ({
      messageId: next('msg'), contextId, taskId, role: Role.ROLE_AGENT, parts, metadata: undefined, extensions: [], referenceTaskIds: [],
    });
    const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
    const begin = () => bus.publish(AgentEvent.task({
      id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [userMessage], metadata: undefined,
    }));
    const update = (state, ...parts) => bus.publish(AgentEvent.statusUpdate({
      taskId, contextId, status: status(state, parts.length ? say(...parts) : undefined), metadata: undefined,
    }));
    const output = (artifactId, append, lastChunk, ...parts) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk, metadata: undefined,
      artifact: { artifactId, name: artifactId, description: '', parts, metadata: undefined, extensions: [] },
    }));
    const asked = userMessage.parts.find((p) => p.content?.$case === 'text')?.content.value;
    switch (asked) {
      case 'Answer at once':
        bus.publish(AgentEvent.message(say(text('Here you are.'), data({ order: '1042' }))));
        break;
      case 'Take your time':
        begin();
        update(TaskState.TASK_STATE_WORKING, text('Looking …'));
        for (const [i, piece] of ['Your order ', 'is with the carrier, ', 'and it should be at your door tomorrow before noon.'].entries()) {
          output('answer', i > 0, i === 2, text(piece));
          await new Promise((done) => setTimeout(done, 60));
        }
        output('tracking', false, true, data({ carrier: 'Example Parcel', number: 'EP 77' }));
        update(TaskState.TASK_STATE_COMPLETED);
        break;
      case 'Ask back':
        begin();
        update(TaskState.TASK_STATE_INPUT_REQUIRED, text('Which order do you mean?'));
        break;
      case 'Mind my account':
        begin();
        update(TaskState.TASK_STATE_AUTH_REQUIRED, text('Please sign in first.'));
        break;
      case 'Fail with words':
        begin();
        update(TaskState.TASK_STATE_FAILED, text('Our stock system is down.'));
        break;
      case 'Fail without words':
        begin();
        update(TaskState.TASK_STATE_FAILED);
        break;
      case 'Refuse':
        begin();
        update(TaskState.TASK_STATE_REJECTED, text('I only talk about orders.'));
        break;
      case 'Who is there?': {
        const about = userMessage.metadata?.poppyfield;
        bus.publish(AgentEvent.message(say(text(`${userMessage.messageId} in ${contextId}: ${about?.session?.signed_in ? about.session.account : 'a stranger'}`))));
        break;
      }
      case 'Break':
        throw new Error('a secret of the agent');
      default: {
        const given = userMessage.parts.find((p) => p.content?.$case === 'data')?.content.value;
        bus.publish(AgentEvent.message(say(text(`Got ${JSON.stringify(given)}`))));
      }
    }
    bus.finished();
  }

  async cancelTask() {}
}

// agent starts one that speaks a version of the protocol, and returns its port.
export async function agent({ version, host, streaming }) {
  const legacyCompat = { enabled: version === '0.3' };
  const card = {
    name: 'Order agent', description: 'Knows orders.', version: '1.0.0', provider: undefined, securitySchemes: {}, securityRequirements: [],
    supportedInterfaces: [{ url: `https://${host}/a2a`, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: version }],
    capabilities: { streaming, pushNotifications: false, extensions: [], extendedAgentCard: false },
    defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], skills: [], signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  const app = express();
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use('/a2a', (req, res, go) => (req.get('Authorization') === 'Bearer test-key' ? go() : res.status(401).json({ error: 'no' })));
  app.use('/a2a', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat }));
  return new Promise((done) => {
    const server = app.listen(0, '127.0.0.1', () => done(server.address().port));
  });
}
