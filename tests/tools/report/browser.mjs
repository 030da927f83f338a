// Do reports work in a real browser? Opens the files that report_test.py made in Debian's Chromium,
// without a network.
//
//   node browser.mjs MODULES CHROMIUM FOLDER      FOLDER has plan.html, study.html, replay.html and
//                                                 many_spans.html; screenshots go there, too
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

const [modules, executablePath, folder] = process.argv.slice(2);
const {chromium} = createRequire(join(modules, 'any.js'))('playwright-core');
const browser = await chromium.launch({executablePath, args: ['--no-sandbox', '--disable-gpu']});

async function opened(file, colorScheme = 'light') {
  const context = await browser.newContext({colorScheme, viewport: {width: 1280, height: 900}});
  const page = await context.newPage();
  const problems = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => {
    if (!request.url().startsWith('file:') && !request.url().startsWith('data:')) {
      problems.push(`asked for ${request.url()}`);
    }
  });
  await page.goto(pathToFileURL(join(folder, file)).href);
  await page.waitForSelector('html[data-ready]', {timeout: 60000});
  await page.waitForTimeout(300);
  return {page, problems, close: () => context.close()};
}

const tests = {
  async 'every report opens without errors and without a network, and its charts have marks'() {
    for (const file of ['plan.html', 'study.html', 'replay.html', 'many_spans.html']) {
      const {page, problems, close} = await opened(file);
      await page.screenshot({path: join(folder, file.replace('.html', '.png')), fullPage: true});
      assert.deepEqual(problems, [], `${file}: ${problems.join('; ')}`);
      const empty = await page.$$eval('.chart', (charts) =>
          charts.filter((chart) => chart.querySelectorAll('svg path').length < 10).length);
      assert.equal(empty, 0, `${file}: charts without marks`);
      assert.ok(await page.$$eval('.chart, canvas', (all) => all.length) > 0, file);
      assert.ok(!(await page.innerText('#report')).match(/NaN|undefined|\[object/), file);
      await close();
    }
  },
  async 'the plan is drawn: a square for each GPU, and spans on the timeline'() {
    const {page, close} = await opened('plan.html');
    const gpus = await page.evaluate(() =>
        JSON.parse(document.getElementById('data').textContent).plans[0].nodes
            .reduce((sum, node) => sum + node.gpus.length, 0));
    assert.equal(await page.$$eval('.cluster .gpu', (all) => all.length), gpus);
    assert.ok(await painted(page) > 0.02, 'nothing on the timeline');
    await close();
  },
  async 'the keyboard moves and zooms the timeline and sorts tables'() {
    const {page, close} = await opened('plan.html');
    await page.focus('.timeline canvas');
    const view = () => page.$eval('.timeline canvas', (canvas) => ({...canvas.view}));
    const whole = await view();
    await page.keyboard.press('+');
    const near = await view();
    assert.ok(near.to - near.from < whole.to - whole.from);
    await page.keyboard.press('ArrowRight');
    assert.ok((await view()).from > near.from);
    await page.keyboard.press('Home');
    assert.deepEqual(await view(), whole);
    await close();
    const study = await opened('study.html');
    const heading = study.page.locator('thead button').first();
    const cells = () => study.page.$$eval('section:has(thead) tbody tr td:first-child',
                                          (all) => all.map((cell) => cell.textContent));
    await heading.focus();
    await study.page.keyboard.press('Enter');
    const rising = await cells();
    await study.page.keyboard.press('Enter');
    const falling = await cells();
    assert.notDeepEqual(rising, falling);
    assert.equal(await study.page.$eval('th[aria-sort]', (th) => th.ariaSort), 'descending');
    await study.close();
  },
  async 'the axes of a study can be chosen'() {
    const {page, close} = await opened('study.html');
    const marks = () => page.$eval('.chart', (chart) => chart.innerHTML);
    const before = await marks();
    const up = page.locator('label', {hasText: 'Up'}).locator('select');
    await up.selectOption('mfu');
    assert.notEqual(await marks(), before);
    await close();
  },
  async 'dark mode has dark paper and readable ink'() {
    for (const [scheme, dark] of [['light', false], ['dark', true]]) {
      const {page, problems, close} = await opened('plan.html', scheme);
      const light_of = (name) => page.evaluate((property) => {
        const [r, g, b] = getComputedStyle(document.documentElement)[property].match(/\d+/g).map(Number);
        return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
      }, name);
      const paper = await light_of('backgroundColor');
      const ink = await light_of('color');
      assert.equal(paper < 0.5, dark);
      assert.ok(Math.abs(paper - ink) > 0.6, `${scheme}: ${paper} on ${ink}`);
      if (dark) await page.screenshot({path: join(folder, 'plan_dark.png'), fullPage: true});
      assert.deepEqual(problems, []);
      await close();
    }
  },
  async '50,000 spans stay smooth while one zooms and moves'() {
    const {page, close} = await opened('many_spans.html');
    const spans = await page.evaluate(() =>
        JSON.parse(document.getElementById('data').textContent).plans[0].timeline.spans);
    assert.ok(spans >= 50000);
    await page.focus('.timeline canvas');
    for (const key of ['+', '+', 'ArrowRight', '-', 'ArrowLeft', '+', '+', '+', 'ArrowDown', 'Home']) {
      for (let i = 0; i < 4; ++i) {
        await page.keyboard.press(key);
        await page.evaluate(() => new Promise(requestAnimationFrame));
      }
    }
    const frames = (await page.$eval('.timeline canvas', (canvas) => [...canvas.frames]))
        .sort((a, b) => a - b);
    const median = frames[frames.length >> 1];
    console.log(`${spans} spans: ${frames.length} frames, median ${median.toFixed(1)} ms, ` +
                `slowest ${frames.at(-1).toFixed(1)} ms`);
    // Drawing each span would take some 100 ms; a busy machine may take a few times the usual 5.
    assert.ok(median < 50, `median frame ${median} ms`);
    await close();
  },
  async 'it prints on white paper'() {
    const {page, close} = await opened('plan.html', 'dark');
    const pdf = await page.pdf({format: 'A4', path: join(folder, 'plan.pdf')});
    assert.ok(pdf.length > 20000);
    await close();
  },
};

async function painted(page) {
  return page.$eval('.timeline canvas', (canvas) => {
    const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let colored = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) ++colored;
    }
    return colored / (width * height);
  });
}

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok: ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}
await browser.close();
process.exit(failed > 0 ? 1 : 0);
