// The rows of a study: charts with axes to choose, and all of it as a table.
import {chart} from './charts.js';
import {choice, element, number} from './dom.js';
import {table} from './table.js';

const short = (column) => column.replace('planner.options.', '').replace('job.', '');
const numeric = (text) => text !== '' && Number.isFinite(Number(text));
const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

export function study(data) {
  const rows = data.rows.map((cells) => Object.fromEntries(data.columns.map((c, i) => [c, cells[i] ?? ''])));
  const {axes, measures} = data;
  const parts = [];
  if (axes.length > 0 && measures.length > 0) parts.push(chooser(rows, axes, measures));
  const shown = [...axes, 'status', ...measures.filter((m) => !m.startsWith('peak_gib'))];
  const columns = shown.filter((c) => data.columns.includes(c)).map((column) => {
    const all = rows.every((row) => row[column] === '' || numeric(row[column]));
    return {
      title: short(column),
      value: (row) => all ? (row[column] === '' ? null : Number(row[column])) : row[column],
    };
  });
  if (rows.some((row) => row.reason)) {
    columns.push({title: 'reason', value: (row) => row.reason, wide: true});
  }
  parts.push(element('h3', {}, 'All runs'), table(columns, rows));
  return parts;
}

function chooser(rows, axes, measures) {
  const first = ['iteration_time_s', 'tokens_per_s', 'tokens', 'ettr'].find((m) => measures.includes(m)) ?? measures[0];
  const spread = (axis) => new Set(rows.map((row) => row[axis])).size;
  // Options say again what other axes say, or little that a legend can show.
  const told = ['seed', 'options', 'planner_options', 'policy_name'];
  const wide = [...axes].filter((axis) => !told.includes(axis)).sort((a, b) => spread(b) - spread(a));
  const state = {x: wide[0] ?? axes[0], y: first, color: wide[1] ?? '', filters: {}};
  // Without these the mean would mix cases that have nothing to do with each other.
  for (const axis of wide.slice(2)) state.filters[axis] = rows[0][axis];

  const place = chart(() => option(), {height: 380});
  const filters = element('div', {class: 'bar'});
  const caption = element('figcaption');
  const redraw = () => { fill_filters(); place.redraw(); };
  function fill_filters() {
    filters.replaceChildren(...axes.filter((axis) => axis !== state.x && axis !== state.color)
      .map((axis) => choice(short(axis), [['', 'all'],
          ...[...new Set(rows.map((row) => row[axis]))].map((value) => [value, value || '(none)'])],
          state.filters[axis] ?? '', (value) => { state.filters[axis] = value; place.redraw(); })));
  }
  function option() {
    const kept = rows.filter((row) => numeric(row[state.y]) && axes.every((axis) =>
        axis === state.x || axis === state.color || !state.filters[axis] ||
        row[axis] === state.filters[axis]));
    const series_of = [...new Set(kept.map((row) => state.color ? row[state.color] : ''))];
    const values = [...new Set(kept.map((row) => row[state.x]))];
    const numbers = values.length > 2 && values.every(numeric);
    if (numbers) values.sort((a, b) => a - b);
    let several = 0;
    const series = series_of.map((name) => {
      const points = values.map((x) => {
        const found = kept.filter((row) => row[state.x] === x && (!state.color || row[state.color] === name))
            .map((row) => Number(row[state.y]));
        several = Math.max(several, found.length);
        return found.length > 0 ? mean(found) : null;
      });
      return numbers ? {name, type: 'line', showSymbol: true, connectNulls: true,
                        data: values.map((x, i) => [Number(x), points[i]])}
                     : {name, type: 'bar', data: points};
    });
    caption.textContent = `${short(state.y)} by ${short(state.x)}` +
        (state.color ? ` and ${short(state.color)}` : '') +
        (several > 1 ? `; means of up to ${several} runs` : '') + `; ${kept.length} of ${rows.length} runs.`;
    return {
      series,
      tooltip: {trigger: 'axis', valueFormatter: (value) => number(value)},
      legend: {show: Boolean(state.color), type: 'scroll'},
      xAxis: numbers ? {type: 'value', scale: true, name: short(state.x), nameLocation: 'middle', nameGap: 28}
                     : {type: 'category', data: values.map((v) => v.split('/').pop() || '(none)'),
                        axisLabel: {interval: 0, rotate: values.length > 8 ? 30 : 0}},
      yAxis: {type: 'value', name: short(state.y), scale: numbers},
      grid: {bottom: numbers ? 30 : 12},
    };
  }
  fill_filters();
  return element('figure', {},
      element('div', {class: 'bar'},
          choice('Across', axes.map((a) => [a, short(a)]), state.x, (v) => { state.x = v; redraw(); }),
          choice('Up', measures.map((m) => [m, short(m)]), state.y, (v) => { state.y = v; redraw(); }),
          choice('Color', [['', 'none'], ...axes.map((a) => [a, short(a)])], state.color,
                 (v) => { state.color = v; redraw(); })),
      filters, place, caption);
}
