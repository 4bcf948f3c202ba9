// The dashboard: asks for /stats every second while it is shown, draws the last two minutes.
// Counters of /stats count since the server started; rates are differences between two looks.

import { byId, count, duration, el, short, svg } from './view.js';
import { request } from './stream.js';

const EVERY_MS = 1000;
const SPAN_MS = 120000;
const SHARE_MS = 10000;  // shares and rows per step are taken over this long
const WIDTH = 300;
const HEIGHT = 96;

const percent = (value) => `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let power = 0;
  while (value >= 1024 && power + 1 < units.length) {
    value /= 1024;
    ++power;
  }
  return `${power && value < 100 ? value.toPrecision(3) : Math.round(value)} ${units[power]}`;
}

// Change of a counter over the last `spanMs` before look `i`; null if there is no earlier look.
function change(looks, i, read, spanMs) {
  let from = i - 1;
  while (from > 0 && looks[i].at - looks[from].at < spanMs) --from;
  if (from < 0) return null;
  const difference = read(looks[i].stats) - read(looks[from].stats);
  return { difference, seconds: (looks[i].at - looks[from].at) / 1000 };
}

const plain = (read) => (looks, i) => read(looks[i].stats) ?? null;

const rate = (read) => (looks, i) => {
  const made = change(looks, i, read, EVERY_MS * 0.9);
  return made && made.seconds > 0 ? made.difference / made.seconds : null;
};

const ratio = (readOver, readUnder) => (looks, i) => {
  const over = change(looks, i, readOver, SHARE_MS);
  const under = change(looks, i, readUnder, SHARE_MS);
  return under && under.difference > 0 ? over.difference / under.difference : null;
};

// Each chart has one or two series: [name, value of look i or null]. `top` or `limit` is where the
// scale ends; without them `round` makes the largest value a round one.
const CHARTS = [
  { title: 'Requests', format: count, series: [
    ['running', plain((s) => s.requests.running)], ['waiting', plain((s) => s.requests.waiting)]] },
  { title: 'Tokens out', unit: '/s', format: short, series: [
    ['generated', rate((s) => s.tokens.generated)]] },
  { title: 'Tokens in', unit: '/s', format: short, series: [
    ['prompt', rate((s) => s.tokens.prompt)], ['cached', rate((s) => s.tokens.cached)]] },
  { title: 'Rows per step', format: short, series: [
    ['rows', ratio((s) => s.rows, (s) => s.steps)]] },
  { title: 'Cache hits', format: percent, top: 1, series: [
    ['share of the prompt', ratio((s) => s.tokens.cached, (s) => s.tokens.prompt)]] },
  { title: 'Blocks in use', format: count, series: [
    ['in use', plain((s) => s.blocks.in_use)]], limit: (s) => s.blocks.total },
  { title: 'First token', format: duration, series: [
    ['p50', plain((s) => s.ttft_ms.p50)], ['p99', plain((s) => s.ttft_ms.p99)]] },
  { title: 'Between tokens', format: duration, series: [
    ['p50', plain((s) => s.itl_ms.p50)], ['p99', plain((s) => s.itl_ms.p99)]] },
  { title: 'Memory', format: bytes,
    round: (value) => 2 ** Math.ceil(Math.log2(Math.max(value, 1))), series: [
    ['resident', plain((s) => s.memory.resident_bytes)]] },
];

const FACTS = [
  ['Model', (s) => s.model], ['Version', (s) => s.version], ['Up for', (s) => upTime(s.uptime_s)],
  ['Finished', (s) => count(s.requests.finished)], ['Failed', (s) => count(s.requests.failed)],
  ['Tokens generated', (s) => short(s.tokens.generated)], ['Preemptions', (s) => count(s.preemptions)],
  ['Idle', (s) => percent(s.idle_share)],
];

function upTime(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

// ------------------------------------------------------------------------------------- charts

// The next 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.9999) * power;
}

class Chart {
  #spec;
  #lines;
  #area = svg('path', { class: 'area' });
  #cursor = svg('path', { class: 'cursor' });
  #top = el('span', { class: 'scale' });
  #values;
  #plot;
  #points = [];
  #hoverAt = null;  // share of the width
  node;

  constructor(spec) {
    this.#spec = spec;
    this.#lines = spec.series.map((_, i) => svg('path', { class: `line line-${i}` }));
    this.#values = spec.series.map(() => el('span', { class: 'value' }, '\u2013'));
    const grid = svg('path', { class: 'grid', d: `M0 .5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}` });
    this.#plot = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' },
      grid, this.#area, ...this.#lines, this.#cursor);
    const legend = spec.series.map(([name], i) => el('span', { class: `legend legend-${i}` },
      this.#values[i], el('span', { class: 'unit' }, `${spec.unit ?? ''} ${name}`)));
    this.node = el('figure', { class: 'chart', 'aria-hidden': 'true' },
      el('figcaption', {}, el('span', { class: 'chart-title' }, spec.title), this.#top),
      el('div', { class: 'legends' }, ...legend), this.#plot);
    this.#plot.addEventListener('pointermove', (event) => {
      const box = this.#plot.getBoundingClientRect();
      this.#hover((event.clientX - box.left) / box.width);
    });
    this.#plot.addEventListener('pointerleave', () => this.#hover(null));
  }

  // `points`: [{at, values: [per series, null: none]}]; `limit`: where the scale ends, if known.
  draw(points, now, limit) {
    this.#points = points.map(({ at, values }) => ({ x: 1 - (now - at) / SPAN_MS, values }));
    const seen = points.flatMap(({ values }) => values.filter((value) => value !== null));
    const round = this.#spec.round ?? roundUp;
    const top = this.#spec.top ?? limit ?? round(Math.max(0, ...seen) * 1.05);
    this.#top.textContent = this.#spec.format(top);
    this.#lines.forEach((line, i) => line.setAttribute('d', this.#path(i, top)));
    this.#area.setAttribute('d', this.#areaPath(top));
    this.#hover(this.#hoverAt);
  }

  #place({ x, values }, i, top) {
    const y = HEIGHT - 1 - Math.min(values[i] / top, 1) * (HEIGHT - 2);
    return `${(x * WIDTH).toFixed(1)} ${y.toFixed(1)}`;
  }

  // Runs of points without a gap.
  #runs(i) {
    const all = [[]];
    for (const point of this.#points) {
      if (point.values[i] !== null) all.at(-1).push(point);
      else if (all.at(-1).length) all.push([]);
    }
    return all.filter((run) => run.length);
  }

  #path(i, top) {
    return this.#runs(i).map((run) => {
      const places = run.map((point) => this.#place(point, i, top));
      return `M${places.join('L')}${places.length === 1 ? 'h.1' : ''}`;
    }).join('');
  }

  #areaPath(top) {
    return this.#runs(0).map((run) => {
      const places = run.map((point) => this.#place(point, 0, top)).join('L');
      const [first, last] = [run[0], run.at(-1)].map(({ x }) => (x * WIDTH).toFixed(1));
      return `M${first} ${HEIGHT}L${places}L${last} ${HEIGHT}Z`;
    }).join('');
  }

  // Shows the values under the pointer, or the newest ones.
  #hover(at) {
    this.#hoverAt = at;
    let point = this.#points.at(-1);
    if (at !== null) {
      for (const other of this.#points) {
        if (Math.abs(other.x - at) < Math.abs(point.x - at)) point = other;
      }
    }
    const x = point && at !== null ? (point.x * WIDTH).toFixed(1) : null;
    this.#cursor.setAttribute('d', x === null ? '' : `M${x} 0V${HEIGHT}`);
    this.#values.forEach((value, i) => {
      const number = point?.values[i] ?? null;
      value.textContent = number === null ? '\u2013' : this.#spec.format(number);
    });
  }
}

// ------------------------------------------------------------------------------------- the table

function showTable(all) {
  const rows = CHARTS.flatMap((chart, c) => chart.series.map(([name], i) => {
    const values = all[c].map((point) => point.values[i]).filter((value) => value !== null);
    const show = (value) =>
      (value === null || !values.length ? '\u2013' : chart.format(value) + (chart.unit ?? ''));
    return el('tr', {}, el('th', { scope: 'row' }, `${chart.title}, ${name}`),
      el('td', {}, show(all[c].at(-1).values[i])), el('td', {}, show(Math.min(...values))),
      el('td', {}, show(Math.max(...values))));
  }));
  byId('numbers').tBodies[0].replaceChildren(...rows);
}

// ------------------------------------------------------------------------------------- polling

let charts = [];
let looks = [];  // [{at (ms), stats}], the oldest first
let isShown = false;
let timer = 0;
let askKey = null;
let isAsking = false;

function add(stats) {
  const last = looks.at(-1);
  // Another process answers: differences to what the old one counted mean nothing.
  if (last && stats.uptime_s < last.stats.uptime_s) looks = [];
  const at = performance.now();
  looks.push({ at, stats });
  while (at - looks[0].at > SPAN_MS + SHARE_MS) looks.shift();
}

function show() {
  const { at: now, stats } = looks.at(-1);
  byId('facts').replaceChildren(...FACTS.map(([name, read]) =>
    el('div', {}, el('dt', {}, name), el('dd', {}, read(stats)))));
  const all = CHARTS.map((chart) => looks.map((look, i) =>
    ({ at: look.at, values: chart.series.map(([, values]) => values(looks, i)) }))
    .filter(({ at }) => now - at <= SPAN_MS));
  charts.forEach((chart, c) => chart.draw(all[c], now, CHARTS[c].limit?.(stats)));
  showTable(all);
}

function showStatus(text) {
  const node = byId('dashboard-status');
  if (node.textContent !== text) node.textContent = text;
  byId('dashboard-view').classList.toggle('stale', text !== '');
}

async function poll() {
  if (isAsking) return;
  isAsking = true;
  let isRefused = false;
  try {
    add(await (await request('stats', { signal: AbortSignal.timeout(5000) })).json());
    show();
    showStatus('');
  } catch (error) {
    isRefused = error.status === 401;
    const reason = error instanceof TypeError || error.name === 'AbortError' ||
      error.name === 'TimeoutError' ? 'The server does not answer as expected.' : error.message;
    showStatus(`${reason} Trying again.`);
    if (isRefused) isRefused = !await askKey(error);
  }
  isAsking = false;
  if (isRefused) showStatus('The server wants an API key: set one in the settings of the chat, then come back.');
  else plan(EVERY_MS);
}

function plan(ms) {
  clearTimeout(timer);
  if (isShown && document.visibilityState === 'visible') timer = setTimeout(poll, ms);
}

export function setShown(shown) {
  isShown = shown;
  clearTimeout(timer);
  plan(0);
}

export function start(ask) {
  askKey = ask;
  charts = CHARTS.map((spec) => new Chart(spec));
  byId('charts').append(...charts.map((chart) => chart.node));
  document.addEventListener('visibilitychange', () => plan(0));
}
