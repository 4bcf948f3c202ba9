// Conversations in localStorage, one key each, so that two tabs do not overwrite each other's.
//
// A conversation: {id, title, updated (ms), settings, messages}. A message is
//   {role: 'user', content}
//   {role: 'assistant', content, reasoning, reasoningMs, calls: [{id, name, arguments}], finish,
//    usage, ttftMs, decodeMs, stopped, error: {message, status, waitS}, isRunning}
//   {role: 'tool', callId, content}

const PREFIX = 'kuruma.conversation.';

export const DEFAULT_SETTINGS = Object.freeze({
  system: '', model: '', thinking: '', effort: '', temperature: '', top_p: '', top_k: '',
  max_tokens: '', seed: '', tools: '',
});

export function newConversation(settings = DEFAULT_SETTINGS) {
  return {
    id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8),
    title: '', updated: Date.now(), settings: { ...DEFAULT_SETTINGS, ...settings }, messages: [],
  };
}

// Returns whether there was room.
export function save(conversation) {
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export function remove(id) {
  localStorage.removeItem(PREFIX + id);
}

export function isConversationKey(key) {
  return key === null || key.startsWith(PREFIX);
}

// All readable conversations, the newest first.
export function loadAll() {
  const all = [];
  for (let i = 0; i < localStorage.length; ++i) {
    const key = localStorage.key(i);
    if (!key.startsWith(PREFIX)) continue;
    try {
      const conversation = checked(JSON.parse(localStorage.getItem(key)));
      conversation.id = key.slice(PREFIX.length);
      all.push(conversation);
    } catch {
      // Written by something else; leave it alone.
    }
  }
  return all.sort((a, b) => b.updated - a.updated);
}

const text = (value) => (typeof value === 'string' ? value : '');
const number = (value) => (Number.isFinite(value) ? value : null);

function checkedMessage(message) {
  if (message.role === 'user') return { role: 'user', content: text(message.content) };
  if (message.role === 'tool') {
    return { role: 'tool', callId: text(message.callId), content: text(message.content) };
  }
  if (message.role !== 'assistant') throw new Error(`unknown role ${message.role}`);
  const calls = Array.isArray(message.calls) ? message.calls : [];
  const error = message.error && {
    message: text(message.error.message), status: number(message.error.status), waitS: null,
  };
  return {
    role: 'assistant', content: text(message.content), reasoning: text(message.reasoning),
    reasoningMs: number(message.reasoningMs),
    calls: calls.map((call) =>
      ({ id: text(call.id), name: text(call.name), arguments: text(call.arguments) })),
    finish: text(message.finish), usage: message.usage ?? null, ttftMs: number(message.ttftMs),
    decodeMs: number(message.decodeMs), stopped: Boolean(message.stopped || message.isRunning),
    error: error ?? null, isRunning: false,
  };
}

// A conversation made of the parts of `value` that we know. Throws what is wrong with it. An answer
// that was running when the page went away counts as stopped.
function checked(value) {
  if (typeof value !== 'object' || value === null || !Array.isArray(value.messages)) {
    throw new Error('not a conversation');
  }
  const conversation = newConversation();
  for (const name of Object.keys(DEFAULT_SETTINGS)) {
    conversation.settings[name] = text(value.settings?.[name]);
  }
  conversation.title = text(value.title);
  conversation.updated = number(value.updated) ?? Date.now();
  conversation.messages = value.messages.map(checkedMessage);
  return conversation;
}

export function exportText(conversations) {
  return JSON.stringify({ kuruma: 1, conversations }, null, 1) + '\n';
}

// The conversations of an exported text, with new ids. Throws an Error that a person can read.
export function importText(source) {
  let value;
  try {
    value = JSON.parse(source);
  } catch {
    throw new Error('The file is not JSON.');
  }
  if (!Array.isArray(value?.conversations)) throw new Error('The file holds no conversations of Kuruma.');
  return value.conversations.map((conversation, i) => {
    try {
      return checked(conversation);
    } catch (error) {
      throw new Error(`Conversation ${i + 1} of the file cannot be read: ${error.message}.`);
    }
  });
}
