import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, connection } from '../api';
import { Menu } from '../ui/menu';
import { Icon } from '../ui/icons';
import { Dial, Plot, shortNumber } from './plot';
import { type EngineModel, type Sample, sampleOf, type Snapshot, snapshot } from './snapshot';

const kCapacity = 120;
/** The first minutes are shown wider. */
const kLeastShown = 40;
const kPeriod_ms = 1000;

// The history is kept when the view is closed, so that it shows the last minutes when it is opened again.
const history = signal<Record<string, Sample[]>>({});
const latest = signal<Snapshot | null>(null);
const trouble = signal('');

async function look() {
  try {
    const now = await snapshot();
    const before = latest.value;
    trouble.value = '';
    if (before) {
      const next = { ...history.value };
      for (const m of now.models) {
        const old = before.models.find((b) => b.id === m.id);
        const sample = old && sampleOf(old, m, before.time, now.time);
        if (sample) next[m.id] = [...(next[m.id] ?? []), sample].slice(-kCapacity);
        else if (old && m.steps < old.steps) next[m.id] = [];
      }
      history.value = next;
    }
    latest.value = now;
  } catch (error) {
    if (error instanceof ApiError && error.status === 0) latest.value = null;
    trouble.value = error instanceof Error ? error.message : String(error);
  }
}

function Pages({ m }: { m: EngineModel }) {
  if (!m.cache_pages) return null;
  const cells = 160;
  const used = Math.ceil((m.cache_pages_used / m.cache_pages) * cells);
  const stored = Math.round((m.cache_pages_stored / m.cache_pages) * cells);
  const tokens = (pages: number) => `${(pages * (m.page_tokens || 1)).toLocaleString('en-US')} ${m.page_tokens ? 'tokens' : 'pages'}`;
  return (
    <section class="card pages" aria-label="Pages of the cache">
      <h2>
        Cache pages <small>{shortNumber(m.cache_pages)}{m.page_tokens ? ` pages of ${m.page_tokens} tokens` : ''}</small>
      </h2>
      <svg viewBox="0 0 399 62" role="img" aria-label={`${m.cache_pages_used} of ${m.cache_pages} pages are used, ${m.cache_pages_stored} are stored`}>
        {Array.from({ length: cells }, (_, i) => (
          <rect class={i < used ? 'used' : i < used + stored ? 'stored' : 'free'} x={(i % 40) * 10} y={Math.floor(i / 40) * 16} width={8.5} height={14} rx={2} />
        ))}
      </svg>
      <dl class="page-legend">
        <div class="used">
          <dt>In use</dt>
          <dd>{tokens(m.cache_pages_used)}</dd>
        </div>
        <div class="stored">
          <dt>Kept for reuse</dt>
          <dd>{tokens(m.cache_pages_stored)}</dd>
        </div>
        <div class="free">
          <dt>Free</dt>
          <dd>{tokens(m.cache_pages - m.cache_pages_used - m.cache_pages_stored)}</dd>
        </div>
      </dl>
    </section>
  );
}

function Batch({ m }: { m: EngineModel }) {
  const places = Math.min(Math.max(m.max_running ?? 16, m.running, 8), 64);
  const columns = places <= 16 ? places : places <= 32 ? Math.ceil(places / 2) : 32;
  return (
    <section class="card batch" aria-label="Batch">
      <h2>
        Batch <small>{m.max_running ? `${m.max_running} places` : ''}</small>
      </h2>
      <div class="slots" style={{ gridTemplateColumns: `repeat(${columns}, 1fr)` }} role="img" aria-label={`${m.running} running, ${m.waiting} waiting`}>
        {Array.from({ length: places }, (_, i) => (
          <i class={i < m.running ? 'on' : ''} />
        ))}
      </div>
      <p class="batch-count">
        <b>{m.running}</b> running
        <span class={m.waiting ? 'queue' : 'queue none'}>
          <b>{m.waiting}</b> waiting
          <span class="dots" aria-hidden="true">
            {Array.from({ length: Math.min(m.waiting, 12) }, () => (
              <i />
            ))}
          </span>
        </span>
      </p>
    </section>
  );
}

function Totals({ m, s }: { m: EngineModel; s: Snapshot }) {
  const reused = m.prompt_tokens ? (m.cached_prompt_tokens / m.prompt_tokens) * 100 : 0;
  const finished = Object.entries(m.requests_finished).filter(([, n]) => n > 0);
  const rows: [string, string][] = [
    ['Generated', `${m.generated_tokens.toLocaleString('en-US')} tokens`],
    ['Prompts', `${m.prompt_tokens.toLocaleString('en-US')} tokens, ${reused.toFixed(0)} % reused`],
    ['Steps', m.steps.toLocaleString('en-US')],
    ['Preempted', m.preemptions.toLocaleString('en-US')],
    ['Finished', finished.map(([reason, n]) => `${n.toLocaleString('en-US')} ${reason}`).join(', ') || 'none yet'],
  ];
  if (m.requests_failed) rows.push(['Failed', m.requests_failed.toLocaleString('en-US')]);
  if (s.uptime_s !== undefined) rows.push(['Up for', duration(s.uptime_s)]);
  if (s.machine) rows.push(['Machine', [s.machine.cpu, s.machine.isa, s.machine.threads ? `${s.machine.threads} threads` : ''].filter(Boolean).join(', ')]);
  return (
    <section class="card totals" aria-label="Since the start">
      <h2>Since the start</h2>
      <dl>
        {rows.map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function duration(s: number): string {
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const mean = (list: number[]) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : 0);

export function EngineView() {
  const chosen = useSignal('');
  useEffect(() => {
    let timer = 0;
    let isHere = true;
    const loop = async () => {
      if (!document.hidden) await look();
      if (isHere) timer = window.setTimeout(loop, kPeriod_ms);
    };
    void loop();
    return () => {
      isHere = false;
      clearTimeout(timer);
    };
  }, []);
  const s = latest.value;
  const m = s?.models.find((x) => x.id === chosen.value) ?? s?.models[0];
  const samples = (m && history.value[m.id]) ?? [];
  const recent = samples.slice(-3);
  const rate = mean(recent.map((r) => r.generatedRate));
  const knowsCeiling = m?.bound_seconds !== undefined;
  const active = recent.filter((r) => r.busy > 0.02);
  const share = knowsCeiling ? mean(active.map((r) => r.ceiling ?? 0)) : mean(recent.map((r) => r.busy));
  const pick = (f: (x: Sample) => number | null) => samples.map(f);
  return (
    <div class="engine-view scroller" tabIndex={0} role="region" aria-label="Engine room">
      <div class="engine">
        <header class="page-head">
          <div>
            <h1>Engine room</h1>
            <p>{m ? 'What the machine is doing right now, second by second.' : trouble.value ? '' : 'Looking…'}</p>
          </div>
          {s && s.models.length > 1 && m && (
            <Menu
              label={`Model: ${m.id}`}
              class="model-button framed"
              align="end"
              items={s.models.map((x) => ({ label: x.id, checked: x.id === m.id, act: () => (chosen.value = x.id) }))}
            >
              <span class="model-name">{m.id}</span>
              <Icon name="down" size={14} />
            </Menu>
          )}
        </header>
        {trouble.value && (
          <div class="trouble" role="alert">
            <div>
              <strong>{connection.value === 'gone' ? 'The engine is out of reach' : 'The engine does not answer'}</strong>
              <p>{trouble.value} The plots go on when it is back.</p>
            </div>
          </div>
        )}
        {m && s && (
          <>
            <div class="cards">
              <section class="card speed" aria-label="Speed">
                <Dial
                  share={share}
                  label={knowsCeiling ? 'of the machine’s ceiling' : 'of the time in steps'}
                  value={(share * 100).toFixed(0)}
                  unit="%"
                />
                <div class="now">
                  <p>
                    <b>{shortNumber(rate)}</b> tokens/s written
                  </p>
                  <p>
                    <b>{shortNumber(mean(recent.map((r) => r.promptRate)))}</b> tokens/s read
                  </p>
                  <p>
                    <b>{shortNumber(mean(recent.map((r) => r.reusedRate)))}</b> tokens/s reused
                  </p>
                </div>
              </section>
              <div class="stack">
                <Batch m={m} />
                <Pages m={m} />
              </div>
            </div>
            <div class="plots">
              <section class="card">
                <Plot
                  title="Tokens"
                  unit="/s"
                  capacity={Math.max(kLeastShown, samples.length)}
                  least={10}
                  lines={[
                    { name: 'written', tone: 'a', values: pick((x) => x.generatedRate) },
                    { name: 'read', tone: 'b', values: pick((x) => x.promptRate) },
                    { name: 'reused', tone: 'c', values: pick((x) => x.reusedRate) },
                  ]}
                />
              </section>
              <section class="card">
                <Plot
                  title="Requests"
                  unit=""
                  capacity={Math.max(kLeastShown, samples.length)}
                  least={4}
                  lines={[
                    { name: 'running', tone: 'a', values: pick((x) => x.running) },
                    { name: 'waiting', tone: 'b', values: pick((x) => x.waiting) },
                  ]}
                />
              </section>
              <section class="card">
                <Plot title="Time of a step" unit="ms" capacity={Math.max(kLeastShown, samples.length)} least={2} lines={[{ name: 'mean', tone: 'a', values: pick((x) => x.stepMs) }]} />
              </section>
              <section class="card">
                <Plot
                  title={knowsCeiling ? 'Share of the ceiling' : 'Time in steps'}
                  unit="%"
                  capacity={Math.max(kLeastShown, samples.length)}
                  end={100}
                  lines={[
                    ...(knowsCeiling ? [{ name: 'ceiling', tone: 'a' as const, values: pick((x) => (x.ceiling === null ? null : x.ceiling * 100)) }] : []),
                    { name: 'busy', tone: knowsCeiling ? 'c' : 'a', values: pick((x) => x.busy * 100) },
                  ]}
                />
              </section>
            </div>
            <Totals m={m} s={s} />
          </>
        )}
      </div>
    </div>
  );
}
