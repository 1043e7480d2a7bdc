// The conversations, and the answers that are being written in them.
import { batch, signal, type Signal } from '@preact/signals';
import { ApiError, call, events } from '../api';
import { model, noteNoTemplate } from '../models';
import { kept, newId, storage } from '../storage';
import { toast } from '../ui/toast';
import { type Attachment, type Chat, type Message, type Sampling, type Stats, path, removeBranch, textOf, titleFrom } from './tree';

export const chats = signal<Chat[]>([]);
export const chatsLoaded = signal(false);
export const currentId = signal<string | null>(null);
/** Rises when anything but the text of an answer changes. */
export const changes = signal(0);
/** A conversation is changed in place, so that reading it has to depend on `changes`, which a computed signal would hide. */
export const current = {
  get value(): Chat | undefined {
    void changes.value;
    return chats.value.find((c) => c.id === currentId.value);
  },
};

/** For conversations to come. */
export const defaultSystem = kept('system', '');
export const defaultSampling = kept<Sampling>('sampling', {});
export const defaultAdapters = kept<Record<string, number>>('adapters', {});

/** Answers in progress, by message (or by text, in writing). */
export const running = signal<ReadonlyMap<string, AbortController>>(new Map());
export interface Waiting {
  until: number;
  message: string;
}
/** Answers that wait until the server takes more. */
export const waiting = signal<ReadonlyMap<string, Waiting>>(new Map());

const revisions = new Map<string, Signal<number>>();
/** Rises with every piece of a message. */
export function revision(id: string): Signal<number> {
  let s = revisions.get(id);
  if (!s) revisions.set(id, (s = signal(0)));
  return s;
}

const soon = new Set<string>();
/** A piece has come: rendered at most 30 times a second, however fast the model is. */
export function touch(id: string) {
  if (soon.has(id)) return;
  soon.add(id);
  setTimeout(() => {
    soon.delete(id);
    ++revision(id).value;
  }, 33);
}

export function setRunning(id: string, abort: AbortController | null) {
  const next = new Map(running.value);
  if (abort) next.set(id, abort);
  else next.delete(id);
  running.value = next;
}

export function setWaiting(id: string, value: Waiting | null) {
  const next = new Map(waiting.value);
  if (value) next.set(id, value);
  else next.delete(id);
  waiting.value = next;
}

export const isRunning = (chat: Chat | undefined) => {
  if (!chat) return false;
  if (running.value.has(chat.id)) return true;
  for (const id of running.value.keys()) if (chat.messages[id]) return true;
  return false;
};

export function stop(chat: Chat) {
  for (const [id, abort] of running.value) if (id === chat.id || chat.messages[id]) abort.abort();
}

const dirty = new Map<string, ReturnType<typeof setTimeout>>();
/** Still shown, but a save would bring them back. */
const beingRemoved = new Set<string>();
export function save(chat: Chat, delay_ms = 0) {
  if (dirty.has(chat.id)) {
    if (delay_ms) return;
    clearTimeout(dirty.get(chat.id));
  }
  dirty.set(
    chat.id,
    setTimeout(() => {
      dirty.delete(chat.id);
      if (chats.value.includes(chat) && !beingRemoved.has(chat.id))
        storage.put('chats', chat).catch(() => toast('The browser could not store the conversation.'));
    }, delay_ms),
  );
}

/** After a change of a conversation. */
export function changed(chat: Chat) {
  chat.updated = Date.now();
  ++changes.value;
  save(chat);
}

export async function loadChats() {
  const all = await storage.all<Chat>('chats').catch(() => []);
  for (const chat of all)
    for (const m of Object.values(chat.messages)) if (m.role === 'assistant' && !m.end) m.end = 'broken';
  batch(() => {
    const here = chats.value;
    chats.value = [...here, ...all.filter((a) => !here.some((h) => h.id === a.id))].sort((a, b) => b.updated - a.updated);
    chatsLoaded.value = true;
  });
}

export function newChat(kind: Chat['kind']): Chat {
  const now = Date.now();
  const chat: Chat = {
    id: newId(),
    kind,
    title: '',
    created: now,
    updated: now,
    system: defaultSystem.value,
    sampling: { ...defaultSampling.value },
    adapters: { ...defaultAdapters.value },
    messages: {},
    leaf: null,
  };
  if (kind === 'write') chat.spans = [];
  return chat;
}

export function addChat(chat: Chat) {
  chats.value = [chat, ...chats.value];
  changed(chat);
}

/** What is gone from the list is gone from storage: a reload right after it must not bring it back. */
export async function removeChat(chat: Chat) {
  if (beingRemoved.has(chat.id)) return;
  beingRemoved.add(chat.id);
  stop(chat);
  try {
    await storage.remove('chats', chat.id);
  } catch {
    toast('The browser could not delete the conversation.');
    return;
  } finally {
    beingRemoved.delete(chat.id);
  }
  chats.value = chats.value.filter((c) => c !== chat);
  if (currentId.value === chat.id) location.hash = '#/';
  toast(`Deleted “${chat.title || 'Untitled'}”.`, {
    label: 'Undo',
    act: () => {
      chats.value = [...chats.value, chat].sort((a, b) => b.updated - a.updated);
      save(chat);
    },
  });
}

export function rename(chat: Chat, title: string) {
  chat.title = title.trim() || chat.title;
  chat.isNamed = true;
  ++changes.value;
  save(chat);
}

export function adaptersFor(chat: Chat, available: string[]) {
  return Object.entries(chat.adapters)
    .filter(([name, scale]) => scale !== 0 && available.includes(name))
    .map(([name, scale]) => ({ name, scale }));
}

/** The fields that every request has. What a person left alone is left to the model. */
export function requestFields(chat: Chat): Record<string, unknown> {
  const m = model.value;
  const fields: Record<string, unknown> = { model: m?.id, stream: true, stream_options: { include_usage: true } };
  for (const [name, value] of Object.entries(chat.sampling))
    if (value !== undefined && !(Array.isArray(value) && !value.length)) fields[name] = value;
  const lora = adaptersFor(chat, m?.adapters ?? []);
  if (lora.length) fields.lora = lora;
  return fields;
}

/** Adds what was asked, and the answer to it. */
export function send(chat: Chat, parent: string | null, content: string, files: Attachment[] = []) {
  const question: Message = { id: newId(), parent, role: 'user', content, created: Date.now() };
  if (files.length) question.files = files;
  chat.messages[question.id] = question;
  chat.leaf = question.id;
  if (!chat.title) chat.title = titleFrom(content || files[0]?.name || '');
  if (!chats.value.includes(chat)) addChat(chat);
  answer(chat, question.id);
}

/** A new answer to the message `parent`. */
export function answer(chat: Chat, parent: string) {
  const message: Message = {
    id: newId(),
    parent,
    role: 'assistant',
    content: '',
    model: model.value?.id,
    created: Math.max(Date.now(), chat.messages[parent].created + 1),
  };
  chat.messages[message.id] = message;
  chat.leaf = message.id;
  changed(chat);
  void generate(chat, message, false);
}

/** Goes on with an answer that ended early. */
export function goOn(chat: Chat, message: Message) {
  void generate(chat, message, true);
}

export function retry(chat: Chat, message: Message) {
  if (message.content) return goOn(chat, message);
  void generate(chat, message, false);
}

export function drop(chat: Chat, message: Message) {
  removeBranch(chat, message.id);
  changed(chat);
}

interface ChatChunk {
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null; reasoning?: string | null };
    finish_reason?: string | null;
    stop_reason?: string | null;
  }[];
  usage?: Usage | null;
  timings?: { predicted_per_second?: number };
  error?: { message?: string; code?: string };
}

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number; cache_miss?: string };
}

/**
 * What can be measured from here: when pieces came. Those of one read come at once, so the first read does not count, and the speed of
 * a short text is that of all of it.
 */
export class Meter {
  private readonly begin = performance.now();
  private first = 0;
  private last = 0;
  private pieces = 0;
  private inFirst = 0;
  usage: Usage | null | undefined;
  /** As the server measured it. */
  perSecond: number | undefined;

  piece() {
    this.last = performance.now();
    this.first ||= this.last;
    ++this.pieces;
    if (this.last - this.first < 5) ++this.inFirst;
  }
  /** Since the first piece. */
  get elapsed_ms() {
    return this.last - this.first;
  }
  stats(): Stats {
    const { usage, pieces, elapsed_ms } = this;
    const tokens = usage?.completion_tokens ?? pieces;
    let perSecond = this.perSecond;
    if (!perSecond && tokens > 1)
      perSecond = elapsed_ms > 400 ? ((tokens * (1 - this.inFirst / pieces)) / elapsed_ms) * 1000 : (tokens / (this.last - this.begin)) * 1000;
    return {
      promptTokens: usage?.prompt_tokens,
      cachedTokens: usage?.prompt_tokens_details?.cached_tokens,
      cacheMiss: usage?.prompt_tokens_details?.cache_miss,
      tokens,
      firstToken_ms: this.first ? this.first - this.begin : undefined,
      tokensPerSecond: perSecond,
    };
  }
}

/** Calls `act` again, as long as the server says when to come back. */
export async function withPatience(id: string, abort: AbortController, act: () => Promise<void>): Promise<void> {
  for (let tries = 0; ; ++tries) {
    try {
      return await act();
    } catch (error) {
      const mayWait = error instanceof ApiError && (error.status === 429 || error.status === 503) && tries < 8;
      if (!mayWait) throw error;
      const wait_ms = Math.min(error.retryAfter_s || 2 ** tries, 60) * 1000;
      setWaiting(id, { until: Date.now() + wait_ms, message: error.message });
      try {
        await new Promise<void>((resolve, reject) => {
          const timer = setTimeout(resolve, wait_ms);
          abort.signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new DOMException('', 'AbortError'));
          });
        });
      } finally {
        setWaiting(id, null);
      }
    }
  }
}

async function generate(chat: Chat, message: Message, isContinued: boolean) {
  const m = model.value;
  const abort = new AbortController();
  setRunning(message.id, abort);
  delete message.error;
  delete message.end;
  if (!isContinued) {
    message.model = m?.id;
    message.adapters = adaptersFor(chat, m?.adapters ?? []).map((a) => a.name);
  }
  ++changes.value;
  const rev = revision(message.id);
  try {
    await withPatience(message.id, abort, async () => {
      const history = path({ ...chat, leaf: isContinued ? message.id : message.parent });
      const messages: { role: string; content: string }[] = history.map((h) => ({ role: h.role, content: textOf(h) }));
      if (chat.system.trim()) messages.unshift({ role: 'system', content: chat.system });
      const body: Record<string, unknown> = { ...requestFields(chat), messages };
      if (isContinued) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
      const meter = new Meter();
      const response = await call('v1/chat/completions', { body, signal: abort.signal });
      for await (const { data } of events(response, abort.signal)) {
        if (data === '[DONE]') break;
        const chunk = JSON.parse(data) as ChatChunk;
        if (chunk.error) throw new ApiError(chunk.error.message ?? 'The server ended the text.', 500, chunk.error.code ?? '');
        if (chunk.usage) meter.usage = chunk.usage;
        if (chunk.timings?.predicted_per_second) meter.perSecond = chunk.timings.predicted_per_second;
        const choice = chunk.choices?.[0];
        if (!choice) continue;
        const thought = choice.delta?.reasoning_content ?? choice.delta?.reasoning;
        const text = choice.delta?.content;
        if (thought || text) {
          meter.piece();
          if (thought) message.reasoning = (message.reasoning ?? '') + thought;
          if (text) {
            if (message.reasoning && !message.content) message.reasoning_ms ??= meter.elapsed_ms;
            message.content += text;
          }
          message.stats = meter.stats();
          touch(message.id);
          save(chat, 1000);
        }
        if (choice.finish_reason) message.end = choice.finish_reason === 'length' ? 'length' : 'stop';
      }
      message.stats = meter.stats();
      if (!message.end) throw new ApiError('The text ended without a reason.', 0);
    });
  } catch (error) {
    if (abort.signal.aborted) {
      message.end = 'stopped';
    } else if (error instanceof ApiError) {
      message.end = error.status === 0 ? 'broken' : 'error';
      message.error = { message: error.message, code: error.code, status: error.status };
      if (m && (error.code === 'no_chat_template' || (error.status === 404 && error.code === 'not_found'))) {
        noteNoTemplate(m.id);
        message.error = { message: `${m.id} has no chat template, but it can write on a text that you begin.`, code: 'no_chat_template', status: error.status };
      }
    } else {
      message.end = 'error';
      message.error = { message: 'The server sent something that is not an answer.', status: 0 };
    }
  } finally {
    setRunning(message.id, null);
    ++rev.value;
    changed(chat);
  }
}

/** Everything, for a file. */
export const exported = (list: Chat[]) => JSON.stringify({ redline: 'conversations', version: 1, chats: list }, null, 1);

export function imported(text: string): number {
  const data = JSON.parse(text) as { chats?: Chat[] };
  if (!Array.isArray(data.chats)) throw new Error('no conversations');
  const known = new Set(chats.value.map((c) => c.id));
  const fresh = data.chats
    .filter((c) => typeof c?.id === 'string' && typeof c.messages === 'object' && !known.has(c.id))
    .map((c) => ({ ...newChat(c.kind === 'write' ? 'write' : 'chat'), ...c }));
  for (const chat of fresh) void storage.put('chats', chat);
  chats.value = [...chats.value, ...fresh].sort((a, b) => b.updated - a.updated);
  return fresh.length;
}
