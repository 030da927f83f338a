// The plan drawn on the cluster: a card for each node, a square for each GPU, lines from stage to
// stage, and links by how busy they are.
import {choice, color, element, heat, on_heat, on_theme, percent, svg} from './dom.js';

const kNodesDrawn = 256;
const kSquare = 27;
const kGap = 12;
const kWidth = 1130;
const kLinesDrawn = 60;

export function cluster(plan) {
  const nodes = plan.nodes.slice(0, kNodesDrawn);
  const of_node = new Map();
  for (const link of plan.links) {
    if (!of_node.has(link.node)) of_node.set(link.node, []);
    of_node.get(link.node).push(link);
  }
  const widest = Math.max(...nodes.map((node) => Math.min(8, Math.max(6, node.gpus.length))));
  const width = widest * kSquare + 16;
  const tallest = Math.max(...nodes.map((node) => Math.ceil(node.gpus.length / 8)));
  const has_links = plan.links.length > 0;
  const height = 40 + tallest * kSquare + (has_links ? 24 : 6);
  const columns = Math.max(1, Math.min(nodes.length, Math.floor((kWidth + kGap) / (width + kGap))));
  const lines = Math.ceil(nodes.length / columns);
  const has_use = nodes.some((node) => node.gpus.some((gpu) => gpu.compute != null));
  const total = lines * (height + kGap);
  const drawing = svg('svg', {class: 'cluster', role: 'img',
      viewBox: `0 0 ${columns * (width + kGap) - kGap} ${total}`,
      'aria-label': 'The plan on the cluster'});
  drawing.style.maxWidth = `${(nodes.length < 8 ? 1.35 : 1) * (columns * (width + kGap) - kGap)}px`;
  const squares = [];
  const bars = [];
  const stages = new Map();  // "pipeline.stage" -> centers of its GPUs

  nodes.forEach((node, n) => {
    const x0 = (n % columns) * (width + kGap);
    const y0 = Math.floor(n / columns) * (height + kGap);
    drawing.append(svg('rect', {class: 'node', x: x0 + .5, y: y0 + .5, width: width - 1,
                                height: height - 1, rx: 6}));
    const types = [...new Set(node.gpus.map((gpu) => gpu.type))];
    const room = Math.floor((width - 14) / 6);
    const line = (text, y, style) => {
      const place = svg('text', {x: x0 + 8, y, ...style});
      place.textContent = text.length > room ? text.slice(0, room - 1) + '…' : text;
      drawing.append(place);
    };
    line(node.name, y0 + 16, {'font-size': 11, 'font-weight': 600});
    line(types.join(', '), y0 + 30, {'font-size': 10, class: 'faint'});
    node.gpus.forEach((gpu, g) => {
      const x = x0 + 8 + (g % 8) * kSquare;
      const y = y0 + 37 + Math.floor(g / 8) * kSquare;
      const used = gpu.pipeline != null;
      const box = svg('rect', {x, y, width: kSquare - 3, height: kSquare - 3, rx: 3});
      const label = svg('text', {x: x + (kSquare - 3) / 2, y: y + 15.5, 'font-size': 9.5,
                                 'text-anchor': 'middle'});
      label.textContent = used ? `${gpu.pipeline}.${gpu.stage}` : '';
      const tip = svg('title');
      tip.textContent = `GPU ${gpu.id}, ${gpu.type}, ${node.name}: ` +
          (used ? `pipeline ${gpu.pipeline}, stage ${gpu.stage}` : 'not used') +
          (gpu.compute != null ? `; ${percent(gpu.compute)} computing, ` +
              `${percent(gpu.collectives)} in collectives inside passes` : '');
      const group = svg('g', {class: 'gpu'}, box, label, tip);
      drawing.append(group);
      squares.push({gpu, box, label, group});
      if (used) {
        const key = `${gpu.pipeline}.${gpu.stage}`;
        if (!stages.has(key)) stages.set(key, []);
        stages.get(key).push([x + (kSquare - 3) / 2, y + (kSquare - 3) / 2]);
      }
    });
    const busiest = (of_node.get(node.name) ?? []);
    const wide = (width - 16) / Math.max(busiest.length, 1);
    busiest.forEach((link, l) => {
      const bar = svg('rect', {x: x0 + 8 + l * wide, y: y0 + height - 18,
                               width: Math.max(wide - 1, .7), height: 10});
      bars.push([bar, link.share]);
      const tip = svg('title');
      tip.textContent = `${link.name}: ${percent(link.share)} of the iteration`;
      bar.append(tip);
      drawing.append(bar);
    });
  });

  const center = (points) => [0, 1].map((k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
  const paths = [];
  const pipelines = [...new Set(squares.filter(({gpu}) => gpu.pipeline != null)
                                    .map(({gpu}) => gpu.pipeline))].sort((a, b) => a - b);
  for (const pipeline of pipelines) {
    for (let s = 0; stages.has(`${pipeline}.${s + 1}`); ++s) {
      if (!stages.has(`${pipeline}.${s}`)) continue;
      const [x1, y1] = center(stages.get(`${pipeline}.${s}`));
      const [x2, y2] = center(stages.get(`${pipeline}.${s + 1}`));
      const bend = 14 + 0.08 * Math.hypot(x2 - x1, y2 - y1);
      const path = svg('path', {class: 'path', stroke: color(pipeline),
          d: `M${x1},${y1}Q${(x1 + x2) / 2},${(y1 + y2) / 2 - bend} ${x2},${y2}`});
      paths.push({pipeline, path});
      drawing.append(path);
    }
  }

  let by = 'pipeline';
  let only = 'all';
  function paint() {
    for (const {gpu, box, label, group} of squares) {
      const used = gpu.pipeline != null;
      const use = (gpu.compute ?? 0) + (gpu.collectives ?? 0);
      box.setAttribute('fill', !used ? 'var(--unused)'
          : by === 'use' ? (gpu.compute == null ? 'var(--unused)' : heat(use)) : color(gpu.pipeline));
      label.setAttribute('style', `fill:${!used ? 'var(--soft)'
          : by === 'use' ? on_heat(use) : '#ffffff'}`);
      group.classList.toggle('on', String(gpu.pipeline) === only);
    }
    for (const {pipeline, path} of paths) {
      path.classList.toggle('on', String(pipeline) === only);
      // Of many pipelines, the lines of all would hide the rest.
      path.style.display = paths.length > kLinesDrawn && String(pipeline) !== only ? 'none' : '';
    }
    drawing.classList.toggle('one', only !== 'all');
  }

  const bar = element('div', {class: 'bar'});
  if (has_use) {
    bar.append(choice('Color', [['pipeline', 'pipeline'], ['use', 'use of the GPU']], by,
                      (value) => { by = value; paint(); }));
  }
  if (pipelines.length > 1) {
    bar.append(choice('Pipeline', [['all', 'all'], ...pipelines.map((p) => [String(p), String(p)])],
                      only, (value) => { only = value; paint(); }));
  }
  const marks = [];
  const scale = element('span', {class: 'legend'}, 'idle',
      ...[0, .25, .5, .75, 1].map((share) => {
        const mark = element('i');
        marks.push([mark, share]);
        return mark;
      }), 'busy all the time');
  scale.classList.add('heat');
  const color_heat = () => {
    for (const [mark, share] of marks) mark.style.background = heat(share);
    for (const [bar, share] of bars) bar.setAttribute('fill', heat(share));
    paint();
  };
  color_heat();
  on_theme(color_heat);
  const left_out = plan.nodes.length - nodes.length;
  return element('figure', {}, bar, drawing, has_links ? scale : null,
      element('figcaption', {}, 'Squares are GPUs, labeled pipeline.stage; lines lead from stage to ' +
          (paths.length > kLinesDrawn ? 'stage, of the pipeline that is chosen.' : 'stage.') + (has_links ? ' The strip below a node shows its links, busiest first.' : '') +
          (left_out > 0 ? ` ${left_out} more nodes are not drawn.` : '')));
}
