// A small, safe part of Markdown: paragraphs, headings, lists, quotes, rules, tables, code blocks,
// inline code, bold, italic, strike-through, links. Model text becomes text nodes and nothing else;
// HTML in it stays visible as it was written. Pictures become links: the page loads nothing.

import { copyButton, el } from './view.js';

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 8;

const isBlank = (line) => line.trim() === '';

function isTableStart(lines, i) {
  return lines[i].includes('|') && i + 1 < lines.length && lines[i + 1].includes('-') &&
    TABLE_RULE.test(lines[i + 1]) && cellsOf(lines[i]).length === cellsOf(lines[i + 1]).length;
}

function startsBlock(lines, i) {
  const line = lines[i];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    ITEM.test(line) || isTableStart(lines, i);
}

// First line behind the fenced block that starts at `i`; an open one goes to the end.
function endOfFence(lines, i) {
  const fence = FENCE.exec(lines[i])[1];
  const close = new RegExp(`^ {0,3}[${fence[0]}]{${fence.length},}\\s*$`);
  for (let end = i + 1; end < lines.length; ++end) {
    if (close.test(lines[end])) return end + 1;
  }
  return lines.length;
}

// A list goes on over blank lines while items or indented lines follow.
function endOfList(lines, i) {
  const isOrdered = /\d/.test(ITEM.exec(lines[i])[2]);
  let end = i + 1;
  for (let k = i + 1; k < lines.length; ++k) {
    if (isBlank(lines[k])) continue;
    const item = ITEM.exec(lines[k]);
    const isIndented = /^ {2,}/.test(lines[k]);
    const isLazy = k === end && !startsBlock(lines, k);
    const isSibling = item && !RULE.test(lines[k]) && /\d/.test(item[2]) === isOrdered;
    if (!isIndented && !isLazy && !isSibling) break;
    const isFence = isIndented && FENCE.test(lines[k].trimStart());
    end = isFence ? endOfIndentedFence(lines, k) : k + 1;
    k = end - 1;
  }
  return end;
}

function endOfIndentedFence(lines, k) {
  const fence = FENCE.exec(lines[k].trimStart())[1];
  for (let end = k + 1; end < lines.length; ++end) {
    if (lines[end].trim().startsWith(fence)) return end + 1;
  }
  return lines.length;
}

function endOfBlock(lines, i) {
  if (FENCE.test(lines[i])) return endOfFence(lines, i);
  if (HEADING.test(lines[i]) || RULE.test(lines[i])) return i + 1;
  let end = i + 1;
  if (QUOTE.test(lines[i])) {
    while (end < lines.length && QUOTE.test(lines[end])) ++end;
  } else if (ITEM.test(lines[i])) {
    return endOfList(lines, i);
  } else if (isTableStart(lines, i)) {
    end = i + 2;
    while (end < lines.length && lines[end].includes('|')) ++end;
  } else {
    while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end)) ++end;
  }
  return end;
}

// The lines of each top-level block, as one string each.
export function splitBlocks(text) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const end = endOfBlock(lines, i);
    blocks.push(lines.slice(i, end).join('\n'));
    i = end;
  }
  return blocks;
}

// ------------------------------------------------------------------------------------- inline

function safeAddress(address) {
  return /^(https?:\/\/|mailto:)[^\s]+$/i.test(address) ? address : null;
}

function link(address, children) {
  return el('a', { href: address, target: '_blank', rel: 'noopener noreferrer' }, ...children);
}

// Tried in this order at every place where text may start something. Each pattern is sticky.
const INLINE = [
  // Not before brackets: formulas are written \( so \) and stay as they are.
  [/\\([!-'*-/:-@\\^-`|~])/y, (m) => m[1]],
  [/(`+)(?!`)([^]*?[^`])\1(?!`)/y, (m) => el('code', {}, codeText(m[2]))],
  [/!?\[([^\]\n]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/y,
    (m, depth) => (safeAddress(m[2]) ? link(m[2], inline(m[1] || m[2], depth + 1)) : null)],
  [/<((?:https?:\/\/|mailto:)[^\s<>]+)>/y, (m) => link(m[1], [m[1]])],
  [/https?:\/\/[^\s<>"'`*]*[^\s<>"'`*.,;:!?)\]]/y, (m) => link(m[0], [m[0]])],
  [/\*\*(?=\S)((?:[^*]|\*(?!\*))*?[^\s*])\*\*(?!\*)/y, (m, depth) => el('strong', {}, ...inline(m[1], depth + 1))],
  [/__(?=\S)([^_]*(?:_(?!_)[^_]*)*?\S)__(?!\w)/y, (m, depth) => el('strong', {}, ...inline(m[1], depth + 1)), true],
  [/\*\*\*(?=\S)([^*]*?\S)\*\*\*/y,
    (m, depth) => el('strong', {}, el('em', {}, ...inline(m[1], depth + 1)))],
  [/\*(?=[^\s*])((?:[^*]|\*\*[^*]*\*\*)*?[^\s*])\*(?!\*)/y, (m, depth) => el('em', {}, ...inline(m[1], depth + 1))],
  [/_(?=[^\s_])([^_]*?[^\s_])_(?!\w)/y, (m, depth) => el('em', {}, ...inline(m[1], depth + 1)), true],
  [/~~(?=\S)([^~]*?\S)~~/y, (m, depth) => el('del', {}, ...inline(m[1], depth + 1))],
];
const SPECIAL = /[\\`!\[<h*_~]/;
// A pattern looks ahead at most this far, so that no text takes quadratic time.
const MAX_SPAN = 800;

function codeText(code) {
  const flat = code.replace(/\n/g, ' ');
  return /^ .*[^ ].* $/.test(flat) ? flat.slice(1, -1) : flat;
}

function matchAt(text, at, depth) {
  const isInWord = at > 0 && /\w/.test(text[at - 1]);
  for (const [pattern, make, needsBorder] of INLINE) {
    if (needsBorder && isInWord) continue;
    pattern.lastIndex = 0;
    const match = pattern.exec(text.slice(at, at + MAX_SPAN));
    if (!match) continue;
    const node = make(match, depth);
    if (node !== null) return { node, length: match[0].length };
  }
  return null;
}

// Nodes and strings for the text of one block.
export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const parts = [];
  let plain = '';
  for (let i = 0; i < text.length;) {
    const found = SPECIAL.test(text[i]) ? matchAt(text, i, depth) : null;
    if (!found) {
      plain += text[i++];
    } else if (typeof found.node === 'string') {
      plain += found.node;
      i += found.length;
    } else {
      if (plain) parts.push(plain);
      plain = '';
      parts.push(found.node);
      i += found.length;
    }
  }
  if (plain) parts.push(plain);
  return parts;
}

function withBreaks(lines, depth) {
  const parts = [];
  inline(lines.map((line) => line.trim()).join('\n'), depth).forEach((part) => {
    if (typeof part !== 'string') {
      parts.push(part);
      return;
    }
    part.split('\n').forEach((line, i) => {
      if (i > 0) parts.push(el('br'));
      if (line) parts.push(line);
    });
  });
  return parts;
}

// ------------------------------------------------------------------------------------- blocks

function codeBlock(lines) {
  const [, fence, language] = FENCE.exec(lines[0]);
  const isClosed = lines.length > 1 &&
    new RegExp(`^ {0,3}[${fence[0]}]{${fence.length},}\\s*$`).test(lines.at(-1));
  const code = lines.slice(1, isClosed ? -1 : undefined).join('\n');
  return el('figure', { class: 'code' },
    el('figcaption', {}, el('span', {}, language.trim().split(/\s/)[0] || 'text'),
      copyButton(() => code, 'Copy code')),
    el('pre', { tabindex: '0' }, el('code', {}, code)));
}

function cellsOf(line) {
  const cells = [''];
  const inner = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < inner.length; ++i) {
    if (inner[i] === '\\' && inner[i + 1] === '|') {
      cells[cells.length - 1] += '|';
      ++i;
    } else if (inner[i] === '|') {
      cells.push('');
    } else {
      cells[cells.length - 1] += inner[i];
    }
  }
  return cells.map((cell) => cell.trim());
}

function table(lines) {
  const sides = cellsOf(lines[1]).map((rule) =>
    (/^:-+:$/.test(rule) ? 'center' : /-:$/.test(rule) ? 'right' : 'left'));
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return el('tr', {}, ...sides.map((side, i) =>
      el(tag, { class: `to-${side}` }, ...inline(cells[i] ?? ''))));
  };
  return el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' },
    el('table', {}, el('thead', {}, row(lines[0], 'th')),
      el('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')))));
}

function list(lines, depth) {
  const marker = ITEM.exec(lines[0])[2];
  const base = ITEM.exec(lines[0])[1].length;
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= base + 1 && !RULE.test(line)) {
      items.push({ indent: item[1].length + item[2].length + 1, lines: [item[3]] });
    } else {
      const strip = Math.min(items.at(-1).indent, /^ */.exec(line)[0].length);
      items.at(-1).lines.push(line.slice(strip));
    }
  }
  const isOrdered = /\d/.test(marker);
  const node = el(isOrdered ? 'ol' : 'ul');
  if (isOrdered && parseInt(marker, 10) !== 1) node.start = parseInt(marker, 10);
  for (const item of items) node.append(el('li', {}, ...itemContent(item.lines, depth)));
  return node;
}

// An item of one paragraph has no <p>; more become blocks.
function itemContent(lines, depth) {
  const blocks = splitBlocks(lines.join('\n'));
  return blocks.flatMap((source, i) => {
    const node = block(source, depth + 1);
    return i === 0 && node.tagName === 'P' ? [...node.childNodes] : [node];
  });
}

// The element for one block of splitBlocks.
export function block(source, depth = 0) {
  const lines = source.split('\n');
  if (depth > MAX_DEPTH) return el('p', {}, source);
  if (FENCE.test(lines[0])) return codeBlock(lines);
  const heading = HEADING.exec(lines[0]);
  // The page has an h1; an answer's headings are below it.
  if (heading) return el(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2]));
  if (RULE.test(lines[0])) return el('hr');
  if (QUOTE.test(lines[0])) {
    const inner = splitBlocks(lines.map((line) => line.replace(QUOTE, '')).join('\n'));
    return el('blockquote', {}, ...inner.map((part) => block(part, depth + 1)));
  }
  if (ITEM.test(lines[0])) return list(lines, depth);
  if (isTableStart(lines, 0)) return table(lines);
  return el('p', {}, ...withBreaks(lines, depth));
}

// Shows a text that grows: blocks that did not change keep their elements, and with them the
// reader's selection. Returns the sources of the blocks.
export class MarkdownView {
  #node;
  #sources = [];

  constructor(node) {
    this.#node = node;
  }

  show(text) {
    const sources = splitBlocks(text);
    let same = 0;
    while (same < sources.length && sources[same] === this.#sources[same]) ++same;
    while (this.#node.childNodes.length > same) this.#node.lastChild.remove();
    for (const source of sources.slice(same)) this.#node.append(block(source));
    this.#sources = sources;
    return sources;
  }
}
