// Recovery policies: ranking, where the time goes, and each replay over time.
import {chart} from './charts.js';
import {choice, color, element, number, percent} from './dom.js';
import {table} from './table.js';

// Useful work in blue and green, loss in warm colors, waiting in gray.
const kBuckets = {
  productive: '#0072b2', degraded: '#56b4e9', checkpoint: '#009e73', rolled_back: '#d55e00',
  detect: '#f0c000', decide: '#e69f00', move_state: '#cc79a7', reinitialize: '#a05a2c',
  idle: '#9aa3ad',
};
const names = Object.keys(kBuckets);
const words = (name) => name.replaceAll('_', ' ');
const called = (one) => one.axes ? `${one.policy} ${one.axes}` : one.policy;

export function ranking(standings) {
  const cases = new Set(standings.map((s) => s.case));
  const interval = (value) => value.half_width_95 == null ? number(value.mean)
      : `${number(value.mean)} ± ${number(value.half_width_95, 3)}`;
  const columns = [
    {title: 'policy', value: called},
    {title: 'tokens/s (95 %)', value: (s) => s.tokens_per_second.mean,
     show: (_, s) => interval(s.tokens_per_second)},
    {title: 'slower than best', value: (s) => s.behind_first.mean, show: (v) => percent(v)},
    {title: 'goodput', value: (s) => s.goodput.mean, show: (v) => percent(v)},
    {title: 'ETTR', value: (s) => s.ettr.mean, show: (v) => percent(v)},
    {title: '$ per million tokens', value: (s) => s.dollars_per_million_tokens},
    {title: 'interruptions', value: (s) => s.interruptions},
    {title: 'lost iterations', value: (s) => s.lost_iterations},
    {title: 'seeds', value: (s) => s.seeds},
  ];
  if (cases.size > 1) columns.unshift({title: 'case', value: (s) => s.case});
  return table(columns, standings);
}

export function where_time_goes(standings) {
  const rows = [...standings].reverse();
  const several = new Set(standings.map((s) => s.case)).size > 1;
  return chart(() => ({
    tooltip: {trigger: 'axis', axisPointer: {type: 'shadow'}, valueFormatter: (v) => percent(v / 100)},
    legend: {},
    grid: {top: 64, bottom: 30},
    xAxis: {type: 'value', max: 100, name: '% of the horizon', nameLocation: 'middle', nameGap: 28},
    yAxis: {type: 'category', data: rows.map((s) => (several ? `${s.case}: ` : '') + called(s))},
    series: names.map((name) => ({
      name: words(name), type: 'bar', stack: 'all', itemStyle: {color: kBuckets[name]},
      data: rows.map((s) => 100 * (s.wall_share[name] ?? 0)),
    })),
  }), {height: 120 + 26 * rows.length});
}

export function unable(rows) {
  return table([
    {title: 'case', value: (u) => u.case}, {title: 'policy', value: called},
    {title: 'reason', value: (u) => u.reason, wide: true},
  ], rows);
}

export function over_time(replays, horizon) {
  let chosen = 0;
  const label = (r) => `${r.case ? r.case + ': ' : ''}${called(r)}, seed ${r.seed}`;
  const buckets = chart(() => {
    const replay = replays[chosen];
    const slices = Math.max(0, ...Object.values(replay.buckets).map((b) => b.length));
    return {
      tooltip: {trigger: 'axis', valueFormatter: (v) => percent(v / 100)},
      legend: {},
      grid: {top: 64, bottom: 30},
      xAxis: {type: 'value', min: 0, max: horizon, name: 'days', nameLocation: 'middle', nameGap: 26,
              axisLabel: {formatter: (v) => number(v, 3)}},
      yAxis: {type: 'value', max: 100, name: '% of the time'},
      dataZoom: [{type: 'inside', filterMode: 'none'}],
      series: names.map((name) => ({
        name: words(name), type: 'line', stack: 'all', step: 'start', showSymbol: false,
        lineStyle: {width: 0}, areaStyle: {opacity: .92, color: kBuckets[name]},
        itemStyle: {color: kBuckets[name]},
        data: Array.from({length: slices + 1}, (_, k) =>
            [k * horizon / slices, 100 * (replay.buckets[name]?.[Math.max(0, k - 1)] ?? 0)]),
      })),
    };
  });
  const gpus = chart(() => {
    const replay = replays[chosen];
    const curve = (name, values, index) => ({
      name, type: 'line', step: 'end', showSymbol: false, itemStyle: {color: color(index)},
      data: values.map((value, i) => [replay.at[i], value])});
    return {
      tooltip: {trigger: 'axis'}, legend: {}, grid: {bottom: 30},
      xAxis: {type: 'value', min: 0, max: horizon, name: 'days', nameLocation: 'middle', nameGap: 26,
              axisLabel: {formatter: (v) => number(v, 3)}},
      yAxis: {type: 'value', name: 'GPUs', scale: true},
      series: [curve('there', replay.live, 0), curve('in the plan', replay.in_plan, 1)],
    };
  }, {height: 240});
  const stops = element('div');
  const fill = () => {
    const replay = replays[chosen];
    stops.replaceChildren(replay.lost_at.length === 0 ? element('p', {class: 'soft'}, 'Nothing interrupted it.')
      : table([
          {title: 'day', value: (i) => replay.lost_at[i]},
          {title: 'cause', value: (i) => replay.causes[i], wide: true},
          {title: 'stall, s', value: (i) => replay.stalls[i]},
        ], replay.lost_at.map((_, i) => i)));
  };
  fill();
  const compare = chart(() => ({
    tooltip: {trigger: 'axis', valueFormatter: (v) => `${number(v, 4)} billion`},
    legend: {type: 'scroll'}, grid: {bottom: 30},
    xAxis: {type: 'value', min: 0, max: horizon, name: 'days', nameLocation: 'middle', nameGap: 26,
            axisLabel: {formatter: (v) => number(v, 3)}},
    yAxis: {type: 'value', name: 'billion tokens'},
    series: replays.map((replay, i) => ({
      name: label(replay), type: 'line', showSymbol: false, itemStyle: {color: color(i)},
      data: replay.at.map((at, k) => [at, replay.tokens[k] / 1e9])})),
  }));
  return [
    element('figure', {}, compare, element('figcaption', {}, 'Tokens that count so far, before later roll-backs.')),
    element('div', {class: 'bar'}, choice('Replay', replays.map((r, i) => [String(i), label(r)]), '0',
        (value) => { chosen = Number(value); buckets.redraw(); gpus.redraw(); fill(); })),
    replays.every((replay) => Object.keys(replay.buckets).length === 0)
      ? element('p', {class: 'soft'}, 'These runs kept no buckets over time: an older version of ' +
                'orrery made them. The totals are above.')
      : element('figure', {}, buckets, element('figcaption', {},
        'Where the time of each 1/200 of the horizon went. Between two interruptions the checkpoints ' +
        'of a stretch are drawn as one piece.')),
    element('figure', {}, gpus),
    element('h3', {}, 'Interruptions'), stops,
  ];
}
