// Bundles src/ into dist/, which is committed, so that the program builds without Node.
//   node build.mjs            writes dist/
//   node build.mjs --check    builds in memory and fails where dist/ differs, byte for byte
//   node build.mjs --plain DIRECTORY    uncompressed, with a source map, for the tests and for development
// Script and style sheet are compressed here, by a compressor that the lock file pins, so that the bytes do not depend on
// the version of Node; the server sends them as they are.
import { build } from 'esbuild';
import { gzipSync } from 'fflate';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const copied = ['index.html', 'manifest.webmanifest', 'icon.svg', 'icon-180.png'];

/** Bytes by file name, as the server names them. */
export async function bundle({ plain = false } = {}) {
  const result = await build({
    absWorkingDir: root,
    entryPoints: { app: 'src/main.tsx' },
    bundle: true,
    minify: !plain,
    sourcemap: plain ? 'inline' : false,
    format: 'iife',
    target: ['es2021', 'chrome100', 'firefox102', 'safari15.4'],
    charset: 'utf8',
    legalComments: 'none',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    outdir: 'dist',
    write: false,
    logLevel: 'warning',
  });
  const files = new Map();
  for (const output of result.outputFiles) files.set(output.path.split(/[\\/]/).pop(), Buffer.from(output.contents));
  files.set('licenses.txt', await licenses());
  for (const name of copied) files.set(name, await readFile(join(root, 'src', name)));
  return files;
}

/** Of the packages whose code is in the bundle. */
async function licenses() {
  const texts = [];
  for (const name of ['preact', '@preact/signals', '@preact/signals-core', 'marked', 'prismjs']) {
    const folder = join(root, 'node_modules', name);
    const file = (await readdir(folder)).find((f) => /^licen[sc]e/i.test(f));
    texts.push(`${name}\n\n${(await readFile(join(folder, file), 'utf8')).replace(/\r/g, '').trim()}\n`);
  }
  return Buffer.from(texts.join(`\n${'-'.repeat(80)}\n\n`));
}

/** The same as they lie in dist/: text that is worth it is compressed. */
function packed(files) {
  const out = new Map();
  for (const [name, bytes] of files) {
    if (/\.(js|css|txt)$/.test(name)) out.set(`${name}.gz`, Buffer.from(gzipSync(bytes, { level: 9, mtime: 0 })));
    else out.set(name, bytes);
  }
  return out;
}

async function main([mode, directory]) {
  if (mode === '--plain') {
    await mkdir(directory, { recursive: true });
    for (const [name, bytes] of await bundle({ plain: true })) await writeFile(join(directory, name), bytes);
    return 0;
  }
  const dist = join(root, 'dist');
  const files = packed(await bundle());
  if (mode === '--check') {
    const there = await readdir(dist).catch(() => []);
    const differs = [];
    for (const name of new Set([...files.keys(), ...there])) {
      const old = await readFile(join(dist, name)).catch(() => null);
      if (!old || !files.has(name) || !old.equals(files.get(name))) differs.push(name);
    }
    for (const name of differs) console.log(`web/dist/${name}: is not what the sources build; run npm run build in web/`);
    return differs.length ? 1 : 0;
  }
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  let total = 0;
  for (const [name, bytes] of files) {
    await writeFile(join(dist, name), bytes);
    total += bytes.length;
    console.log(`${String(bytes.length).padStart(8)}  ${name}`);
  }
  console.log(`${String(total).padStart(8)}  bytes in all`);
  return 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
