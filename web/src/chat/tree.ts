// A conversation is a tree: editing or asking again adds a sibling, and `leaf` says which branch is shown.

export interface Stats {
  promptTokens?: number;
  cachedTokens?: number;
  cacheMiss?: string;
  tokens?: number;
  tokensPerSecond?: number;
  firstToken_ms?: number;
}

export interface Attachment {
  name: string;
  text: string;
}

export type End = 'stop' | 'length' | 'stopped' | 'broken' | 'error';

export interface Message {
  id: string;
  parent: string | null;
  role: 'user' | 'assistant';
  content: string;
  reasoning?: string;
  reasoning_ms?: number;
  files?: Attachment[];
  model?: string;
  adapters?: string[];
  created: number;
  end?: End;
  error?: { message: string; code?: string; status: number };
  stats?: Stats;
}

export interface Sampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  typical_p?: number;
  top_n_sigma?: number;
  xtc_probability?: number;
  xtc_threshold?: number;
  dry_multiplier?: number;
  dry_base?: number;
  dry_allowed_length?: number;
  dynatemp_range?: number;
  mirostat?: number;
  mirostat_tau?: number;
  mirostat_eta?: number;
  max_tokens?: number;
  seed?: number;
  stop?: string[];
}

/** A token that the model wrote, with what it might have written instead. */
export interface WrittenToken {
  p: number;
  top: [string, number][];
}

/** A piece of a text that a person and a model write together; `token` if it is one token of the model. */
export interface Span {
  text: string;
  by: 'you' | 'model';
  token?: WrittenToken;
}

/** The continuations that were tried from one place. */
export interface Takes {
  before: Span[];
  versions: Span[][];
  shown: number;
}

export interface Chat {
  id: string;
  kind: 'chat' | 'write';
  title: string;
  isNamed?: boolean;
  created: number;
  updated: number;
  system: string;
  sampling: Sampling;
  adapters: Record<string, number>;
  messages: Record<string, Message>;
  leaf: string | null;
  /** Of kind "write". */
  spans?: Span[];
  takes?: Takes;
  stats?: Stats;
}

/** From the first message to the leaf. */
export function path(chat: Chat): Message[] {
  const found: Message[] = [];
  for (let m = chat.leaf ? chat.messages[chat.leaf] : undefined; m; m = m.parent ? chat.messages[m.parent] : undefined)
    found.push(m);
  return found.reverse();
}

export function siblings(chat: Chat, message: Message): Message[] {
  return Object.values(chat.messages)
    .filter((m) => m.parent === message.parent && m.role === message.role)
    .sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/** Follows the newest children down. */
export function leafBelow(chat: Chat, id: string): string {
  for (;;) {
    const children = Object.values(chat.messages).filter((m) => m.parent === id);
    if (!children.length) return id;
    id = children.reduce((a, b) => (b.created >= a.created ? b : a)).id;
  }
}

/** The message and everything that follows from it. */
export function removeBranch(chat: Chat, id: string): void {
  const message = chat.messages[id];
  const others = siblings(chat, message).filter((m) => m.id !== id);
  const doomed = [id];
  for (let i = 0; i < doomed.length; ++i)
    for (const m of Object.values(chat.messages)) if (m.parent === doomed[i]) doomed.push(m.id);
  for (const d of doomed) delete chat.messages[d];
  if (chat.leaf && !chat.messages[chat.leaf])
    chat.leaf = others.length ? leafBelow(chat, others[others.length - 1].id) : message.parent;
}

/** What the model is given of a message: its files come first, fenced. */
export function textOf(message: Message): string {
  const files = (message.files ?? []).map((f) => {
    const fence = '`'.repeat(Math.max(3, ...(f.text.match(/`+/g) ?? []).map((s) => s.length + 1)));
    return `File ${f.name}:\n${fence}\n${f.text.replace(/\n$/, '')}\n${fence}`;
  });
  return [...files, message.content].filter(Boolean).join('\n\n');
}

export function titleFrom(text: string): string {
  const line = text.replace(/[#*_`>]/g, '').trim().split('\n')[0] ?? '';
  if (line.length <= 46) return line;
  const cut = line.slice(0, 46);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(' '), 24)).replace(/[\s,;:.]+$/, '')}…`;
}

/** Reasoning that a server left inside the text. */
export function splitThinking(message: Message): { reasoning: string; content: string; isOpen: boolean } {
  const reasoning = message.reasoning ?? '';
  const found = /^\s*<think>([\s\S]*?)(<\/think>\s*|$)/.exec(message.content);
  if (!found) return { reasoning, content: message.content, isOpen: !!reasoning && !message.content };
  return {
    reasoning: reasoning + found[1].trim(),
    content: message.content.slice(found[0].length),
    isOpen: !found[2],
  };
}

export function toMarkdown(chat: Chat): string {
  if (chat.kind === 'write') return `# ${chat.title}\n\n${(chat.spans ?? []).map((s) => s.text).join('')}\n`;
  const parts = [`# ${chat.title}`];
  if (chat.system) parts.push(`> ${chat.system.replace(/\n/g, '\n> ')}`);
  for (const m of path(chat)) parts.push(`## ${m.role === 'user' ? 'You' : (m.model ?? 'Model')}\n\n${textOf(m)}`);
  return `${parts.join('\n\n')}\n`;
}
