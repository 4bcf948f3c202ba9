// The frame of the page: views, panels, theme, keys, and the dialog that asks for an API key.

import * as chat from './chat.js';
import * as dashboard from './dashboard.js';
import { loadModels } from './settings.js';
import { apiKey, setApiKey } from './stream.js';
import { announce, byId } from './view.js';

// ------------------------------------------------------------------------------------- API key

let keyAsked = null;  // resolves with whether a key was typed; one dialog for all who ask

// `error`: the refusal. A key that was typed since then is worth another try before a question.
function askKey(error) {
  if (keyAsked) return keyAsked;
  if (error.key !== apiKey()) return Promise.resolve(true);
  const dialog = byId('key-dialog');
  byId('key-reason').textContent = error.message;
  byId('key-input').value = '';
  dialog.returnValue = '';
  dialog.showModal();
  keyAsked = new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      keyAsked = null;
      const key = byId('key-input').value.trim();
      const isNew = dialog.returnValue === 'use' && key !== '';
      if (isNew) {
        setApiKey(key);
        byId('settings').elements.key.value = key;
        connect();
      }
      byId('key-input').value = '';
      resolve(isNew);
    }, { once: true });
  });
  return keyAsked;
}

function startKeyDialog() {
  byId('key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    byId('key-dialog').close('use');
  });
  byId('key-cancel').addEventListener('click', () => byId('key-dialog').close(''));
}

// The page works without a list of models; only a missing key is worth a question.
async function connect() {
  try {
    await loadModels();
  } catch (error) {
    if (error.status === 401) askKey(error);
  }
}

// ------------------------------------------------------------------------------------- panels

const PANELS = [
  { button: 'toggle-list', pane: 'list-pane', key: 'kuruma.list' },
  { button: 'toggle-settings', pane: 'settings-pane', key: 'kuruma.settings' },
];
const narrow = matchMedia('(max-width: 899px)');

function isOpen(panel) {
  return !byId(panel.pane).hidden;
}

function setOpen(panel, opens, focus = null) {
  if (opens && narrow.matches) {
    for (const other of PANELS) if (other !== panel) setOpen(other, false);
  }
  byId(panel.pane).hidden = !opens;
  byId(panel.button).setAttribute('aria-expanded', String(opens));
  byId('veil').hidden = !narrow.matches || !PANELS.some(isOpen);
  byId('chat-main').inert = !byId('veil').hidden;
  if (!narrow.matches) localStorage.setItem(panel.key, opens ? 'open' : 'closed');
  focus?.focus();
}

function closeOverlays() {
  if (!narrow.matches) return false;
  const open = PANELS.find(isOpen);
  if (!open) return false;
  setOpen(open, false, byId(open.button));
  return true;
}

function layPanels() {
  const [list, settings] = PANELS;
  const wants = (panel) => !narrow.matches && localStorage.getItem(panel.key);
  setOpen(list, !narrow.matches && wants(list) !== 'closed');
  setOpen(settings, wants(settings) === 'open');
}

function startPanels() {
  for (const panel of PANELS) {
    byId(panel.button).addEventListener('click', () => {
      const opens = !isOpen(panel);
      const first = byId(panel.pane).querySelector('button, input, select, textarea');
      setOpen(panel, opens, opens ? first : byId(panel.button));
    });
  }
  byId('veil').addEventListener('click', closeOverlays);
  narrow.addEventListener('change', layPanels);
  layPanels();
}

function openSettings(field) {
  setOpen(PANELS[1], true, field);
}

// ------------------------------------------------------------------------------------- theme

const THEMES = ['', 'light', 'dark'];
const THEME_NAMES = { '': 'as the system', light: 'light', dark: 'dark' };

function showTheme() {
  const name = THEME_NAMES[document.documentElement.dataset.theme ?? ''];
  byId('theme').setAttribute('aria-label', `Theme: ${name}`);
  byId('theme').title = `Theme: ${name}`;
}

function nextTheme() {
  const { dataset } = document.documentElement;
  const next = THEMES[(THEMES.indexOf(dataset.theme ?? '') + 1) % THEMES.length];
  if (next) dataset.theme = next;
  else delete dataset.theme;
  localStorage.setItem('kuruma.theme', next);
  showTheme();
  announce(byId('theme').title);
}

// ------------------------------------------------------------------------------------- views, keys

function showView() {
  const isDashboard = location.hash === '#dashboard';
  byId('chat-view').hidden = isDashboard;
  byId('dashboard-view').hidden = !isDashboard;
  for (const id of ['toggle-list', 'toggle-settings']) byId(id).classList.toggle('away', isDashboard);
  for (const [id, isHere] of [['tab-chat', !isDashboard], ['tab-dashboard', isDashboard]]) {
    if (isHere) byId(id).setAttribute('aria-current', 'page');
    else byId(id).removeAttribute('aria-current');
  }
  dashboard.setShown(isDashboard);
}

function focusPrompt() {
  if (location.hash === '#dashboard') {
    location.hash = '#chat';
    showView();
  }
  closeOverlays();
  byId('prompt').focus();
}

function isTyping(target) {
  return target.matches('input, textarea, select, [contenteditable]');
}

function onKey(event) {
  if (event.isComposing || byId('key-dialog').open) return;
  const isCtrlK = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === 'k';
  const isSlash = event.key === '/' && !event.ctrlKey && !event.metaKey && !isTyping(event.target);
  if (isCtrlK || isSlash) {
    event.preventDefault();
    focusPrompt();
  } else if (event.key === 'Escape' && (closeOverlays() || chat.stop())) {
    event.preventDefault();
  }
}

startKeyDialog();
startPanels();
showTheme();
dashboard.start(askKey);
chat.start({ askKey, openSettings, closeList: closeOverlays, keyChange: connect });
byId('theme').addEventListener('click', nextTheme);
byId('skip').addEventListener('click', (event) => {
  event.preventDefault();
  focusPrompt();
});
addEventListener('hashchange', showView);
addEventListener('keydown', onKey);
showView();
connect();
if (!narrow.matches && location.hash !== '#dashboard') byId('prompt').focus();
