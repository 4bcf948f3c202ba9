// Talking to the server: requests with the API key, errors with a status, and Chat Completions as a
// stream of server-sent events.

const KEY = 'kuruma.key';

export function apiKey() {
  return sessionStorage.getItem(KEY) || '';
}

export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// What the server, or the way to it, said instead of an answer.
export class ServerError extends Error {
  constructor(message, { status = 0, waitS = null, key = null } = {}) {
    super(message);
    this.status = status;  // HTTP; 0: none came
    this.waitS = waitS;    // from Retry-After
    this.key = key;        // the API key of the request that was refused
  }
}

// Seconds of a Retry-After header, which is a number or a date; null if it is neither.
function retryAfterS(header) {
  if (!header) return null;
  const seconds = /^\s*\d+\s*$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.ceil(seconds)) : null;
}

async function failureOf(response, key) {
  let message = '';
  try {
    message = JSON.parse(await response.text()).error.message;
  } catch {
    // Not our kind of body: a proxy's page, or none.
  }
  message ||= `The server answered ${response.status} ${response.statusText}`.trim() + '.';
  return new ServerError(message,
    { status: response.status, waitS: retryAfterS(response.headers.get('Retry-After')), key });
}

// A response whose status is a success. Throws ServerError, or AbortError when `signal` says so.
export async function request(path, { method = 'GET', body = null, signal = null } = {}) {
  const headers = {};
  const key = apiKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, body: body && JSON.stringify(body), cache: 'no-store',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server cannot be reached.');
  }
  if (!response.ok) throw await failureOf(response, key);
  return response;
}

// Cuts text that comes in pieces into server-sent events; `onData` gets the data of each. Borders
// of pieces may be anywhere, also between \r and \n. Source: HTML Standard, 9.2.6.
export class EventReader {
  #onData;
  #line = '';
  #data = [];
  #sawReturn = false;

  constructor(onData) {
    this.#onData = onData;
  }

  push(text) {
    let from = 0;
    for (let i = 0; i < text.length; ++i) {
      const c = text[i];
      if (c !== '\n' && c !== '\r') {
        this.#sawReturn = false;
        continue;
      }
      const isSecondHalf = c === '\n' && this.#sawReturn;
      if (!isSecondHalf) this.#endLine(this.#line + text.slice(from, i));
      this.#line = '';
      this.#sawReturn = c === '\r';
      from = i + 1;
    }
    this.#line += text.slice(from);
  }

  #endLine(line) {
    if (line === '') {
      if (this.#data.length) this.#onData(this.#data.join('\n'));
      this.#data = [];
      return;
    }
    const match = /^data(?:: ?(.*))?$/s.exec(line);
    if (match) this.#data.push(match[1] ?? '');
  }
}

// Sends a Chat Completions request and hands every chunk to `onChunk`. Returns when the stream said
// that it is complete. Throws ServerError, also for an error inside the stream, and AbortError.
export async function streamChat(body, signal, onChunk) {
  const response = await request('v1/chat/completions', { method: 'POST', body, signal });
  const decoder = new TextDecoder();
  let isComplete = false;
  const events = new EventReader((data) => {
    if (data === '[DONE]') {
      isComplete = true;
      return;
    }
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new ServerError('The server sent a chunk that is not JSON.');
    }
    if (chunk.error) throw new ServerError(chunk.error.message || 'The server gave up on the answer.');
    onChunk(chunk);
  });
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      events.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
      if (done) break;
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ServerError) throw error;
    throw new ServerError('The connection broke before the answer was complete.');
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!isComplete) throw new ServerError('The connection ended before the answer was complete.');
}
