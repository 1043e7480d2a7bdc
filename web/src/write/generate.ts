// The model continues a text: /v1/completions, which needs no chat template.
import { ApiError, call, events } from '../api';
import { changed, Meter, requestFields, revision, save, setRunning, touch, type Usage, withPatience } from '../chat/chats';
import type { Chat, Span } from '../chat/tree';
import { titleFrom } from '../chat/tree';
import { textOfSpans, tidy } from './spans';

export const kTokensAtATime = 120;

interface CompletionChunk {
  choices?: {
    text?: string;
    finish_reason?: string | null;
    logprobs?: { tokens?: string[]; token_logprobs?: (number | null)[]; top_logprobs?: (Record<string, number> | null)[] } | null;
  }[];
  usage?: Usage | null;
  timings?: { predicted_per_second?: number };
  error?: { message?: string; code?: string };
}

export interface WriteError {
  message: string;
  code: string;
  status: number;
}
/** What went wrong the last time, by text. */
export const writeErrors = new Map<string, WriteError>();
/** Servers may not have log probabilities; they are then not asked for again. */
let wantsLogprobs = true;

function titleOf(chat: Chat) {
  if (chat.isNamed) return;
  chat.title = titleFrom(textOfSpans(chat.spans ?? []).slice(0, 200)) || 'Untitled page';
}

/** Writes on at the end of the text. `isAnother` replaces what was written last by another version. */
export async function writeOn(chat: Chat, isAnother = false) {
  const abort = new AbortController();
  const begin_spans = isAnother && chat.takes ? chat.takes.before : tidy(chat.spans ?? []);
  if (isAnother && chat.takes) chat.takes.versions.push([]);
  else chat.takes = { before: begin_spans, versions: [[]], shown: 0 };
  const takes = chat.takes!;
  takes.shown = takes.versions.length - 1;
  let added: Span[] = [];
  const show = () => {
    takes.versions[takes.shown] = added;
    chat.spans = [...begin_spans, ...added];
  };
  show();
  setRunning(chat.id, abort);
  writeErrors.delete(chat.id);
  const rev = revision(chat.id);
  ++rev.value;
  try {
    await withPatience(chat.id, abort, async () => {
      const { seed, ...fields } = requestFields(chat);
      const body: Record<string, unknown> = { max_tokens: kTokensAtATime, ...fields, prompt: textOfSpans(begin_spans) };
      if (seed !== undefined) body.seed = Number(seed) + takes.shown;
      if (wantsLogprobs) body.logprobs = 6;
      const meter = new Meter();
      let response: Response;
      try {
        response = await call('v1/completions', { body, signal: abort.signal });
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 400 && error.param === 'logprobs')) throw error;
        wantsLogprobs = false;
        delete body.logprobs;
        response = await call('v1/completions', { body, signal: abort.signal });
      }
      for await (const { data } of events(response, abort.signal)) {
        if (data === '[DONE]') break;
        const chunk = JSON.parse(data) as CompletionChunk;
        if (chunk.error) throw new ApiError(chunk.error.message ?? 'The server ended the text.', 500, chunk.error.code ?? '');
        if (chunk.usage) meter.usage = chunk.usage;
        if (chunk.timings?.predicted_per_second) meter.perSecond = chunk.timings.predicted_per_second;
        const choice = chunk.choices?.[0];
        if (!choice?.text) continue;
        meter.piece();
        added = [...added, ...spansOf(choice.text, choice.logprobs)];
        show();
        chat.stats = meter.stats();
        touch(chat.id);
        save(chat, 1000);
      }
      chat.stats = meter.stats();
    });
  } catch (error) {
    if (!abort.signal.aborted) {
      const known = error instanceof ApiError ? error : new ApiError('The server sent something that is not an answer.', 0);
      writeErrors.set(chat.id, { message: known.message, code: known.code, status: known.status });
    }
  } finally {
    setRunning(chat.id, null);
    if (!added.length && takes.versions.length > 1) {
      takes.versions.pop();
      showTake(chat, takes.versions.length - 1);
    }
    titleOf(chat);
    ++rev.value;
    changed(chat);
  }
}

type Logprobs = NonNullable<CompletionChunk['choices']>[number]['logprobs'];

/** One span per token where the tokens add up to the text; several tokens may make one character. */
function spansOf(text: string, logprobs: Logprobs): Span[] {
  const tokens = logprobs?.tokens ?? [];
  if (tokens.length === 0 || tokens.join('') !== text) return [{ text, by: 'model' }];
  return tokens.map((t, i) => ({
    text: t,
    by: 'model' as const,
    token: {
      p: Math.exp(logprobs?.token_logprobs?.[i] ?? 0),
      top: Object.entries(logprobs?.top_logprobs?.[i] ?? {})
        .map(([s, l]): [string, number] => [s, Math.exp(l)])
        .sort((a, b) => b[1] - a[1]),
    },
  }));
}

export function showTake(chat: Chat, i: number) {
  if (!chat.takes) return;
  chat.takes.shown = i;
  chat.spans = [...chat.takes.before, ...chat.takes.versions[i]];
  ++revision(chat.id).value;
  changed(chat);
}

export function takeBack(chat: Chat) {
  if (!chat.takes) return;
  chat.spans = chat.takes.before;
  delete chat.takes;
  ++revision(chat.id).value;
  changed(chat);
}

export function setText(chat: Chat, spans: Span[]) {
  chat.spans = spans;
  delete chat.takes;
  titleOf(chat);
  ++revision(chat.id).value;
  changed(chat);
}
