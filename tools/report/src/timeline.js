// The timeline on a canvas: what is narrower than a pixel is drawn as one mark, so that the time
// of a frame follows the pixels and not the spans.
import {element, on_theme, palette, seconds, variable} from './dom.js';

const kRow = 17;
const kGutter = 236;
const kAxis = 22;
const kMost = 620;

// {start, end, name} of a row, decoded from its text (experiments/report/page.h).
export function decode(row) {
  const numbers = row.spans.split(' ');
  const count = numbers.length / 3;
  const spans = {start: new Float64Array(count), end: new Float64Array(count),
                 name: new Int32Array(count)};
  let at = 0;
  for (let i = 0; i < count; ++i) {
    spans.start[i] = at + Number(numbers[3 * i]);
    at = spans.end[i] = spans.start[i] + Number(numbers[3 * i + 1]);
    spans.name[i] = Number(numbers[3 * i + 2]);
  }
  return spans;
}

// First span that ends after `time`.
function first_after(spans, time) {
  let [low, high] = [0, spans.end.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function timeline(data) {
  const rows = data.rows.map((row) => ({...row, ...decode(row)}));
  const kinds = [...new Set(data.kinds)];
  const colors = data.kinds.map((kind) => palette[kinds.indexOf(kind) % palette.length]);
  let whole = 1;
  for (const row of rows) whole = Math.max(whole, row.end[row.end.length - 1]);
  const view = {from: 0, to: whole, top: 0};
  const height = Math.min(kMost, kAxis + rows.length * kRow + 4);

  const canvas = element('canvas', {tabindex: 0, role: 'application', 'aria-label':
      'Timeline. Arrow keys move, plus and minus zoom, Home shows all, Page Up and Down scroll.'});
  canvas.style.height = `${height}px`;
  const tip = element('div', {class: 'tip'});
  let asked = false;
  const frames = canvas.frames = [];  // Milliseconds of the frames drawn, for the tests.

  const scale = () => (canvas.clientWidth - kGutter) / (view.to - view.from);

  function draw() {
    asked = false;
    const begun = performance.now();
    const dense = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (width === 0) return;
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    const pen = canvas.getContext('2d');
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    const [paper, ink, soft, line] =
        ['--paper', '--ink', '--soft', '--line'].map((name) => variable(name));
    pen.fillStyle = paper;
    pen.fillRect(0, 0, width, height);
    const wide = scale();
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = 'middle';
    ticks(pen, width, wide, soft, line);
    const first = Math.floor(view.top / kRow);
    const last = Math.min(rows.length, first + Math.ceil((height - kAxis) / kRow) + 1);
    pen.save();
    pen.beginPath();
    pen.rect(0, kAxis, width, height - kAxis);
    pen.clip();
    let before = first > 0 ? rows[first - 1].rank : '';
    for (let r = first; r < last; ++r) {
      const row = rows[r];
      const y = kAxis + r * kRow - view.top;
      if (row.rank !== before) {
        pen.fillStyle = line;
        pen.fillRect(0, y, width, 1);
      }
      pen.fillStyle = row.rank !== before ? ink : soft;
      const label = row.rank !== before ? row.rank : row.lane;
      pen.fillText(label, 6, y + kRow / 2, kGutter - 12);
      before = row.rank;
      spans_of(pen, row, y, width, wide);
    }
    pen.restore();
    frames.push(performance.now() - begun);
    if (frames.length > 400) frames.shift();
  }

  function spans_of(pen, row, y, width, wide) {
    let painted = kGutter;  // Everything left of it is done.
    for (let i = first_after(row, view.from); i < row.start.length; ++i) {
      if (row.start[i] >= view.to) break;
      const left = Math.max(kGutter, kGutter + (row.start[i] - view.from) * wide);
      const right = Math.min(width, kGutter + (row.end[i] - view.from) * wide);
      if (right <= painted && right - left < 0.5) continue;
      const shown = Math.max(right - left, 0.7);
      pen.fillStyle = colors[row.name[i]];
      pen.fillRect(left, y + 2, shown > 3 ? shown - 0.6 : shown, kRow - 4);
      painted = Math.max(painted, left + 0.7);
      if (shown > 40) {
        pen.fillStyle = '#ffffff';
        const text = data.names[row.name[i]];
        const most = Math.floor((shown - 6) / 5.6);
        pen.fillText(text.length > most ? text.slice(0, most - 1) + '…' : text, left + 3,
                     y + kRow / 2);
      }
    }
  }

  function ticks(pen, width, wide, soft, line) {
    const raw = (view.to - view.from) / ((width - kGutter) / 110);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = kGutter + (t - view.from) * wide;
      pen.fillStyle = line;
      pen.fillRect(x, kAxis - 5, 1, height);
      pen.fillStyle = soft;
      if (x < width - 40) pen.fillText(t === 0 ? '0' : seconds(t), x + 3, kAxis / 2);
    }
  }

  function ask() {
    if (!asked) requestAnimationFrame(draw);
    asked = true;
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const length = Math.min(whole, Math.max(200, (view.to - view.from) * factor));
    const share = (at - view.from) / (view.to - view.from);
    place_at(at - share * length, length);
  }
  function place_at(from, length) {
    view.from = Math.max(0, Math.min(whole - length, from));
    view.to = view.from + length;
    ask();
  }
  const move = (share) => place_at(view.from + share * (view.to - view.from), view.to - view.from);
  function scroll(pixels) {
    view.top = Math.max(0, Math.min(rows.length * kRow + kAxis + 4 - height, view.top + pixels));
    ask();
  }
  const all = () => { view.top = 0; place_at(0, whole); };
  const time_at = (x) => view.from + (x - kGutter) / scale();

  canvas.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      const delta = event.deltaY || event.deltaX;
      zoom(Math.exp(delta / 300), time_at(Math.max(kGutter, event.offsetX)));
    } else if (rows.length * kRow + kAxis + 4 > height) {
      event.preventDefault();
      scroll(event.deltaY);
    }
  }, {passive: false});
  let held = null;
  canvas.addEventListener('pointerdown', (event) => {
    held = {x: event.offsetX, y: event.offsetY, from: view.from, top: view.top};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { held = null; });
  canvas.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
  canvas.addEventListener('dblclick', all);
  canvas.addEventListener('pointermove', (event) => {
    if (held) {
      scroll(held.top - (event.offsetY - held.y) - view.top);
      place_at(held.from - (event.offsetX - held.x) / scale(), view.to - view.from);
      return;
    }
    const row = rows[Math.floor((event.offsetY - kAxis + view.top) / kRow)];
    const time = time_at(event.offsetX);
    const i = row && event.offsetX > kGutter ? first_after(row, time) : -1;
    if (i < 0 || i >= row.start.length || row.start[i] > time + 2 / scale()) {
      tip.style.display = 'none';
      return;
    }
    tip.textContent = `${data.names[row.name[i]]}: ${seconds(row.end[i] - row.start[i])} from ` +
        `${seconds(row.start[i])}; ${row.rank}, ${row.lane}`;
    tip.style.display = 'block';
    tip.style.left = `${Math.min(event.offsetX + 12, canvas.clientWidth - 370)}px`;
    tip.style.top = `${Math.min(event.offsetY + 14, height - 44)}px`;
  });
  const keys = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), ArrowUp: () => scroll(-3 * kRow),
    ArrowDown: () => scroll(3 * kRow), PageUp: () => scroll(-height), PageDown: () => scroll(height),
    '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), Home: all,
  };
  canvas.addEventListener('keydown', (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  canvas.view = view;
  on_theme(ask);
  new ResizeObserver(ask).observe(canvas);

  const button = (text, label, act) =>
      element('button', {type: 'button', 'aria-label': label, title: label, onclick: act}, text);
  return element('figure', {},
    element('div', {class: 'bar'}, button('+', 'Zoom in', () => zoom(0.6)),
            button('−', 'Zoom out', () => zoom(1 / 0.6)),
            button('←', 'Earlier', () => move(-0.3)), button('→', 'Later', () => move(0.3)),
            button('All', 'Show all', all),
            element('span', {class: 'soft'},
                    'Drag moves; Ctrl or Shift with the wheel zooms; with the keyboard: arrows, + and −, Home.')),
    element('div', {class: 'legend'}, ...kinds.map((kind, k) => {
      const mark = element('i');
      mark.style.background = palette[k % palette.length];
      return element('span', {}, mark, kind.replaceAll('_', ' '));
    })),
    element('div', {class: 'timeline'}, canvas, tip),
    element('figcaption', {}, data.left_out ? `${data.left_out}. ` : '',
            `${data.spans.toLocaleString('en-US')} spans. A row is a stream of a rank; transfers `,
            'that run side by side have rows of their own.'));
}
