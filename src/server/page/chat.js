// Conversations: the list, the messages, and answers that come in while they are shown or not.

import { AnswerView, userView } from './messages.js';
import * as settingsForm from './settings.js';
import * as store from './store.js';
import { ServerError, streamChat } from './stream.js';
import { announce, byId, el, toast } from './view.js';

const EXAMPLES = ['What does inspect do?', 'Explain a KV cache in three sentences.',
  'Write a haiku about a wheel.'];
const MAX_WAITS = 5;      // answers to 429 in a row before a person must press Retry
const SAVE_EVERY_MS = 1000;

let hooks = null;         // of start()
let conversations = [];
let current = null;
const runs = new Map();   // id of a conversation -> Run
const views = new Map();  // assistant message of the current conversation -> AnswerView
let waits = 0;

// ------------------------------------------------------------------------------------- requests

function messageOf(message) {
  if (message.role === 'tool') {
    return { role: 'tool', tool_call_id: message.callId, content: message.content };
  }
  if (message.role === 'user') return { role: 'user', content: message.content };
  const sent = { role: 'assistant', content: message.content };
  if (message.reasoning) sent.reasoning_content = message.reasoning;
  if (message.calls.length) {
    sent.tool_calls = message.calls.map((call) => ({
      id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments },
    }));
  }
  return sent;
}

function requestOf(conversation) {
  const messages = [];
  if (conversation.settings.system.trim()) {
    messages.push({ role: 'system', content: conversation.settings.system });
  }
  for (const message of conversation.messages) {
    const isEmpty = message.role === 'assistant' && !message.content && !message.calls.length;
    if (!isEmpty) messages.push(messageOf(message));
  }
  return {
    ...settingsForm.requestFields(conversation.settings), messages, stream: true,
    stream_options: { include_usage: true },
  };
}

// One answer on its way into a conversation.
class Run {
  #controller = new AbortController();
  #started = performance.now();
  #first = null;
  #last = null;
  #thinkingSince = null;
  #announced = 0;
  #frame = 0;
  #saved = performance.now();
  #clock = 0;
  failure = null;  // what made the answer end, if something did

  constructor(conversation, message) {
    this.conversation = conversation;
    this.message = message;
  }

  stop() {
    this.#controller.abort();
  }

  // Resolves when nothing comes any more; `message` then says how it ended.
  async finish(body) {
    const { message } = this;
    this.#clock = setInterval(() => this.#draw(), 200);
    try {
      await streamChat(body, this.#controller.signal, (chunk) => this.#take(chunk));
    } catch (error) {
      this.failure = error;
      if (error.name === 'AbortError') message.stopped = true;
      else message.error = { message: error.message, status: error.status ?? 0, waitS: error.waitS ?? null };
      if (!(error instanceof ServerError) && !message.stopped) console.error(error);
    }
    clearInterval(this.#clock);
    cancelAnimationFrame(this.#frame);
    this.#endThinking();
    message.isRunning = false;
    if (message.stopped || message.error) message.calls = message.calls.filter(isWhole);
    if (this.#first !== null) {
      message.ttftMs = this.#first - this.#started;
      message.decodeMs = this.#last - this.#first;
    }
  }

  // What to tell to assistive technology: the blocks of text that are complete and were not told.
  tell(blocks) {
    const end = this.message.isRunning ? blocks.length - 1 : blocks.length;
    if (end <= this.#announced) return;
    announce(blocks.slice(this.#announced, end).join('\n'));
    this.#announced = end;
  }

  thinkingMs() {
    return this.#thinkingSince === null ? null : performance.now() - this.#thinkingSince;
  }

  #take(chunk) {
    const { message } = this;
    if (chunk.usage) message.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const delta = choice.delta ?? {};
    if (choice.finish_reason) message.finish = choice.finish_reason;
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? '';
    const content = delta.content ?? '';
    const calls = delta.tool_calls ?? [];
    if (!reasoning && !content && !calls.length) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    if (reasoning) {
      this.#thinkingSince ??= this.#last;
      message.reasoning += reasoning;
    }
    if (content || calls.length) this.#endThinking();
    message.content += content;
    for (const call of calls) addCall(message, call);
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #endThinking() {
    if (this.#thinkingSince === null) return;
    this.message.reasoningMs = (this.message.reasoningMs ?? 0) + this.thinkingMs();
    this.#thinkingSince = null;
  }

  #draw() {
    this.#frame = 0;
    drawRun(this);
    if (performance.now() - this.#saved < SAVE_EVERY_MS) return;
    this.#saved = performance.now();
    if (conversations.includes(this.conversation)) store.save(this.conversation);
  }
}

function addCall(message, delta) {
  const at = delta.index ?? message.calls.length;
  while (message.calls.length <= at) message.calls.push({ id: '', name: '', arguments: '' });
  const call = message.calls[at];
  if (delta.id) call.id = delta.id;
  if (delta.function?.name) call.name += delta.function.name;
  call.arguments += delta.function?.arguments ?? '';
}

function isWhole(call) {
  try {
    JSON.parse(call.arguments);
    return true;
  } catch {
    return false;
  }
}

function newAnswer() {
  return {
    role: 'assistant', content: '', reasoning: '', reasoningMs: null, calls: [], finish: '', usage: null,
    ttftMs: null, decodeMs: null, stopped: false, error: null, isRunning: true,
  };
}

function drawRun(run) {
  const view = run.conversation === current ? views.get(run.message) : null;
  if (!view) return;
  keepAtEnd(() => run.tell(view.update(run.thinkingMs())));
}

// Answers what the conversation holds by now.
async function answer(conversation) {
  if (runs.has(conversation.id)) return;
  const invalid = settingsForm.check(conversation.settings);
  if (invalid) {
    hooks.openSettings(invalid);
    return;
  }
  const body = requestOf(conversation);
  const message = newAnswer();
  const run = new Run(conversation, message);
  conversation.messages.push(message);
  runs.set(conversation.id, run);
  touch(conversation);
  if (conversation === current) {
    showMessage(message);
    toEnd();
    showRunning();
    announce('Waiting for the answer');
  }
  await run.finish(body);
  runs.delete(conversation.id);
  touch(conversation);
  await afterRun(run);
}

async function afterRun(run) {
  const { conversation, message } = run;
  if (!conversations.includes(conversation)) return;
  waits = message.error?.waitS ? waits + 1 : 0;
  if (message.error && waits > MAX_WAITS) message.error.waitS = null;
  drawRun(run);
  if (conversation === current) {
    showRunning();
    if (message.stopped) announce('Stopped');
    else if (!message.error && message.calls.length && !byId('prompt').value) {
      views.get(message).focusResult();
    }
  }
  if (message.error?.status === 401 && await hooks.askKey(run.failure)) {
    retry(conversation, message);
  }
}

// Cuts the conversation behind its first `length` messages.
function cut(conversation, length) {
  conversation.messages.length = length;
  touch(conversation);
  if (conversation === current) showMessages();
}

// Whether an answer is coming, and so nothing may be cut; says so.
function isBusy(conversation) {
  if (runs.has(conversation.id)) toast('Stop the answer first.');
  return runs.has(conversation.id);
}

function retry(conversation, message) {
  const at = conversation.messages.indexOf(message);
  if (at < 0 || isBusy(conversation)) return;
  cut(conversation, at);
  answer(conversation);
}

// ------------------------------------------------------------------------------------- messages

function resultOf(conversation, message, call) {
  const from = conversation.messages.indexOf(message) + 1 + message.calls.indexOf(call);
  const result = conversation.messages[from];
  return result?.role === 'tool' ? result.content : undefined;
}

function addResults(conversation, message, texts) {
  message.calls.forEach((call, i) => {
    conversation.messages.push({ role: 'tool', callId: call.id, content: texts[i] });
  });
}

function answerView(message) {
  const conversation = current;
  const view = new AnswerView(message, {
    regenerate: () => retry(conversation, message),
    retry: () => retry(conversation, message),
    resultOf: (call) => resultOf(conversation, message, call),
    sendResults: (texts) => {
      addResults(conversation, message, texts);
      view.update(null);
      answer(conversation);
    },
  });
  views.set(message, view);
  return view;
}

function showMessage(message) {
  const conversation = current;
  byId('messages').querySelector('.welcome')?.remove();
  if (message.role === 'tool') return;
  const view = message.role === 'assistant' ? answerView(message) : userView(message, {
    edit: (text) => {
      if (isBusy(conversation)) return;
      cut(conversation, conversation.messages.indexOf(message));
      send(text);
    },
  });
  byId('messages').append(view.node);
}

function welcome() {
  const fill = (text) => () => {
    byId('prompt').value = text;
    grow();
    byId('prompt').focus();
  };
  return el('div', { class: 'welcome' }, el('p', { class: 'welcome-title' }, 'What shall we talk about?'),
    el('div', { class: 'examples' }, ...EXAMPLES.map((text) =>
      el('button', { type: 'button', class: 'example', onclick: fill(text) }, text))));
}

function showMessages() {
  for (const view of views.values()) view.close();
  views.clear();
  byId('messages').replaceChildren();
  if (!current.messages.length) byId('messages').append(welcome());
  for (const message of current.messages) showMessage(message);
  const run = runs.get(current.id);
  if (run) drawRun(run);
  showRunning();
  toEnd();
}

function showRunning() {
  const isRunning = runs.has(current.id);
  byId('composer').classList.toggle('running', isRunning);
  byId('send').setAttribute('aria-label', isRunning ? 'Stop' : 'Send');
  byId('send').title = isRunning ? 'Stop' : 'Send';
}

// Text and everything that waits to be said goes into the conversation.
function send(text) {
  const invalid = settingsForm.check(current.settings);
  if (invalid) {
    hooks.openSettings(invalid);
    return false;
  }
  const last = current.messages.at(-1);
  if (last?.role === 'assistant') {
    const typed = views.get(last).typedResults();
    if (typed.length) addResults(current, last, typed);
    views.get(last).cancelWait();
    views.get(last).update(null);
  }
  const message = { role: 'user', content: text };
  current.messages.push(message);
  if (!current.title) current.title = text.trim().replace(/\s+/g, ' ').slice(0, 60);
  if (!conversations.includes(current)) conversations.unshift(current);
  showMessage(message);
  answer(current);
  return true;
}

// Stops the answer, or the wait for the next try. Returns whether there was one.
export function stop() {
  const run = runs.get(current.id);
  if (run) {
    run.stop();
    return true;
  }
  const last = views.get(current.messages.at(-1));
  return last ? last.cancelWait() : false;
}

// ------------------------------------------------------------------------------------- scrolling

let isAtEnd = true;

function toEnd() {
  const scroll = byId('scroll');
  scroll.scrollTop = scroll.scrollHeight;
  isAtEnd = true;
  byId('jump').hidden = true;
}

// A reader at the end stays there while the text grows; one who scrolled up is left alone.
function keepAtEnd(change) {
  const stays = isAtEnd;
  change();
  if (stays) toEnd();
  else byId('jump').hidden = false;
}

function startScrolling() {
  const scroll = byId('scroll');
  scroll.addEventListener('scroll', () => {
    isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
    if (isAtEnd) byId('jump').hidden = true;
  }, { passive: true });
  byId('jump').addEventListener('click', () => {
    toEnd();
    byId('prompt').focus();
  });
  new ResizeObserver(() => {
    if (isAtEnd) toEnd();
  }).observe(scroll);
}

// ------------------------------------------------------------------------------------- the list

function touch(conversation) {
  conversation.updated = Date.now();
  if (conversations.includes(conversation) && !store.save(conversation)) {
    toast('The browser has no room left: this conversation is not kept. Delete or export others.');
  }
  showList();
}

function titleOf(conversation) {
  return conversation.title || 'New conversation';
}

function startRename(conversation, item) {
  const input = el('input', { 'aria-label': 'New title', maxlength: '120' });
  input.value = titleOf(conversation);
  let isDone = false;
  const finish = (keeps) => {
    if (isDone) return;
    isDone = true;
    if (keeps && input.value.trim()) conversation.title = input.value.trim();
    store.save(conversation);
    input.remove();
    showList();
    byId('conversations').querySelector(`[data-id="${conversation.id}"] .open`)?.focus();
  };
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.isComposing) finish(true);
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    finish(false);
  });
  input.addEventListener('blur', () => finish(true));
  item.replaceChildren(input);
  input.focus();
  input.select();
}

// The first press asks, the second one deletes.
function deleteButton(conversation) {
  const button = el('button', {
    type: 'button', class: 'quiet', 'aria-label': `Delete ${titleOf(conversation)}`,
  }, 'Delete');
  button.addEventListener('click', () => {
    if (button.textContent === 'Delete') {
      button.textContent = 'Really?';
      button.setAttribute('aria-label', `Really delete ${titleOf(conversation)}?`);
      return;
    }
    runs.get(conversation.id)?.stop();
    store.remove(conversation.id);
    conversations = conversations.filter((other) => other !== conversation);
    if (conversation === current) open(conversations[0] ?? store.newConversation(current.settings));
    else showList();
    byId('new').focus();
  });
  button.addEventListener('blur', () => {
    button.textContent = 'Delete';
    button.setAttribute('aria-label', `Delete ${titleOf(conversation)}`);
  });
  return button;
}

function listItem(conversation) {
  const isCurrent = conversation === current;
  const item = el('li', { 'data-id': conversation.id, class: runs.has(conversation.id) && 'running' });
  const openButton = el('button', {
    type: 'button', class: 'open', 'aria-current': isCurrent && 'true', title: titleOf(conversation),
    onclick: () => {
      open(conversation);
      hooks.closeList();
    },
  }, titleOf(conversation));
  const rename = el('button', {
    type: 'button', class: 'quiet', 'aria-label': `Rename ${titleOf(conversation)}`,
    onclick: () => startRename(conversation, item),
  }, 'Rename');
  item.append(openButton);
  if (isCurrent) item.append(el('div', { class: 'actions' }, rename, deleteButton(conversation)));
  return item;
}

function showList() {
  conversations.sort((a, b) => b.updated - a.updated);
  const list = byId('conversations');
  // Not under the hands of somebody who types a title or answers "Really?".
  if (list.contains(document.activeElement) && document.activeElement.tagName === 'INPUT') return;
  const focused = list.contains(document.activeElement) &&
    document.activeElement.closest('li').dataset.id;
  list.replaceChildren(...conversations.map(listItem));
  if (focused) list.querySelector(`[data-id="${focused}"] .open`)?.focus();
  document.title = current?.title ? `${current.title} \u00b7 Kuruma` : 'Kuruma';
}

function open(conversation) {
  current = conversation;
  localStorage.setItem('kuruma.current', conversation.id);
  settingsForm.showSettings(conversation.settings);
  showMessages();
  showList();
}

function openNew() {
  open(store.newConversation(current.settings));
  hooks.closeList();
  byId('prompt').focus();
}

function download(text) {
  const link = el('a', { download: 'kuruma-conversations.json' });
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function importFile(input) {
  const file = input.files[0];
  if (!file) return;
  try {
    const added = store.importText(await file.text());
    conversations.push(...added);
    const kept = added.filter(store.save).length;
    toast(kept === added.length ? `Imported: ${kept}` :
      `The browser has no room left: ${kept} of ${added.length} are kept.`);
    if (added.length) open(added[0]);
  } catch (error) {
    toast(error.message);
  }
  input.value = '';
}

// Another tab changed what is stored.
function reload() {
  const running = [...runs.values()].map((run) => run.conversation);
  const loaded = store.loadAll().filter((one) => !runs.has(one.id));
  conversations = [...running, ...loaded];
  const same = conversations.find((one) => one.id === current.id);
  if (same && same !== current) open(same);
  else showList();
}

// ------------------------------------------------------------------------------------- start

function grow() {
  const prompt = byId('prompt');
  prompt.style.height = 'auto';
  prompt.style.height = `${Math.min(prompt.scrollHeight, innerHeight * 0.4)}px`;
}

function startComposer() {
  const prompt = byId('prompt');
  prompt.addEventListener('input', grow);
  prompt.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!runs.has(current.id)) byId('composer').requestSubmit();
  });
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (runs.has(current.id)) {
      stop();
    } else {
      // A refused send moves the focus to the setting at fault.
      if (!prompt.value.trim() || !send(prompt.value)) return;
      prompt.value = '';
      grow();
    }
    prompt.focus();
  });
}

// `appHooks`: {askKey(error) -> whether there is a new key, openSettings(field), closeList(),
// keyChange()}.
export function start(appHooks) {
  hooks = appHooks;
  conversations = store.loadAll();
  settingsForm.start((change) => {
    Object.assign(current.settings, change);
    settingsForm.check(current.settings);
    if (conversations.includes(current)) store.save(current);
  }, hooks.keyChange);
  byId('new').addEventListener('click', openNew);
  byId('export').addEventListener('click', () => download(store.exportText(conversations)));
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', (event) => importFile(event.target));
  startComposer();
  startScrolling();
  addEventListener('storage', (event) => {
    if (store.isConversationKey(event.key)) reload();
  });
  addEventListener('pagehide', () => {
    for (const run of runs.values()) store.save(run.conversation);
  });
  const last = conversations.find((one) => one.id === localStorage.getItem('kuruma.current'));
  open(last ?? store.newConversation(conversations[0]?.settings));
}
