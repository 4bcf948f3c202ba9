// Building elements. Strings become text nodes; nothing here reads markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// el('button', {class: 'quiet', onclick: f}, 'Copy')
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

// Text for assistive technology; the page shows it elsewhere.
export function announce(text) {
  byId('live').textContent = text;
}

let toastTimer = 0;

export function toast(text) {
  const node = byId('toast');
  node.textContent = text;
  node.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { node.hidden = true; }, 4000);
}

// navigator.clipboard exists only over HTTPS and on localhost.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', { class: 'unseen', readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

// `text` is asked for when the button is pressed.
export function copyButton(text, label = 'Copy') {
  const button = el('button', { type: 'button', class: 'quiet', 'aria-label': label }, 'Copy');
  button.addEventListener('click', async () => {
    const copied = await copyText(text());
    button.focus();
    button.textContent = copied ? 'Copied' : 'Not copied';
    announce(button.textContent);
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export function count(value) {
  return grouped.format(value).replaceAll(',', '\u202f');
}

// Three digits, for numbers that are measured.
export function short(value) {
  if (value >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  if (value >= 100) return count(value);
  return Number(value.toPrecision(value < 10 ? 2 : 3)).toString();
}

export function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  return `${Math.floor(s / 60)} min ${s % 60} s`;
}

export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
