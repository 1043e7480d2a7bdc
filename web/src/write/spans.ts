// A text whose pieces were written by the user or by the model.
import type { Span } from '../chat/tree';

export const textOfSpans = (spans: Span[]) => spans.map((s) => s.text).join('');

/** Joins neighbours of one author; the model's tokens stay apart. */
export function tidy(spans: Span[]): Span[] {
  const out: Span[] = [];
  for (const s of spans) {
    if (!s.text) continue;
    const last = out[out.length - 1];
    if (last && last.by === s.by && !last.token && !s.token) out[out.length - 1] = { ...last, text: last.text + s.text };
    else out.push(s);
  }
  return out;
}

/** The pieces of [begin, end); a token that is cut keeps its author and loses what it might have been. */
export function slice(spans: Span[], begin: number, end: number): Span[] {
  const out: Span[] = [];
  let at = 0;
  for (const s of spans) {
    const from = Math.max(begin - at, 0);
    const to = Math.min(end - at, s.text.length);
    if (from < to) out.push(from === 0 && to === s.text.length ? s : { text: s.text.slice(from, to), by: s.by });
    at += s.text.length;
  }
  return out;
}

/** What a person typed becomes theirs; the rest keeps its author. */
export function edited(spans: Span[], text: string): Span[] {
  const old = textOfSpans(spans);
  const limit = Math.min(old.length, text.length);
  let begin = 0;
  while (begin < limit && old[begin] === text[begin]) ++begin;
  let tail = 0;
  while (tail < limit - begin && old[old.length - 1 - tail] === text[text.length - 1 - tail]) ++tail;
  return tidy([
    ...slice(spans, 0, begin),
    { text: text.slice(begin, text.length - tail), by: 'you' },
    ...slice(spans, old.length - tail, old.length),
  ]);
}

/** The token of the model that the character before `caret` belongs to. */
export function tokenAt(spans: Span[], caret: number): { span: Span; begin: number } | null {
  let at = 0;
  for (const span of spans) {
    if (caret > at && caret <= at + span.text.length) return span.token ? { span, begin: at } : null;
    at += span.text.length;
  }
  return null;
}
