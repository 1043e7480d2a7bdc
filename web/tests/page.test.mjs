// The page in headless Chromium, against a mock of the server.
//   REDLINE_CHROMIUM=/path/to/chromium npm test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, afterEach, test } from 'node:test';
import axe from 'axe-core';
import { bundle } from '../build.mjs';
import { executablePath, launch, openPage } from './browser.mjs';
import { kMarkdown, MockServer } from './mock_server.mjs';

const skip = executablePath ? false : 'no Chromium is installed; REDLINE_CHROMIUM names one';
const check = (name, run) => test(name, { skip, timeout: 60000 }, run);

let files, browser, server, context, page, problems;

before(async () => {
  if (skip) return;
  files = await bundle();
  browser = await launch();
});
after(async () => browser?.close());

beforeEach(async () => {
  if (skip) return;
  server = await new MockServer(files).listen();
  server.piece_ms = 1;
  server.step_ms = 15;
  await open();
});
afterEach(async () => {
  if (skip) return;
  await context.close();
  await server.close();
  // Includes violations of the content security policy and of trusted types.
  assert.deepEqual(problems, []);
});

async function open(options = {}, script) {
  await context?.close();
  ({ context, page, problems } = await openPage(browser, server.url, options, script));
}

const button = (name, from = page) => from.getByRole('button', { name, exact: typeof name === 'string' });
const field = () => page.getByLabel('Message', { exact: true });
const last = () => page.locator('.message.last');
async function ask(text) {
  await field().fill(text);
  await field().press('Enter');
}
async function answered(count = 1) {
  await page.waitForFunction((n) => document.querySelectorAll('.message.assistant').length >= n && !document.querySelector('.message.live'), count);
}
const posted = (path = '/v1/chat/completions') => server.requests.filter((r) => r.path === path && r.method === 'POST').map((r) => r.body);

check('an answer streams as Markdown, and nothing in it becomes HTML', async () => {
  server.text = `${kMarkdown}\n![a](${server.url}leak.png) [b](javascript:alert(1)) [c](https://example.com) <img src=x onerror=alert(1)> &amp; &#x41;\n`;
  await ask('How?');
  await answered();
  const body = last().locator('.message-body');
  assert.equal(await body.locator('table tbody tr').count(), 3);
  assert.equal(await body.locator('pre .t-keyword').first().innerText(), 'def');
  assert.equal(await body.locator('del').innerText(), 'Hope for no wind.');
  assert.equal(await body.locator('script, img, iframe, [onerror]').count(), 0);
  assert.deepEqual(await body.locator('a').evaluateAll((l) => l.map((a) => a.getAttribute('href'))), [`${server.url}leak.png`, 'https://example.com/'.replace(/\/$/, '')]);
  assert.match(await body.innerText(), /<img src=x onerror=alert\(1\)> & A/);
  await button('Copy code').click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def sag\(/);
  assert.ok(!server.requests.some((r) => r.path.includes('leak')));
});

check('speed and reused tokens are shown', async () => {
  server.text = 'one two three four';
  await ask('A question that is long enough to have something in the cache, word after word after word?');
  await answered();
  const stats = await last().locator('.stats').innerText();
  assert.match(stats, /4 tokens/);
  assert.match(stats, /tok\/s/);
  assert.match(stats, /\d+ of \d+ reused/);
});

check('the type of most weights is shown, not that of the norms', async () => {
  server.text = 'ok';
  await ask('x');
  await answered();
  assert.equal(await last().locator('.what').innerText(), '494M · q4_k');
});

check('reasoning is folded, whether the server splits it or not', async () => {
  server.reasoning = 'Let me think.';
  server.text = 'Yes.';
  await ask('Is it?');
  await answered();
  assert.equal(await last().locator('.reasoning').getAttribute('open'), null);
  assert.equal((await last().locator('.message-body > .prose').innerText()).trim(), 'Yes.');
  server.reasoning = '';
  server.text = '<think>Hidden.</think>\n\nNo.';
  await ask('Is it not?');
  await answered(2);
  assert.equal((await last().locator('.message-body > .prose').innerText()).trim(), 'No.');
  await last().locator('summary').click();
  assert.match(await last().locator('.reasoning-text').innerText(), /Hidden/);
});

check('stop ends the work of the server, and go on continues the same answer', async () => {
  server.piece_ms = 40;
  await ask('Something long');
  await last().locator('.prose').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Stopped.').waitFor();
  await page.waitForTimeout(150);
  assert.deepEqual(server.canceled, ['/v1/chat/completions']);
  server.piece_ms = 1;
  await button('Go on').click();
  await answered();
  const body = posted().pop();
  assert.equal(body.continue_final_message, true);
  assert.equal(body.messages.at(-1).role, 'assistant');
  assert.match(await last().innerText(), /And so it goes on\./);
});

check('edit and answer again make versions, and a reload keeps them', async () => {
  server.text = (data) => `You said: ${data.messages.at(-1).content}`;
  await ask('first');
  await answered();
  await ask('second');
  await answered(2);
  await last().hover();
  await button('Answer again', last()).click();
  await answered(2);
  assert.match(await last().locator('.branches').innerText(), /2\/2/);
  const question = page.locator('.message.user').first();
  await question.hover();
  await button('Edit', question).click();
  await page.getByLabel('Edit your message').fill('changed');
  await button('Send', page.locator('.edit')).click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2 && !document.querySelector('.message.live'));
  assert.match(await last().innerText(), /You said: changed/);
  assert.deepEqual(posted().at(-1).messages, [{ role: 'user', content: 'changed' }]);
  await question.hover();
  await button('Previous version', question).click();
  await page.getByText('You said: second').waitFor();
  await page.waitForTimeout(100);
  await page.reload();
  await page.getByText('You said: second').waitFor();
  assert.match(await page.locator('.message.user').first().locator('.branches').innerText(), /1\/2/);
  assert.match(await last().locator('.branches').innerText(), /2\/2/);
});

check('a reload while an answer is written keeps what is there', async () => {
  server.piece_ms = 60;
  await ask('Slowly');
  await last().locator('.prose').waitFor();
  await page.waitForTimeout(1600);
  await page.reload();
  await page.getByText('The connection broke').waitFor();
  assert.match(await last().innerText(), /A suspension bridge/);
  await button('Start over').waitFor();
});

check('the server goes and comes back', async () => {
  server.text = 'Here.';
  await ask('one');
  await answered();
  const { port } = server;
  await server.close();
  await ask('two');
  await page.getByText('The server is gone.').waitFor();
  await button('Try again').waitFor();
  server = await new MockServer(files).listen(port);
  server.text = 'Back.';
  await page.getByText('The server is gone.').waitFor({ state: 'detached' });
  await button('Try again').click();
  await page.getByText('Back.').waitFor();
  assert.deepEqual(posted().at(-1).messages.map((m) => m.content), ['one', 'Here.', 'two']);
});

check('a connection that breaks in the middle keeps the beginning', async () => {
  server.breakAfter = 5;
  let goOn;
  server.mayBreak = new Promise((resolve) => (goOn = resolve));  // once the page shows the beginning
  await ask('x');
  await page.getByText('A suspension').first().waitFor();
  goOn();
  await page.getByText('The connection broke', { exact: true }).waitFor();
  server.breakAfter = 0;
  assert.match(await last().innerText(), /A suspension/);
  await button('Go on from here').click();
  await page.getByText('And so it goes on.').waitFor();
});

check('a full queue is waited for, a full context and other errors are told', async () => {
  server.failures = [{ status: 429, message: 'the queue is full: 64 requests', code: 'rate_limit_exceeded', headers: { 'Retry-After': '1' } }];
  server.text = 'Now.';
  await ask('x');
  await page.getByText(/the queue is full: 64 requests Trying again in/).waitFor();
  await page.getByText('Now.').waitFor();
  server.failures = [{ status: 400, message: 'the prompt has 5000 tokens; the context holds 4096', code: 'context_length_exceeded' }];
  await ask('too much');
  await page.getByText('The context is full').waitFor();
  assert.match(await last().innerText(), /5000 tokens; the context holds 4096/);
  await button('Go on in a new chat').click();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 2 && !document.querySelector('.message.live'));
  assert.deepEqual(posted().at(-1).messages, [{ role: 'user', content: 'too much' }]);
  server.failures = [{ status: 400, message: 'top_k is too large', code: 'invalid_value' }];
  await ask('y');
  await page.getByText('top_k is too large').waitFor();
});

check('a server with keys asks for one', async () => {
  server.key = 'secret';
  await page.reload();
  await page.getByLabel('API key').fill('secret');
  await button('Connect').click();
  await page.getByText('Connected').first().waitFor();
  server.text = 'Welcome.';
  await ask('x');
  await page.getByText('Welcome.').waitFor();
});

check('only what was set is sent: sampling, adapters, system prompt', async () => {
  server.text = 'ok';
  await ask('x');
  await answered();
  assert.deepEqual(Object.keys(posted()[0]).sort(), ['messages', 'model', 'stream', 'stream_options']);
  await button('Settings of this chat').click();
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Seed').fill('7');
  await page.getByText('More samplers').click();
  await page.getByLabel('DRY', { exact: true }).fill('0.8');
  await page.getByLabel('Mirostat', { exact: true }).fill('2');
  await page.getByLabel('Stop strings, one per line').fill('END\nSTOP');
  await page.getByLabel('System prompt').fill('Be brief.');
  await page.getByLabel('tolstoy').check();
  await page.getByLabel('Weight of tolstoy').fill('0.5');
  await ask('y');
  await answered(2);
  const body = posted()[1];
  assert.equal(body.temperature, 0.5);
  assert.equal(body.seed, 7);
  assert.equal(body.dry_multiplier, 0.8);
  assert.equal(body.mirostat, 2);
  assert.deepEqual(body.stop, ['END', 'STOP']);
  assert.deepEqual(body.lora, [{ name: 'tolstoy', scale: 0.5 }]);
  assert.deepEqual(body.messages[0], { role: 'system', content: 'Be brief.' });
  assert.ok(!('top_p' in body) && !('xtc_probability' in body));
  await button('Reset Temperature').click();
  await ask('z');
  await answered(3);
  assert.ok(!('temperature' in posted()[2]));
});

check('text files are picked, dropped and pasted', async () => {
  server.text = 'ok';
  await page.locator('.composer input[type=file]').setInputFiles([{ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('alpha') }, { name: 'b.bin', mimeType: 'application/x', buffer: Buffer.from([0, 1, 2]) }]);
  await page.getByText('b.bin is not a text file.').waitFor();
  for (const [event, type] of [['paste', 'ClipboardEvent'], ['drop', 'DragEvent']])
    await page.evaluate(([event, type]) => {
      const data = new DataTransfer();
      if (event === 'paste') data.setData('text/plain', 'long '.repeat(2000));
      else data.items.add(new File(['```\nbeta'], 'c.md'));
      const init = { bubbles: true, cancelable: true, [event === 'paste' ? 'clipboardData' : 'dataTransfer']: data };
      document.querySelector('.composer textarea').dispatchEvent(new window[type](event, init));
    }, [event, type]);
  await page.locator('.chip').nth(2).waitFor();
  await ask('read');
  await answered();
  const [{ content }] = posted()[0].messages;
  assert.match(content, /^File a\.txt:\n```\nalpha\n```/);
  assert.match(content, /File pasted-2\.txt:/);
  assert.match(content, /File c\.md:\n````\n```\nbeta\n````\n\nread$/);
});

check('conversations are found, renamed, deleted, saved and loaded', async () => {
  server.text = (d) => `About ${d.messages.at(-1).content}.`;
  for (const q of ['apples', 'pears']) {
    await button('New chat').click();
    await ask(q);
    await page.getByText(`About ${q}.`).waitFor();
  }
  await page.keyboard.press('Control+k');
  await page.keyboard.type('about app');
  await page.waitForFunction(() => document.querySelectorAll('.entries li').length === 1);
  await page.getByLabel('Search conversations').fill('');
  await page.getByRole('link', { name: 'pears' }).hover();
  await button('Menu of pears').click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  await page.getByLabel('New title').fill('Fruit');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'Fruit' }).hover();
  await button('Menu of Fruit').click();
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: 'Save as JSON' }).click()]);
  const text = readFileSync(await saved.path(), 'utf8');
  assert.equal(JSON.parse(text).chats[0].title, 'Fruit');
  await page.getByRole('link', { name: 'Fruit' }).hover();
  await button('Menu of Fruit').click();
  const [markdown] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: 'Save as Markdown' }).click()]);
  assert.match(readFileSync(await markdown.path(), 'utf8'), /^# Fruit\n\n## You\n\npears\n\n## qwen2\.5-0\.5b\n\nAbout pears\.\n$/);
  const remove = async () => {
    await page.getByRole('link', { name: 'Fruit' }).hover();
    await button('Menu of Fruit').click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('link', { name: 'Fruit' }).waitFor({ state: 'detached' });
  };
  await remove();
  await button('Undo').click();
  await remove();
  await page.reload();
  await page.getByRole('link', { name: 'apples' }).waitFor();
  assert.equal(await page.locator('.entries li').count(), 1);
  await page.locator('.list-foot input').setInputFiles({ name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  await page.getByRole('link', { name: 'Fruit' }).click();
  await page.getByText('About pears.').waitFor();
});

check('what was deleted stays deleted, however soon the page is loaded again', async () => {
  // A disk that takes its time: the transaction of a deletion has much to read first.
  await open({}, () => {
    const remove = IDBObjectStore.prototype.delete;
    IDBObjectStore.prototype.delete = function (key) {
      for (let i = 0; i < 5000; ++i) this.getAllKeys();
      return remove.call(this, key);
    };
  });
  server.text = 'Gone soon.';
  for (const q of ['apples', 'pears']) {
    await button('New chat').click();
    await ask(q);
    await page.getByText('Gone soon.').waitFor();
  }
  await page.getByRole('link', { name: 'pears' }).hover();
  await button('Menu of pears').click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('link', { name: 'pears' }).waitFor({ state: 'detached' });
  await page.reload();
  await page.getByRole('link', { name: 'apples' }).waitFor();
  assert.equal(await page.locator('.entries li').count(), 1);
});

check('without IndexedDB conversations are kept elsewhere', async () => {
  await open({}, () => Object.defineProperty(window, 'indexedDB', { value: undefined }));
  server.text = 'Kept.';
  await ask('x');
  await page.getByText('Kept.').waitFor();
  await page.waitForTimeout(150);
  await page.reload();
  await page.getByText('Kept.').waitFor();
});

check('a base model writes on', async () => {
  server.piece_ms = 2;
  server.hasTemplate = false;
  await page.reload();
  const paper = page.getByLabel('Text', { exact: true });
  await paper.fill('Once upon a time,');
  await paper.press('Tab');
  await button('Write on').waitFor();
  await page.waitForFunction(() => document.querySelector('.paper textarea').value.endsWith('over the water.'));
  const body = posted('/v1/completions')[0];
  assert.equal(body.prompt, 'Once upon a time,');
  assert.equal(body.max_tokens, 120);
  assert.match(await page.locator('.write-foot').innerText(), /tok\/s/);
  // What else it thought of.
  await paper.evaluate((a) => {
    const i = a.value.indexOf(' cat') + 3;
    a.setSelectionRange(i, i);
    a.dispatchEvent(new Event('select', { bubbles: true }));
  });
  await button(/^fox/).click();
  await page.waitForFunction(() => /grey fox there lived/.test(document.querySelector('.paper textarea').value) && !document.querySelector('.nib'));
  assert.match(posted('/v1/completions')[1].prompt, /a small grey fox$/);
  await button('Another').click();
  await page.getByText('2/2').waitFor();
  await page.waitForFunction(() => !document.querySelector('.nib'));
  await paper.press('Control+z');
  assert.match(await paper.inputValue(), /a small grey fox$/);
  // A person's words are theirs, in the middle too.
  await paper.evaluate((a) => {
    a.setRangeText('hot', a.value.indexOf('small'), a.value.indexOf('small') + 5, 'end');
    a.dispatchEvent(new Event('input', { bubbles: true }));
  });
  assert.deepEqual(await page.locator('.ink > span').evaluateAll((l) => l.filter((s) => s.textContent.includes('hot')).map((s) => s.className)), ['']);
  assert.equal(await page.locator('.ink').innerText().then((t) => t.replace('\u200b', '')), await paper.inputValue());
  await page.waitForTimeout(100);
  const text = await paper.inputValue();
  await page.reload();
  await page.waitForFunction((t) => document.querySelector('.paper textarea')?.value === t, text);
});

check('a server without chat says so, and the page turns to writing', async () => {
  server.models = () => ({ data: [{ id: 'old', object: 'model' }] });
  server.hasTemplate = false;
  await page.reload();
  await ask('hello');
  await page.getByText(/has no chat template/).waitFor();
  await button('Open a page').click();
  await page.getByText('Write a beginning.').waitFor();
});

check('a picture is previewed, kept, and the start of another', async () => {
  await page.getByRole('link', { name: 'Pictures' }).click();
  await page.getByLabel('Prompt', { exact: true }).fill('a red circle');
  await page.getByLabel('Seed').fill('5');
  await page.getByLabel('Pictures', { exact: true }).fill('2');
  await page.getByRole('radio', { name: /Wide/ }).check();
  await page.getByText('Model, steps and cache').click();
  await page.getByLabel('Step cache').selectOption('none');
  await button('Paint 2 pictures').click();
  await page.locator('.job-pictures img').nth(1).waitFor();
  await page.getByText(/Step \d+ of 20/).waitFor();
  await page.locator('.gallery li').nth(1).waitFor();
  const [{ model, input }] = posted('/v1/predictions');
  assert.equal(model, 'redline-shapes');
  assert.deepEqual(input, { prompt: 'a red circle', width: 176, height: 96, batch: 2, seed: 5, cache: 'none' });
  await page.reload();
  await page.locator('.gallery button').nth(1).click();
  const dialog = page.getByRole('dialog');
  assert.match(await dialog.innerText(), /Seed\s+6/);
  const [saved] = await Promise.all([page.waitForEvent('download'), button('Download', dialog).click()]);
  assert.equal(saved.suggestedFilename(), 'redline-6.png');
  await button('Start from it', dialog).click();
  await page.getByLabel('Pictures', { exact: true }).fill('1');
  await button('Paint').click();
  await page.locator('.gallery li').nth(2).waitFor();
  assert.match(posted('/v1/predictions')[1].input.image, /^data:image\/png;base64,/);
  assert.equal(posted('/v1/predictions')[1].input.strength, 0.7);
  server.step_ms = 200;
  await button('Paint').click();
  await button('Cancel').click();
  await page.locator('.job').waitFor({ state: 'detached' });
  await page.waitForTimeout(100);
  assert.equal(server.predictions.get('p3').status, 'canceled');
});

check('pictures over the images API, and no tab without a model', async () => {
  server.hasPredictions = false;
  await page.getByRole('link', { name: 'Pictures' }).click();
  await page.getByLabel('Prompt', { exact: true }).fill('a star');
  await button('Paint').click();
  await page.locator('.gallery li').waitFor();
  assert.equal(posted('/v1/images/generations')[0].size, '128x128');
  server.hasPictures = false;
  await page.goto(server.url);
  await page.reload();
  await page.locator('.idea').first().waitFor();
  assert.equal(await page.getByRole('link', { name: 'Pictures' }).count(), 0);
});

const load = (s) => {
  Object.assign(s, { running: 5, waiting: 2, used: 128, stored: 64 });
  s.generated += 50;
  s.prompt += 100;
  s.cached += 60;
  s.steps += 10;
  s.seconds += 0.5;
  s.bound += 0.4;
};

check('the engine room shows rates, pages and the share of the ceiling', async () => {
  server.load = load;
  await page.goto(`${server.url}#/engine`);
  await page.getByRole('img', { name: /of the machine’s ceiling: 80 percent/ }).waitFor();
  await page.getByRole('img', { name: '5 running, 2 waiting' }).waitFor();
  await page.getByRole('img', { name: '128 of 512 pages are used, 64 are stored' }).waitFor();
  await page.getByRole('img', { name: /^Time of a step, ms: mean 50/ }).waitFor();
  assert.equal(await page.locator('.plot').count(), 4);
  const { port } = server;
  await server.close();
  await page.getByText('The engine is out of reach').waitFor();
  server = await new MockServer(files).listen(port);
  await page.getByText('The engine is out of reach').waitFor({ state: 'detached' });
});

check('the engine room reads /metrics where there is nothing else', async () => {
  server.hasEngine = false;
  server.load = load;
  await page.goto(`${server.url}#/engine`);
  await page.getByRole('img', { name: /of the time in steps: \d+ percent/ }).waitFor();
  await page.getByRole('img', { name: '128 of 512 pages are used, 0 are stored' }).waitFor();
});

check('the keyboard reaches everything', async () => {
  await page.keyboard.press('Control+/');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('Alt+3');
  await page.getByRole('heading', { name: 'Engine room' }).waitFor();
  await page.keyboard.press('Alt+1');
  await page.keyboard.press('Control+.');
  await page.getByRole('complementary', { name: 'Settings' }).waitFor();
  await page.keyboard.press('Control+.');
  await button(/^Model: /).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await page.getByText('Write a beginning.').waitFor();
});

const visits = [
  ['welcome', async () => page.locator('.idea').first().waitFor()],
  ['chat', async () => (await ask('How?'), await answered(), await page.evaluate(() => document.querySelectorAll('details').forEach((d) => (d.open = true))))],
  ['settings', async () => (await button('Settings of this chat').click(), await page.getByLabel('tolstoy').check())],
  ['menu', async () => (await button('Close settings').click(), await button(/^Model: /).click())],
  ['writing', async () => (await page.goto(`${server.url}#/write`), await page.locator('.beginnings button').first().click(), await page.getByText('words').waitFor(), await page.waitForFunction(() => !document.querySelector('.nib')))],
  ['pictures', async () => {
    await page.goto(`${server.url}#/pictures`);
    await page.getByLabel('Prompt', { exact: true }).fill('a star');
    await button('Paint').click();
    await page.locator('.gallery li').waitFor();
  }],
  ['picture', async () => page.locator('.gallery button').first().click()],
  ['engine', async () => (await page.keyboard.press('Escape'), await page.goto(`${server.url}#/engine`), await page.locator('.plot').nth(3).waitFor(), await page.waitForTimeout(1200))],
];

for (const [theme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]])
  check(`axe finds nothing and nothing is cut off: ${theme}, ${width} pixels wide`, async () => {
    await open({ colorScheme: theme, viewport: { width, height: 800 }, reducedMotion: 'reduce' });
    server.reasoning = 'Hm.';
    for (const [name, visit] of visits) {
      await visit();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name}: ${wide} pixels too wide`);
      await page.evaluate(`if (!window.axe) { ${axe.source} }`);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      assert.deepEqual(violations.map((v) => `${name}: ${v.id}: ${v.nodes.map((n) => `${n.target} ${n.any[0]?.message ?? ''}`).join('; ')}`), []);
    }
    if (width < 500) {
      await button('Back to the chat').click();
      await button('Conversations and views').click();
      await page.getByRole('link', { name: 'How?' }).click();
      await page.locator('.message').first().waitFor();
    }
  });
