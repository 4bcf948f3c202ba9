// The settings of a conversation: the form, and what they mean in a request.

import { byId, el } from './view.js';
import { apiKey, request, setApiKey } from './stream.js';

// name -> [lowest, highest, whole numbers only]
const NUMBERS = {
  temperature: [0, 2, false], top_p: [0, 1, false], top_k: [-1, 2 ** 31, true],
  max_tokens: [1, 2 ** 31, true], seed: [-(2 ** 53), 2 ** 53, true],
};
const LABELS = {
  temperature: 'Temperature', top_p: 'Top-p', top_k: 'Top-k', max_tokens: 'Max tokens', seed: 'Seed',
};

class SettingError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function numberOf(settings, name) {
  const [low, high, isWhole] = NUMBERS[name];
  const value = Number(settings[name].trim().replace(',', '.'));
  if (Number.isNaN(value) || value < low || value > high || (isWhole && !Number.isInteger(value))) {
    const range = high > 1e6 ? (low > -1e6 ? `of at least ${low}` : '') : `from ${low} to ${high}`;
    throw new SettingError(name,
      `${LABELS[name]} must be a ${isWhole ? 'whole ' : ''}number${range && ` ${range}`}.`);
  }
  return value;
}

function toolsOf(settings) {
  let tools;
  try {
    tools = JSON.parse(settings.tools);
  } catch (error) {
    throw new SettingError('tools', `Tools are not JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new SettingError('tools', 'Tools must be a JSON array.');
  return tools;
}

// The fields of a Chat Completions request beside `messages`. Throws SettingError.
export function requestFields(settings) {
  const fields = {};
  if (settings.model) fields.model = settings.model;
  for (const name of Object.keys(NUMBERS)) {
    if (settings[name].trim()) fields[name] = numberOf(settings, name);
  }
  if (settings.thinking) {
    fields.thinking = { type: settings.thinking === 'on' ? 'enabled' : 'disabled' };
  }
  if (settings.effort && settings.thinking !== 'off') fields.reasoning_effort = settings.effort;
  if (settings.tools.trim()) {
    const tools = toolsOf(settings);
    if (tools.length) fields.tools = tools;
  }
  return fields;
}

let models = [];

function showModels(chosen) {
  const names = chosen && !models.includes(chosen) ? [...models, chosen] : models;
  const select = byId('settings').elements.model;
  select.replaceChildren(el('option', { value: '' }, models[0] ? `Default (${models[0]})` : 'Default'),
    ...names.map((name) => el('option', { value: name }, name)));
  select.value = chosen;
}

// Asks the server which models there are. Throws ServerError.
export async function loadModels() {
  const answer = await (await request('v1/models')).json();
  models = (answer.data ?? []).map((model) => String(model.id));
  showModels(byId('settings').elements.model.value);
  return models;
}

function showError(error) {
  const form = byId('settings');
  for (const field of form.elements) field.removeAttribute('aria-invalid');
  byId('settings-error').textContent = error ? error.message : '';
  if (error) form.elements[error.field].setAttribute('aria-invalid', 'true');
}

// Whether the settings can be sent; if not, the form says why and the caller shows it.
export function check(settings) {
  try {
    requestFields(settings);
    showError(null);
    return null;
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    showError(error);
    return byId('settings').elements[error.field];
  }
}

export function showSettings(settings) {
  const { elements } = byId('settings');
  for (const [name, value] of Object.entries(settings)) {
    if (name === 'model') showModels(value);
    else elements[name].value = value;
  }
  elements.key.value = apiKey();
  check(settings);
}

// `change` is told {name: value} of what a person changed; `keyChange`, that the key is another one.
export function start(change, keyChange) {
  const form = byId('settings');
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', (event) => {
    if (event.target.name !== 'key') change({ [event.target.name]: event.target.value });
  });
  form.addEventListener('change', (event) => {
    if (event.target.name !== 'key') return;
    setApiKey(event.target.value.trim());
    keyChange();
  });
}
