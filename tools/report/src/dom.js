// Elements, numbers and colors that all parts of the page share.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A select of values; calls `changed` with the chosen one.
export function choice(label, values, chosen, changed) {
  const select = element('select', {onchange: () => changed(select.value)});
  for (const value of values) {
    const [key, text] = Array.isArray(value) ? value : [value, value];
    select.append(element('option', {value: key, selected: key === chosen ? '' : false}, text));
  }
  return element('label', {}, label, select);
}

// 12300 -> "12,300", 0.00123 -> "0.00123".
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 10 ** (digits - 1)) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(digits)));
}
export const percent = (share) => Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : '–';

export function seconds(ns) {
  const s = ns / 1e9;
  if (Math.abs(s) >= 1) return `${number(s)} s`;
  if (Math.abs(s) >= 1e-3) return `${number(s * 1e3)} ms`;
  return `${number(s * 1e6)} µs`;
}

// Distinct to color-blind readers too (Okabe and Ito), then lighter ones.
const kPalette = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8a7fd1',
                  '#b8a300', '#5f9ea0', '#a05a2c'];
export const color = (index) => kPalette[index % kPalette.length];
export const palette = kPalette;

// From cool to hot, 0 to 1.
export function heat(share) {
  const dark = document.documentElement.dataset.theme === 'dark';
  const stops = [dark ? [52, 66, 82] : [224, 236, 244], dark ? [86, 130, 160] : [158, 202, 225],
                 [254, 217, 118], [253, 141, 60], [189, 0, 38]];
  const x = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(x));
  const mix = stops[i].map((low, k) => Math.round(low + (stops[i + 1][k] - low) * (x - i)));
  return `rgb(${mix.join(',')})`;
}
export function on_heat(share) {
  const dark = document.documentElement.dataset.theme === 'dark';
  return share > 0.8 || (dark && share < 0.3) ? '#ffffff' : '#10151b';
}

export const variable = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// What is drawn again when light turns to dark or the width changes.
const redraws = [];
export function on_theme(redraw) { redraws.push(redraw); }
export function redraw_all() { for (const redraw of redraws) redraw(); }
