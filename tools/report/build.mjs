// Bundles the page of `orrery report` into one file, with a place for the data.
//
//   node build.mjs OUTPUT.html        node_modules lie beside this file, or where NODE_PATH says
//
// tools/scripts/report_page.sh calls it and keeps its result up to date.
import {readFile, rename, writeFile} from 'node:fs/promises';
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const modules = process.env.NODE_PATH ?? join(here, 'node_modules');
const {build} = createRequire(join(modules, 'any.js'))('esbuild');

async function bundled(entry) {
  const {outputFiles} = await build({
    entryPoints: [join(here, 'src', entry)],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: 'es2020',
    nodePaths: [modules],
    legalComments: 'inline',  // The licenses of what is bundled stay in the page.
  });
  return outputFiles[0].text;
}

const output = process.argv[2];
const [page, script, style, notice] = await Promise.all(
    [readFile(join(here, 'page.html'), 'utf8'), bundled('main.js'), bundled('style.css'),
     readFile(join(modules, 'echarts', 'NOTICE'), 'utf8')]);
// "</script" inside a string would end the element.
const safe = script.replaceAll('</script', '<\\/script');
const html = page.replace('<!--NOTICE-->', () => `<!-- ${notice.trim()} -->`)
    .replace('/*STYLE*/', () => style).replace('/*SCRIPT*/', () => safe);
await writeFile(output + '.new', html);
await rename(output + '.new', output);
