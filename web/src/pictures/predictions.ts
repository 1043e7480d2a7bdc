// Images from the server: the predictions API, or OpenAI's images where there is none.
//
//   POST v1/predictions {"model", "input": {...}}      -> 201 Prediction
//   GET  v1/predictions/{id}                           -> Prediction
//   POST v1/predictions/{id}/cancel                    -> Prediction
//   GET  v1/predictions/{id}/events                    -> text/event-stream:
//        event: queue     data: {"position": 2}
//        event: progress  data: {"step": 3, "steps": 20, "step_ms": 41.2, "computed": 1, "previews": ["data:image/jpeg;base64,..."]}
//        event: done      data: Prediction
//   Prediction: {"id", "model", "status": "queued" | "processing" | "succeeded" | "failed" | "canceled", "queue_position",
//     "output": ["data:image/png;base64,..." or a URL of this server], "seeds": [1, 2], "error": null or text,
//     "metrics": {"total_s", "executed_share", "cache"}}
import { ApiError, call, events, json, urlOf } from '../api';

export interface Input {
  prompt: string;
  negative_prompt?: string;
  width: number;
  height: number;
  steps?: number;
  guidance?: number;
  seed: number;
  batch: number;
  quality?: number;
  cache?: string;
  image?: string;
  strength?: number;
}

export interface Prediction {
  id: string;
  model: string;
  status: 'queued' | 'processing' | 'succeeded' | 'failed' | 'canceled';
  queue_position?: number;
  output?: string[];
  seeds?: number[];
  error?: string | null;
  metrics?: { total_s?: number; executed_share?: number; cache?: string };
}

export interface Progress {
  position?: number;
  step?: number;
  steps?: number;
  previews?: string[];
}

export interface Done {
  pictures: Blob[];
  seeds: number[];
  seconds: number;
  executedShare?: number;
}

async function blobOf(url: string): Promise<Blob> {
  const found = /^data:([\w/+.-]+);base64,(.*)$/s.exec(url);
  if (!found) {
    const target = new URL(url, document.baseURI);
    // The page calls no other server.
    if (target.origin !== location.origin) throw new ApiError('The server named a picture on another server.', 0);
    return (await call(target.href.slice(urlOf('').length))).blob();
  }
  const bytes = atob(found[2]);
  const data = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; ++i) data[i] = bytes.charCodeAt(i);
  return new Blob([data], { type: found[1] });
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const isOver = (p: Prediction) => p.status === 'succeeded' || p.status === 'failed' || p.status === 'canceled';

export async function paint(model: string, input: Input, abort: AbortSignal, onProgress: (p: Progress) => void): Promise<Done> {
  const begin = performance.now();
  let prediction: Prediction;
  try {
    prediction = await json<Prediction>('v1/predictions', { body: { model, input }, signal: abort });
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return paintOpenAi(model, input, abort, begin);
    throw error;
  }
  const { id } = prediction;
  const cancel = () => void call(`v1/predictions/${id}/cancel`, { method: 'POST' }).catch(() => {});
  abort.addEventListener('abort', cancel);
  try {
    for (let failures = 0; !isOver(prediction); ) {
      try {
        const response = await call(`v1/predictions/${id}/events`, { signal: abort });
        for await (const { event, data } of events(response, abort)) {
          const value = JSON.parse(data);
          if (event === 'queue') onProgress({ position: value.position });
          else if (event === 'progress') onProgress(value as Progress);
          else if (event === 'done') prediction = value as Prediction;
        }
        if (!isOver(prediction)) prediction = await json<Prediction>(`v1/predictions/${id}`, { signal: abort });
      } catch (error) {
        // The image goes on being painted while the connection is lost.
        if (abort.aborted || !(error instanceof ApiError) || error.status !== 0 || ++failures > 20) throw error;
      }
      if (!isOver(prediction)) await pause(500);
      if (abort.aborted) throw new DOMException('', 'AbortError');
    }
  } finally {
    abort.removeEventListener('abort', cancel);
  }
  if (prediction.status === 'canceled') throw new DOMException('', 'AbortError');
  if (prediction.status === 'failed') throw new ApiError(prediction.error ?? 'The picture failed.', 500);
  const pictures = await Promise.all((prediction.output ?? []).map(blobOf));
  return {
    pictures,
    seeds: prediction.seeds ?? pictures.map((_, i) => input.seed + i),
    seconds: prediction.metrics?.total_s ?? (performance.now() - begin) / 1000,
    executedShare: prediction.metrics?.executed_share,
  };
}

async function paintOpenAi(model: string, input: Input, abort: AbortSignal, begin: number): Promise<Done> {
  const answer = await json<{ data: { b64_json?: string; url?: string }[] }>('v1/images/generations', {
    body: { model, prompt: input.prompt, n: input.batch, size: `${input.width}x${input.height}`, response_format: 'b64_json' },
    signal: abort,
  });
  const pictures = await Promise.all(answer.data.map((d) => blobOf(d.b64_json ? `data:image/png;base64,${d.b64_json}` : (d.url ?? ''))));
  return { pictures, seeds: [], seconds: (performance.now() - begin) / 1000 };
}
