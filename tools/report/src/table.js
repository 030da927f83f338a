// Tables that sort by a click, or by Enter on the heading.
import {element, number} from './dom.js';

// columns: [{title, value(row) -> number or text, show(value, row) -> text, wide}]
export function table(columns, rows, options = {}) {
  let sorted = options.sort ?? -1;
  let falling = options.falling ?? false;
  const body = element('tbody');
  const heads = columns.map((column, index) => {
    column.number = rows.length > 0 && rows.every((row) => {
      const value = column.value(row);
      return value === null || value === undefined || typeof value === 'number';
    });
    const button = element('button', {type: 'button', onclick: () => sort(index)}, column.title);
    return element('th', {scope: 'col', class: column.number ? 'number' : false}, button);
  });
  function fill() {
    const order = [...rows];
    if (sorted >= 0) {
      const of = columns[sorted].value;
      const sign = falling ? -1 : 1;
      order.sort((a, b) => {
        const [x, y] = [of(a), of(b)];
        const none = (v) => v === null || v === undefined || v === '' || Number.isNaN(v);
        if (none(x) || none(y)) return none(x) - none(y);
        return sign * (typeof x === 'number' && typeof y === 'number'
            ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true}));
      });
    }
    body.replaceChildren(...order.map((row) => element('tr', {}, ...columns.map((column) => {
      const value = column.value(row);
      const shown = column.show ? column.show(value, row)
          : typeof value === 'number' ? number(value) : value ?? '–';
      const style = column.number ? 'number' : column.wide ? 'wide' : false;
      return element('td', {class: style, title: column.wide ? value : false}, shown);
    }))));
    heads.forEach((head, index) => {
      if (index === sorted) head.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }
  function sort(index) {
    falling = sorted === index ? !falling : columns[index].number;
    sorted = index;
    fill();
  }
  fill();
  return element('div', {class: 'scroll', tabindex: 0},
                 element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body));
}
