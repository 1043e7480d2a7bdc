// Reads the state of the engine: GET v1/engine, or the same values from /metrics. Counters are totals; rates are made here, from two answers.
//
//   {"object": "engine", "time": 1760000000.25, "uptime_s": 12.5,
//    "machine": {"cpu": "...", "isa": "avx512_vnni", "threads": 2},
//    "models": [{"id": "tales", "running": 3, "waiting": 0, "max_running": 64, "preemptions": 0,
//                "prompt_tokens": 812, "cached_prompt_tokens": 640, "generated_tokens": 1024,
//                "steps": 340, "step_seconds": 3.1, "bound_seconds": 2.2,
//                "requests_finished": {"stop": 4, "length": 1}, "requests_failed": 0,
//                "cache_pages_used": 12, "cache_pages_stored": 40, "cache_pages": 512, "page_tokens": 32}]}
//
// `machine`, `max_running` and `bound_seconds` may be missing. `bound_seconds` is the time that the steps so far would have
// taken at the machine's ceilings of bandwidth and arithmetic: its growth over that of `step_seconds` is the share reached.
import { ApiError, call, json } from '../api';

export interface EngineModel {
  id: string;
  running: number;
  waiting: number;
  max_running?: number;
  preemptions: number;
  prompt_tokens: number;
  cached_prompt_tokens: number;
  generated_tokens: number;
  steps: number;
  step_seconds: number;
  bound_seconds?: number;
  requests_finished: Record<string, number>;
  requests_failed?: number;
  cache_pages_used: number;
  cache_pages_stored: number;
  cache_pages: number;
  page_tokens: number;
}

export interface Snapshot {
  /** Seconds, by the server's clock where it tells. */
  time: number;
  uptime_s?: number;
  machine?: { cpu?: string; isa?: string; threads?: number };
  models: EngineModel[];
}

let hasEndpoint = true;

export async function snapshot(): Promise<Snapshot> {
  if (hasEndpoint) {
    try {
      return await json<Snapshot>('v1/engine', { timeout_ms: 8000 });
    } catch (error) {
      if (!(error instanceof ApiError && (error.status === 404 || error.status === 405))) throw error;
      hasEndpoint = false;
    }
  }
  return fromMetrics(await (await call('metrics', { timeout_ms: 8000 })).text(), performance.now() / 1000);
}

export function fromMetrics(text: string, time: number): Snapshot {
  const found = new Map<string, EngineModel>();
  for (const line of text.split('\n')) {
    const parts = /^((?:vllm|redline):\w+)\{(.*)\} (\S+)$/.exec(line);
    if (!parts) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of parts[2].matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    const id = labels.model_name;
    if (!id) continue;
    let m = found.get(id);
    if (!m)
      found.set(
        id,
        (m = {
          id, running: 0, waiting: 0, preemptions: 0, prompt_tokens: 0, cached_prompt_tokens: 0, generated_tokens: 0, steps: 0,
          step_seconds: 0, requests_finished: {}, cache_pages_used: 0, cache_pages_stored: 0, cache_pages: 0, page_tokens: 0,
        }),
      );
    const value = Number(parts[3]);
    switch (parts[1]) {
      case 'vllm:num_requests_running': m.running = value; break;
      case 'vllm:num_requests_waiting': m.waiting = value; break;
      case 'vllm:num_preemptions_total': m.preemptions = value; break;
      case 'vllm:prompt_tokens_total': m.prompt_tokens = value; break;
      case 'vllm:prefix_cache_hits_total': m.cached_prompt_tokens = value; break;
      case 'vllm:generation_tokens_total': m.generated_tokens = value; break;
      case 'vllm:request_success_total': m.requests_finished[labels.finished_reason] = value; break;
      case 'redline:steps_total': m.steps = value; break;
      case 'redline:step_seconds_total': m.step_seconds = value; break;
      case 'redline:bound_seconds_total': m.bound_seconds = value; break;
      case 'redline:cache_pages':
        if (labels.state === 'used') m.cache_pages_used = value;
        else if (labels.state === 'stored') m.cache_pages_stored = value;
        else if (labels.state === 'all') m.cache_pages = value;
        break;
    }
  }
  return { time, models: [...found.values()] };
}

/** What happened between two answers. */
export interface Sample {
  time: number;
  generatedRate: number;
  promptRate: number;
  reusedRate: number;
  running: number;
  waiting: number;
  stepMs: number | null;
  tokensPerStep: number | null;
  /** Time in steps, of all time. */
  busy: number;
  /** Of the machine's ceiling, while steps ran; null: unknown. */
  ceiling: number | null;
  used: number;
  stored: number;
}

export function sampleOf(before: EngineModel, now: EngineModel, from: number, to: number): Sample | null {
  const dt = to - from;
  if (!(dt > 0.05) || now.steps < before.steps || now.generated_tokens < before.generated_tokens) return null;
  const steps = now.steps - before.steps;
  const seconds = now.step_seconds - before.step_seconds;
  const prompt = now.prompt_tokens - before.prompt_tokens;
  const reused = now.cached_prompt_tokens - before.cached_prompt_tokens;
  const bound = now.bound_seconds !== undefined && before.bound_seconds !== undefined ? now.bound_seconds - before.bound_seconds : null;
  return {
    time: to,
    generatedRate: (now.generated_tokens - before.generated_tokens) / dt,
    promptRate: Math.max(0, prompt - reused) / dt,
    reusedRate: reused / dt,
    running: now.running,
    waiting: now.waiting,
    stepMs: steps > 0 ? (seconds / steps) * 1000 : null,
    tokensPerStep: steps > 0 ? (now.generated_tokens - before.generated_tokens + prompt - reused) / steps : null,
    busy: Math.min(1, seconds / dt),
    ceiling: bound === null ? null : seconds > 0 ? Math.min(1, bound / seconds) : 0,
    used: now.cache_pages_used,
    stored: now.cache_pages_stored,
  };
}
