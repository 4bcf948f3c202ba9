// How one message of a conversation looks. A view is made once and then updated while the answer
// grows; what a person did to it (an opened fold, typed text, a selection) stays.

import { MarkdownView } from './markdown.js';
import { copyButton, count, duration, el, prettyJson, short } from './view.js';

function button(label, action) {
  return el('button', { type: 'button', class: 'quiet', onclick: action }, label);
}

// ------------------------------------------------------------------------------------- user

// `actions`: {edit(text)}.
export function userView(message, actions) {
  const text = el('div', { class: 'bubble' }, message.content);
  const editButton = button('Edit', () => startEdit());
  const bar = el('div', { class: 'actions' }, copyButton(() => message.content, 'Copy message'), editButton);
  const node = el('article', { class: 'message user', 'aria-label': 'You' }, text, bar);

  function startEdit() {
    const area = el('textarea', { rows: '3', 'aria-label': 'Edit message' });
    area.value = message.content;
    const stop = () => {
      node.replaceChildren(text, bar);
      editButton.focus();
    };
    const form = el('form', { class: 'edit' }, area,
      el('div', { class: 'actions' }, button('Cancel', stop),
        el('button', { type: 'submit', class: 'primary' }, 'Send again')));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (area.value.trim()) actions.edit(area.value);
    });
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        stop();
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    node.replaceChildren(form);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
  return { node };
}

// ------------------------------------------------------------------------------------- answer

class ReasoningView {
  #summary = el('span');
  #text = el('div', { class: 'reasoning-text' });
  #shown = '';
  node = el('details', { class: 'reasoning', hidden: true },
    el('summary', {}, this.#summary), this.#text);

  update(message, thinkingMs) {
    this.node.hidden = !message.reasoning;
    if (!message.reasoning) return;
    const isOpen = thinkingMs !== null;
    this.node.classList.toggle('running', isOpen);
    const ms = isOpen ? thinkingMs : message.reasoningMs;
    const label = isOpen ? 'Thinking' : 'Thought';
    this.#summary.textContent = ms === null ? label : `${label} for ${duration(ms)}`;
    if (message.reasoning.startsWith(this.#shown)) {
      this.#text.append(message.reasoning.slice(this.#shown.length));
    } else {
      this.#text.textContent = message.reasoning;
    }
    this.#shown = message.reasoning;
  }
}

class CallView {
  #name = el('span', { class: 'call-name' });
  #arguments = el('code');
  #result = el('div', { class: 'call-result' });
  #area = null;
  node = el('section', { class: 'call' },
    el('header', {}, el('span', { class: 'call-kind' }, 'Tool call'), this.#name),
    el('pre', { tabindex: '0', 'aria-label': 'Arguments' }, this.#arguments), this.#result);

  // `result`: what the tool said, or undefined; `onSubmit`: null while the answer runs.
  update(call, result, onSubmit) {
    this.#name.textContent = call.name;
    const pretty = prettyJson(call.arguments);
    if (this.#arguments.textContent !== pretty) this.#arguments.textContent = pretty;
    if (result !== undefined) {
      this.#area = null;
      this.#result.replaceChildren(el('p', { class: 'call-kind' }, 'Result'),
        el('pre', { tabindex: '0', 'aria-label': 'Result' }, result || '(empty)'));
    } else if (onSubmit && !this.#area) {
      this.#area = el('textarea', {
        rows: '2', class: 'mono', placeholder: 'Result of the tool', spellcheck: 'false',
        'aria-label': `Result of ${call.name}`,
      });
      this.#area.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        onSubmit();
      });
      this.#result.replaceChildren(this.#area);
    }
  }

  typed() {
    return this.#area ? this.#area.value : '';
  }

  focus() {
    this.#area?.focus();
  }
}

class ErrorView {
  #text = el('p');
  #buttons = el('div', { class: 'actions' });
  #timer = 0;
  #shown = null;
  node = el('div', { class: 'error', role: 'alert', hidden: true }, this.#text, this.#buttons);

  // `error.waitS`: the server wants no request before that; we wait and then try by ourselves.
  update(error, retry) {
    if (error === this.#shown) return;
    this.#shown = error;
    clearInterval(this.#timer);
    this.node.hidden = !error;
    if (!error) return;
    this.#text.textContent = error.message;
    if (error.waitS) this.#countDown(error, retry);
    else this.#buttons.replaceChildren(button('Retry', retry));
  }

  #countDown(error, retry) {
    const until = performance.now() + error.waitS * 1000;
    const text = el('span', { class: 'wait', 'aria-live': 'off' });
    this.#buttons.replaceChildren(text, button('Cancel', () => this.cancel(retry)));
    const tick = () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      text.textContent = `Trying again in ${Math.max(left, 0)} s`;
      if (left > 0) return;
      clearInterval(this.#timer);
      retry();
    };
    tick();
    this.#timer = setInterval(tick, 200);
  }

  // Returns whether there was something to cancel.
  cancel(retry) {
    if (!this.#buttons.querySelector('.wait')) return false;
    clearInterval(this.#timer);
    this.#buttons.replaceChildren(button('Retry', retry));
    return true;
  }

  close() {
    clearInterval(this.#timer);
  }
}

// "412 tokens, 38.2 tok/s, first after 210 ms, ..."
export function usageText(message) {
  const { usage } = message;
  const parts = [];
  if (usage) {
    const made = usage.completion_tokens;
    parts.push(`${count(made)} token${made === 1 ? '' : 's'}`);
    if (made > 1 && message.decodeMs > 0) parts.push(`${short((made - 1) * 1000 / message.decodeMs)} tok/s`);
  }
  if (message.ttftMs !== null) parts.push(`first after ${duration(message.ttftMs)}`);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt ${count(usage.prompt_tokens)}${cached ? `, ${count(cached)} cached` : ''}`);
    const thought = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    if (thought) parts.push(`${count(thought)} for thinking`);
  }
  if (message.stopped) parts.push('stopped');
  if (message.finish === 'length') parts.push('cut at the token limit');
  return parts.join(' \u00b7 ');
}

// `actions`: {regenerate(), retry(), sendResults(texts), resultOf(call)}.
export class AnswerView {
  #message;
  #actions;
  #reasoning = new ReasoningView();
  #content = el('div', { class: 'content' });
  #markdown = new MarkdownView(this.#content);
  #calls = [];
  #callBox = el('div', { class: 'calls' });
  #sendResults = el('button', { type: 'button', class: 'primary', hidden: true }, 'Send result');
  #error = new ErrorView();
  #usage = el('p', { class: 'usage' });
  #bar = el('div', { class: 'actions' });
  #waiting = el('p', { class: 'waiting' }, el('span'), el('span'), el('span'));
  node = el('article', { class: 'message answer', 'aria-label': 'Answer' }, this.#reasoning.node,
    this.#content, this.#callBox, this.#sendResults, this.#waiting, this.#error.node,
    el('footer', {}, this.#usage, this.#bar));

  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    this.#sendResults.addEventListener('click', () => this.#submit());
    this.#bar.append(copyButton(() => message.content, 'Copy answer'),
      button('Regenerate', () => actions.regenerate()));
    this.update(null);
  }

  // `thinkingMs`: how long the model thinks by now; null when it does not. Returns the blocks of
  // the text that is shown.
  update(thinkingMs) {
    const message = this.#message;
    this.#reasoning.update(message, thinkingMs);
    const blocks = this.#markdown.show(message.content);
    this.#updateCalls();
    const isSilent = !message.content && !message.reasoning && !message.calls.length;
    this.#waiting.hidden = !message.isRunning || !isSilent;
    this.node.classList.toggle('running', message.isRunning);
    this.node.setAttribute('aria-busy', String(message.isRunning));
    this.#error.update(message.error, () => this.#actions.retry());
    this.#usage.textContent = message.isRunning ? '' : usageText(message);
    this.#bar.hidden = message.isRunning || (message.error !== null && isSilent);
    return blocks;
  }

  // What was typed as results; empty if nothing waits for one.
  typedResults() {
    const { calls, isRunning } = this.#message;
    if (isRunning || !calls.some((call) => this.#actions.resultOf(call) === undefined)) return [];
    return this.#calls.map((view) => view.typed());
  }

  focusResult() {
    this.#calls[0]?.focus();
  }

  cancelWait() {
    return this.#error.cancel(() => this.#actions.retry());
  }

  close() {
    this.#error.close();
  }

  #updateCalls() {
    const { calls, isRunning } = this.#message;
    while (this.#calls.length > calls.length) this.#calls.pop().node.remove();
    while (this.#calls.length < calls.length) {
      const view = new CallView();
      this.#calls.push(view);
      this.#callBox.append(view.node);
    }
    let isPending = false;
    calls.forEach((call, i) => {
      const result = this.#actions.resultOf(call);
      isPending ||= result === undefined;
      this.#calls[i].update(call, result, isRunning ? null : () => this.#submitFrom(i));
    });
    this.#sendResults.hidden = isRunning || !isPending;
    this.#sendResults.textContent = calls.length > 1 ? 'Send results' : 'Send result';
  }

  // Enter goes to the next box, and from the last one to the model.
  #submitFrom(i) {
    if (i + 1 < this.#calls.length) this.#calls[i + 1].focus();
    else this.#submit();
  }

  #submit() {
    const typed = this.typedResults();
    if (typed.length) this.#actions.sendResults(typed);
  }
}
