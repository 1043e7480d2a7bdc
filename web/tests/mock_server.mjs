// A server that speaks the wire formats of redline serve, with canned answers, for the tests and for development.
//   node tests/mock_server.mjs [--watch]     serves the page of the sources at port 8099
import { createServer } from 'node:http';
import { once } from 'node:events';
import { deflateSync, crc32 } from 'node:zlib';
import { bundle } from '../build.mjs';

/** As in src/server/web_bundle.h. */
export const kPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; manifest-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const types = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml', png: 'image/png', txt: 'text/plain; charset=utf-8', webmanifest: 'application/manifest+json' };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const pieces = (text) => text.match(/\s*\S+|\s+/g) ?? [];

export const kMarkdown = `A suspension bridge hangs its weight from **cables**, and the cables hand it to the towers. Three parts share the work:

| Part | Carries | In |
|:--|:--|--:|
| Deck | traffic and itself | bending |
| Hangers | the deck | tension |
| Main cable | everything | tension |

The cable takes the shape of a *parabola* when the load is even along the deck. In code:

\`\`\`python
def sag(width, load, tension):
    """The depth of the cable in the middle, in metres."""
    return load * width**2 / (8 * tension)  # half a parabola

print(f"{sag(1280, 150e3, 4.2e8):.1f} m")
\`\`\`

1. Push the towers **down**, not over.
2. Anchor both ends, or everything slides to the middle.
   - rock is best
   - a concrete block does
3. ~~Hope for no wind.~~ Stiffen the deck.

> A bridge that may bend a little does not break at once.

- [x] cables
- [ ] deck <script>alert(1)</script>
`;

/** A picture of one shape, so that previews differ: PNG by hand. */
export function png(size, seed, share) {
  const rows = Buffer.alloc((size * 3 + 1) * size);
  const hue = (seed * 47) % 360;
  const color = (h, l) => [0, 8, 4].map((n) => Math.round(255 * (l - 0.35 * Math.min(l, 1 - l) * 2 * Math.max(-1, Math.min(((n + h / 30) % 12) - 3, 9 - ((n + h / 30) % 12), 1)))));
  const ground = color(hue, 0.86);
  const shape = color((hue + 170) % 360, 0.45);
  const r = size * (0.22 + 0.06 * (seed % 3));
  const cx = size * (0.38 + 0.05 * (seed % 5));
  for (let y = 0; y < size; ++y)
    for (let x = 0; x < size; ++x) {
      const d = seed % 2 ? Math.hypot(x - cx, y - size * 0.52) : Math.max(Math.abs(x - cx), Math.abs(y - size * 0.52));
      const clean = d < r ? shape : y > size * 0.8 ? color(hue, 0.7) : ground;
      let noise = (((x * 7919 + y * 104729 + seed * 31) * 2654435761) >>> 0) % 256;
      const at = y * (size * 3 + 1) + 1 + x * 3;
      for (let c = 0; c < 3; ++c) {
        rows[at + c] = clean[c] * share + noise * (1 - share);
        noise = (noise * 37) % 256;
      }
    }
  const part = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length);
    body.copy(out, 4);
    out.writeUInt32BE(crc32(body), body.length + 4);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  head.set([8, 2], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), part('IHDR', head), part('IDAT', deflateSync(rows)), part('IEND', Buffer.alloc(0))]);
}

const story =
  ' there lived a small grey cat named Mimi. Every evening she sat by the window and watched the boats come home. One night the ' +
  'lamp of the lighthouse went out, and no boat could find its way. Mimi ran up the hundred steps, and her eyes shone like two ' +
  'little moons over the water.';
const instead = { cat: ['dog', 'fox', 'girl', 'bird'], boats: ['ships', 'birds', 'waves'], lighthouse: ['house', 'tower', 'harbour'] };

export class MockServer {
  constructor(files) {
    this.files = files;
    this.reset();
  }

  reset() {
    /** What the next requests are answered with; tests change it. */
    Object.assign(this, {
      piece_ms: 15, text: kMarkdown, reasoning: '', finish: 'stop', failures: [], hasTemplate: true, hasPictures: true, step_ms: 60,
      key: '', picture: png, hasEngine: true, hasPredictions: true, load: null, breakAfter: 0, mayBreak: null,
    });
    this.requests = [];
    this.canceled = [];
    this.predictions = new Map();
    this.stats = { prompt: 0, cached: 0, generated: 0, steps: 0, seconds: 0, bound: 0, running: 0, waiting: 0, finished: 0 };
  }

  async listen(port = 0) {
    this.server = createServer((q, a) => this.handle(q, a).catch((e) => (console.error(e), a.destroy())));
    this.server.listen(port, '127.0.0.1');
    await once(this.server, 'listening');
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
    return this;
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  json(answer, value, status = 200, headers = {}) {
    answer.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    answer.end(JSON.stringify(value));
  }

  fail(answer, status, message, code, headers = {}, param = null) {
    this.json(answer, { error: { message, type: 'error', param, code } }, status, headers);
  }

  models() {
    const text = (id, capabilities, meta) => ({ id, object: 'model', created: 1, owned_by: 'redline', max_model_len: 4096, meta: { ...meta, capabilities } });
    const list = [
      text('qwen2.5-0.5b', this.hasTemplate ? ['chat', 'completion'] : ['completion'], { architecture: 'qwen2', n_params: 494032768, weight_types: 'f32 x121, q4_k x157, q6_k x12' }),
      { id: 'qwen2.5-0.5b:tolstoy', object: 'model', parent: 'qwen2.5-0.5b' },
      { id: 'qwen2.5-0.5b:shout', object: 'model', parent: 'qwen2.5-0.5b' },
      text('redline-tales', ['completion'], { architecture: 'llama', n_params: 7300000, weight_types: 'bf16 x57' }),
    ];
    if (this.hasPictures) {
      const image = { width: 128, height: 128, steps: 20, guidance: 4, max_side: 512, multiple: 16, caches: ['auto', 'none', 'fbcache:threshold=0.1'] };
      list.push({ id: 'redline-shapes', object: 'model', meta: { capabilities: ['image'], image } });
    }
    return { object: 'list', data: list };
  }

  engine() {
    const s = this.stats;
    if (this.load) this.load(s);
    return {
      object: 'engine', time: performance.now() / 1000, uptime_s: performance.now() / 1000 + 7300,
      machine: { cpu: 'AMD EPYC 9354', isa: 'avx512_bf16', threads: 2 },
      models: [{
        id: 'qwen2.5-0.5b', running: s.running, waiting: s.waiting, max_running: 32, preemptions: s.preemptions ?? 0, prompt_tokens: s.prompt,
        cached_prompt_tokens: s.cached, generated_tokens: s.generated, steps: s.steps, step_seconds: s.seconds, bound_seconds: s.bound,
        requests_finished: { stop: s.finished, length: s.long ?? 0, cancelled: 0, context: 0, timeout: 0 }, requests_failed: 0,
        cache_pages_used: s.used ?? s.running * 6, cache_pages_stored: s.stored ?? 90, cache_pages: 512, page_tokens: 32,
      }],
    };
  }

  metrics() {
    return this.engine().models.map((m) => {
      const name = `model_name="${m.id}"`;
      return [
        '# TYPE vllm:num_requests_running gauge', `vllm:num_requests_running{${name}} ${m.running}`, `vllm:num_requests_waiting{${name}} ${m.waiting}`,
        `vllm:prompt_tokens_total{${name}} ${m.prompt_tokens}`, `vllm:prefix_cache_hits_total{${name}} ${m.cached_prompt_tokens}`,
        `vllm:generation_tokens_total{${name}} ${m.generated_tokens}`, `vllm:request_success_total{${name},finished_reason="stop"} ${m.requests_finished.stop}`,
        `redline:steps_total{${name}} ${m.steps}`, `redline:step_seconds_total{${name}} ${m.step_seconds}`,
        `redline:cache_pages{${name},state="used"} ${m.cache_pages_used}`, `redline:cache_pages{${name},state="all"} ${m.cache_pages}`, '',
      ].join('\n');
    }).join('');
  }

  async handle(request, answer) {
    const url = new URL(request.url, this.url);
    let body = '';
    for await (const chunk of request) body += chunk;
    const data = body ? JSON.parse(body) : null;
    if (url.pathname.startsWith('/v1')) this.requests.push({ method: request.method, path: url.pathname, body: data });
    if (request.method === 'GET' && this.file(url.pathname, answer)) return;
    if (this.key && request.headers.authorization !== `Bearer ${this.key}`) return this.fail(answer, 401, 'the API key is missing or wrong', 'invalid_api_key');
    if (url.pathname === '/v1/models') return this.json(answer, this.models());
    if (url.pathname === '/v1/engine' && this.hasEngine) return this.json(answer, this.engine());
    if (url.pathname === '/metrics') return answer.end(this.metrics());
    const failure = request.method === 'POST' && this.failures.shift();
    if (failure) return this.fail(answer, failure.status, failure.message, failure.code, failure.headers);
    if (url.pathname === '/v1/chat/completions' && this.hasTemplate) return this.chat(data, request, answer);
    if (url.pathname === '/v1/completions') return this.complete(data, request, answer);
    if (url.pathname === '/v1/images/generations')
      return this.json(answer, { created: 1, data: Array.from({ length: data.n ?? 1 }, (_, i) => ({ b64_json: png(64, i + 1, 1).toString('base64') })) });
    if (url.pathname.startsWith('/v1/predictions') && this.hasPredictions) return this.predict(url.pathname.split('/').slice(3), data, request, answer);
    this.fail(answer, 404, `there is no path ${url.pathname}`, 'not_found');
  }

  file(path, answer) {
    const name = path === '/' ? 'index.html' : path.slice(1);
    const bytes = this.files.get(name);
    if (!bytes) return false;
    answer.writeHead(200, { 'Content-Type': types[name.split('.').pop()], 'Content-Security-Policy': kPolicy, 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-cache' });
    answer.end(bytes);
    return true;
  }

  usage(prompt, tokens) {
    const cached = Math.max(0, prompt - 14);
    Object.assign(this.stats, { prompt: this.stats.prompt + prompt, cached: this.stats.cached + cached, finished: this.stats.finished + 1 });
    return { prompt_tokens: prompt, completion_tokens: tokens, total_tokens: prompt + tokens, prompt_tokens_details: { cached_tokens: cached, cache_miss: 'not_stored' } };
  }

  /** `each` makes the events of a piece. */
  async stream(request, answer, list, each, end) {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });
    let isGone = false;
    answer.on('close', () => {
      if (!answer.writableEnded) this.canceled.push(request.url);
      isGone = true;
    });
    ++this.stats.running;
    const send = (value) => answer.write(`data: ${JSON.stringify(value)}\n\n`);
    let count = 0;
    for (const piece of list) {
      await pause(this.piece_ms);
      if (isGone) break;
      if (this.breakAfter && ++count > this.breakAfter) {
        await this.mayBreak;
        answer.destroy();
        break;
      }
      ++this.stats.generated;
      ++this.stats.steps;
      this.stats.seconds += 0.012;
      this.stats.bound += 0.009;
      send(each(piece));
      if (count % 7 === 3) answer.write(': ping\n\n');
    }
    --this.stats.running;
    if (isGone || answer.destroyed) return;
    for (const value of end) send(value);
    answer.end('data: [DONE]\n\n');
  }

  async chat(data, request, answer) {
    const isContinued = data.continue_final_message === true;
    const chunk = (delta, finish_reason = null) => ({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: data.model, choices: [{ index: 0, delta, finish_reason }] });
    const thought = pieces(this.reasoning);
    const text = pieces(isContinued ? ' And so it goes on.' : typeof this.text === 'function' ? this.text(data) : this.text);
    const usage = this.usage(Math.ceil(JSON.stringify(data.messages).length / 4), thought.length + text.length);
    await this.stream(request, answer, [...thought.map((reasoning_content) => ({ reasoning_content })), ...text.map((content) => ({ content }))], (d) => chunk(d), [
      chunk({}, isContinued ? 'stop' : this.finish),
      { id: 'chatcmpl-1', object: 'chat.completion.chunk', choices: [], usage },
    ]);
  }

  async complete(data, request, answer) {
    const list = pieces(/Mimi/.test(data.prompt) ? ' She purred, and the boats came home one by one.' : story).slice(0, data.max_tokens);
    const logprobs = (piece) => {
      const word = piece.trim().replace(/[.,]/g, '');
      const p = instead[word] ? 0.31 : 0.35 + 0.6 * ((word.length * 7) % 10) / 10;
      const top = { [piece]: Math.log(p) };
      (instead[word] ?? ['the', 'a']).forEach((w, i) => (top[` ${w}`] = Math.log((1 - p) * 0.45 ** (i + 1))));
      return { tokens: [piece], token_logprobs: [Math.log(p)], top_logprobs: [top], text_offset: [0] };
    };
    const usage = this.usage(Math.ceil(data.prompt.length / 4), list.length);
    const chunk = (text, extra) => ({ id: 'cmpl-1', object: 'text_completion', created: 1, model: data.model, choices: [{ index: 0, text, logprobs: null, finish_reason: null, ...extra }] });
    await this.stream(request, answer, list, (piece) => chunk(piece, data.logprobs ? { logprobs: logprobs(piece) } : {}), [
      chunk('', { finish_reason: 'length' }),
      { ...chunk(''), choices: [], usage },
    ]);
  }

  async predict([id, act], data, request, answer) {
    const view = (p) => ({ id: p.id, model: p.model, status: p.status, output: p.output, seeds: p.seeds, error: p.error ?? null, metrics: { total_s: 1.9, executed_share: 0.62 } });
    if (!id) {
      const p = { id: `p${this.predictions.size + 1}`, model: data.model, status: 'processing', step: 0, input: data.input, begin: Date.now() };
      this.predictions.set(p.id, p);
      void this.work(p);
      return this.json(answer, view(p), 201);
    }
    const p = this.predictions.get(id);
    if (!p) return this.fail(answer, 404, 'there is no such prediction', 'not_found');
    if (act === 'cancel') {
      p.status = 'canceled';
      return this.json(answer, view(p));
    }
    if (act !== 'events') return this.json(answer, view(p));
    answer.writeHead(200, { 'Content-Type': 'text/event-stream' });
    answer.write('event: queue\ndata: {"position": 1}\n\n');
    for (let seen = 0; p.status === 'processing' && !answer.destroyed; await pause(10)) {
      if (p.step === seen) continue;
      seen = p.step;
      const previews = Array.from({ length: p.input.batch }, (_, i) => `data:image/png;base64,${this.picture(64, p.input.seed + i, p.step / p.steps).toString('base64')}`);
      answer.write(`event: progress\ndata: ${JSON.stringify({ step: p.step, steps: p.steps, step_ms: this.step_ms, computed: 1, previews })}\n\n`);
    }
    answer.end(`event: done\ndata: ${JSON.stringify(view(p))}\n\n`);
  }

  async work(p) {
    p.steps = p.input.steps ?? 20;
    for (p.step = 0; p.step < p.steps && p.status === 'processing'; ) {
      await pause(this.step_ms);
      ++p.step;
    }
    if (p.status !== 'processing') return;
    p.seeds = Array.from({ length: p.input.batch }, (_, i) => p.input.seed + i);
    p.output = p.seeds.map((s) => `data:image/png;base64,${this.picture(256, s, 1).toString('base64')}`);
    p.status = 'succeeded';
  }
}

if (process.argv[1]?.endsWith('mock_server.mjs')) {
  const server = new MockServer(await bundle({ plain: true }));
  if (process.argv.includes('--watch')) setInterval(async () => (server.files = await bundle({ plain: true }).catch(() => server.files)), 1500);
  await server.listen(8099);
  console.log(server.url);
}
