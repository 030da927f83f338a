// The page of `orrery report`: reads its data, and lays out what is there.
import {chart} from './charts.js';
import {cluster} from './cluster.js';
import {element, number, percent, redraw_all, variable} from './dom.js';
import {over_time, ranking, unable, where_time_goes} from './replay.js';
import {study} from './study.js';
import {table} from './table.js';
import {timeline} from './timeline.js';

const data = JSON.parse(document.getElementById('data').textContent);
const root = document.getElementById('report');
const kParts = [
  ['compute_seconds', 'compute'], ['tensor_parallel_seconds', 'collectives inside passes'],
  ['pipeline_communication_seconds', 'transfers between stages'],
  ['data_parallel_seconds', 'gradient synchronization'], ['optimizer_seconds', 'optimizer'],
  ['bubble_seconds', 'idle'],
];

function theme(name) {
  document.documentElement.dataset.theme = name;
  redraw_all();
}
const dark = window.matchMedia('(prefers-color-scheme: dark)');
theme(dark.matches ? 'dark' : 'light');
dark.addEventListener('change', () => theme(dark.matches ? 'dark' : 'light'));
// Paper is white.
let before_print = '';
window.addEventListener('beforeprint', () => {
  before_print = document.documentElement.dataset.theme;
  theme('light');
});
window.addEventListener('afterprint', () => theme(before_print));

function card(title, text, bad = false) {
  return element('div', {class: bad ? 'card bad' : 'card'}, element('b', {}, text), element('span', {}, title));
}

function cards(judged) {
  const box = element('div', {class: 'cards'},
      card('seconds an iteration', number(judged.iteration_seconds)),
      card('tokens per second', number(judged.tokens_per_second)),
      card('model FLOPs utilization', percent(judged.mfu)));
  for (const use of judged.memory) {
    const {need, have} = memory_of(use);
    box.append(card(`GiB of ${number(have)}, fullest ${use.gpu}`, number(need, 3), !(need <= have)));
  }
  if (judged.dollars_per_million_tokens != null) {
    box.append(card('dollars per million tokens', number(judged.dollars_per_million_tokens, 3)));
  }
  return box;
}

const memory_of = (use) => ({need: use.need_bytes / 2 ** 30, have: use.have_bytes / 2 ** 30});

function breakdown(plans) {
  const shown = plans.filter((plan) => plan.evaluation && plan.evaluation.synchronization_seconds == null).reverse();
  if (shown.length === 0) return null;
  return element('figure', {}, chart(() => ({
    tooltip: {trigger: 'axis', axisPointer: {type: 'shadow'}, valueFormatter: (v) => `${number(v)} s`},
    legend: {},
    xAxis: {type: 'value', name: 'seconds, mean over GPUs', nameLocation: 'middle', nameGap: 28},
    yAxis: {type: 'category', data: shown.map((plan) => plan.name), axisLabel: {width: 150, overflow: 'truncate'}},
    grid: {bottom: 30},
    series: kParts.map(([key, name], i) => ({
      name, type: 'bar', stack: 'all', barMaxWidth: 34,
      itemStyle: i === 5 ? {color: '#b9c1ca'} : {}, data: shown.map((plan) => plan.evaluation[key])})),
  }), {height: 140 + 34 * shown.length}), element('figcaption', {}, 'Where an iteration goes.'));
}

function comparison(plans) {
  return table([
    {title: 'plan', value: (p) => p.name},
    {title: 'iteration, s', value: (p) => p.evaluation?.iteration_seconds},
    {title: 'tokens/s', value: (p) => p.evaluation?.tokens_per_second},
    {title: 'MFU', value: (p) => p.evaluation?.mfu, show: (v) => percent(v)},
    {title: '$ per million tokens', value: (p) => p.evaluation?.dollars_per_million_tokens},
    {title: 'memory', value: (p) => p.evaluation?.verdict ?? '', wide: true},
  ], plans, {sort: 1});
}

function stages(loads) {
  const share = (key) => (load) => load[key] / whole(load);
  const whole = (l) => l.compute_seconds + l.tensor_parallel_seconds + l.zero_seconds + l.transfer_seconds + l.bubble_seconds;
  const column = (title, key) => ({title, value: share(key), show: (v) => percent(v)});
  return table([
    {title: 'pipeline', value: (l) => l.pipeline}, {title: 'stage', value: (l) => l.stage},
    column('computing', 'compute_seconds'), column('collectives inside passes', 'tensor_parallel_seconds'),
    column('gathers (ZeRO-3)', 'zero_seconds'),
    column('transfers', 'transfer_seconds'), column('idle', 'bubble_seconds'),
  ], loads);
}

function memory(series) {
  const gpus = [...new Map(series.map((one) => [one.gpu, one.have])).entries()];
  const peak = Math.max(...series.flatMap((one) => one.allocated)) / 2 ** 30;
  return element('figure', {}, chart(() => ({
    tooltip: {trigger: 'axis', valueFormatter: (v) => `${number(v, 3)} GiB`},
    legend: {type: 'scroll'},
    grid: {bottom: 30},
    dataZoom: [{type: 'inside', filterMode: 'none'}],
    xAxis: {type: 'value', name: 'seconds', nameLocation: 'middle', nameGap: 26,
            axisLabel: {formatter: (v) => number(v, 3)}},
    yAxis: {type: 'value', name: 'GiB',
            max: Math.ceil(Math.max(peak, ...gpus.map(([, have]) => have / 2 ** 30)) * 1.05)},
    series: series.map((one, i) => ({
      name: one.rank, type: 'line', step: 'end', showSymbol: false, lineStyle: {width: 1.3},
      data: one.at.map((at, k) => [at / 1e9, one.allocated[k] / 2 ** 30]),
      markLine: i > 0 ? undefined : {
        silent: true, symbol: 'none', lineStyle: {type: 'dashed', color: '#d55e00'},
        label: {formatter: (mark) => mark.name, position: 'insideEndTop', color: variable('--ink'),
                textBorderWidth: 0},
        data: gpus.map(([gpu, have]) => ({yAxis: have / 2 ** 30, name: gpu}))},
    })),
  })), element('figcaption', {},
      'Memory of the fullest GPU of each stage, and what a GPU has (dashed). The verdict takes the larger ' +
      'of the peak here and of a closed-form estimate.'));
}

function links(rows) {
  return table([
    {title: 'link', value: (l) => l.name},
    {title: 'busy', value: (l) => l.share, show: (v) => percent(v)},
    {title: 'GB', value: (l) => l.bytes / 1e9},
    {title: 'GB/s', value: (l) => l.capacity / 1e9},
  ], rows.slice(0, 200), {sort: 1, falling: true});
}

function sources(rows) {
  return table([
    {title: 'what', value: (s) => s.what}, {title: 'name', value: (s) => s.name, wide: true},
    {title: 'content hash', value: (s) => s.hash, show: (v) => v ? element('code', {}, v) : ''},
  ], rows);
}

const sections = [];
function section(title, ...parts) {
  const id = `part-${sections.length}`;
  sections.push([id, title]);
  return element('section', {id}, element('h2', {}, title), ...parts.flat());
}
const paragraphs = (texts) => texts.map((text) => element('p', {}, text));

function plan_sections(plan, alone) {
  const of = (title) => alone ? title : `${plan.name}: ${title.toLowerCase()}`;
  const parts = [section(alone ? 'Summary' : plan.name, paragraphs(plan.sentences),
                         plan.evaluation ? [cards(plan.evaluation)] : [])];
  if (alone) parts.push(section('Where the time goes', [breakdown([plan])].filter(Boolean),
      plan.loads.length > 0 ? [element('h3', {}, 'Busiest GPU of each stage'), stages(plan.loads)] : []));
  parts.push(section(of('The plan on the cluster'), cluster(plan),
      plan.links.length > 0 ? element('details', {}, element('summary', {}, 'Links by use'), links(plan.links)) : []));
  if (plan.timeline) parts.push(section(of('Timeline'), timeline(plan.timeline)));
  if (plan.memory.length > 0) parts.push(section(of('Memory over time'), memory(plan.memory)));
  return parts;
}

function provenance() {
  const rows = [...data.sources];
  const keys = new Set();
  for (const source of data.plans.flatMap((plan) => plan.sources)) {
    const key = JSON.stringify(source);
    if (!keys.has(key)) rows.push(source);
    keys.add(key);
  }
  const details = data.plans.flatMap((plan) => [
    element('details', {}, element('summary', {}, `Effective configuration of ${plan.name}`),
            element('pre', {tabindex: 0}, plan.effective)),
    plan.prices.length === 0 ? null : element('details', {},
        element('summary', {}, `Where times of operations of ${plan.name} come from`),
        element('pre', {tabindex: 0}, plan.prices.join('\n'))),
  ]).filter(Boolean);
  return section('Where the numbers come from',
      element('p', {}, `Made by ${data.made_by} with `, element('code', {}, data.command), '.'),
      sources(rows), details);
}

document.title = data.title;
const body = [];
const alone = data.plans.length === 1;
if (data.sentences.length > 0) body.push(section('Summary', paragraphs(data.sentences)));
if (data.plans.length > 1) {
  body.push(section('Plans compared', comparison(data.plans), [breakdown(data.plans)].filter(Boolean)));
}
for (const plan of data.plans) body.push(...plan_sections(plan, alone));
if (data.ranking.length > 0) {
  body.push(section('Ranking', ranking(data.ranking)));
  body.push(section('Where the time goes', element('figure', {}, where_time_goes(data.ranking))));
}
if (data.unable.length > 0) body.push(section('Policies that cannot run here', unable(data.unable)));
if (data.replays.some((replay) => replay.at.length > 0)) {
  body.push(section('Over time', over_time(data.replays, data.horizon_days)));
}
if (data.study) body.push(section('Runs', study(data.study)));
body.push(provenance());

const toggle = element('button', {type: 'button', class: 'no-print', onclick: () =>
    theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark')}, 'Light or dark');
root.append(
    element('header', {}, element('h1', {}, data.title), toggle),
    element('nav', {'aria-label': 'Sections'}, ...sections.map(([id, title]) => element('a', {href: `#${id}`}, title))),
    ...body,
    element('footer', {class: 'soft'}, 'Made by Orrery. This file needs no network. Charts by Apache ECharts.'));
document.documentElement.dataset.ready = 'yes';
