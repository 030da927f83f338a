// ECharts in the colors of the page. Charts are SVG, so that they print as sharply as text.
import {BarChart, LineChart, ScatterChart} from 'echarts/charts';
import {AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent,
        TooltipComponent} from 'echarts/components';
import * as echarts from 'echarts/core';
import {SVGRenderer} from 'echarts/renderers';
import {element, on_theme, palette, variable} from './dom.js';

echarts.use([AriaComponent, BarChart, DataZoomComponent, GridComponent, LegendComponent, LineChart,
             MarkLineComponent, ScatterChart, SVGRenderer, TooltipComponent]);

// A chart of what `option()` says, which is asked again when the theme changes.
export function chart(option, {low = false, height} = {}) {
  const place = element('div', {class: low ? 'chart low' : 'chart', role: 'img'});
  if (height) place.style.height = `${height}px`;
  let drawn = null;
  const draw = () => {
    if (!place.isConnected) return;
    drawn?.dispose();
    drawn = echarts.init(place, null, {renderer: 'svg'});
    const ink = variable('--ink');
    const soft = variable('--soft');
    const line = variable('--line');
    const themed = option();
    const axis = (one, vertical) => ({
      nameTextStyle: {color: soft, ...(vertical ? {align: 'left', padding: [0, 0, 0, -20]} : {})}, ...one,
      axisLine: {lineStyle: {color: soft}},
      axisLabel: {color: ink, ...one.axisLabel},
      splitLine: {lineStyle: {color: line}, ...one.splitLine},
    });
    
    drawn.setOption({
      animation: false,
      color: palette,
      aria: {enabled: true},
      textStyle: {fontFamily: getComputedStyle(document.body).fontFamily, color: ink},
      ...themed,
      grid: {left: 12, right: 24, top: 44, bottom: 12, containLabel: true, ...themed.grid},
      legend: {type: 'plain', top: 0, textStyle: {color: ink}, ...themed.legend},
      tooltip: {backgroundColor: variable('--card'), borderColor: line, textStyle: {color: ink},
                confine: true, ...themed.tooltip},
      xAxis: axis(themed.xAxis, false),
      yAxis: axis(themed.yAxis, true),
    });
  };
  on_theme(draw);
  new ResizeObserver(() => drawn ? drawn.resize() : draw()).observe(place);
  place.redraw = draw;
  return place;
}
