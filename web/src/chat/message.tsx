// One message, its branches and what can be done with it.
import { useEffect, useState } from 'preact/hooks';
import { Markdown } from '../markdown';
import { billions, mainType, model, models } from '../models';
import { CopyButton } from '../ui/copy';
import { Area, Countdown } from '../ui/controls';
import { Icon } from '../ui/icons';
import { answer, changed, goOn, isRunning, newChat, retry, revision, running, send, waiting } from './chats';
import { openChat, openNew } from '../route';
import { type Chat, type Message, type Stats, leafBelow, path, siblings, splitThinking } from './tree';

const missReasons: Record<string, string> = {
  none: 'everything but the last token was reused',
  disabled: 'the server reuses nothing',
  not_stored: 'no stored text goes on like this',
  other_adapter: 'it was computed with other adapters',
  evicted: 'it had made room for others',
  window: 'the sliding window at this place is gone',
  snapshot: 'there is no snapshot of the state at this place',
};

const number = (n: number) => n.toLocaleString('en-US');

export function StatsLine({ stats, isLive }: { stats: Stats; isLive?: boolean }) {
  const { tokens, tokensPerSecond, promptTokens, cachedTokens, cacheMiss, firstToken_ms } = stats;
  const parts = [];
  if (tokens) parts.push(<span title="Tokens of this answer" class="count">{number(tokens)} tokens</span>);
  if (tokensPerSecond)
    parts.push(
      <span title="Tokens per second, after the first" class="rate">
        {tokensPerSecond.toFixed(tokensPerSecond < 100 ? 1 : 0)} tok/s
      </span>,
    );
  if (!isLive && firstToken_ms !== undefined)
    parts.push(<span title="Until the first token" class="first">{firstToken_ms < 995 ? `${Math.round(firstToken_ms)} ms` : `${(firstToken_ms / 1000).toFixed(1)} s`} to first</span>);
  if (!isLive && promptTokens)
    parts.push(
      <span
        title={`Tokens of the prompt whose state was reused${cacheMiss ? `: ${missReasons[cacheMiss] ?? cacheMiss}` : ''}`}
        class={cachedTokens ? 'reused' : undefined}
      >
        {number(cachedTokens ?? 0)} of {number(promptTokens)} reused
      </span>,
    );
  return <div class="stats">{parts}</div>;
}

function Branches({ chat, message, isBusy }: { chat: Chat; message: Message; isBusy: boolean }) {
  const all = siblings(chat, message);
  if (all.length < 2) return null;
  const at = all.findIndex((m) => m.id === message.id);
  const go = (i: number) => {
    chat.leaf = leafBelow(chat, all[i].id);
    changed(chat);
  };
  return (
    <div class="branches" role="group" aria-label="Versions">
      <button type="button" class="icon-button tiny quiet" aria-label="Previous version" disabled={at === 0 || isBusy} onClick={() => go(at - 1)}>
        <Icon name="left" size={15} />
      </button>
      <span aria-label={`Version ${at + 1} of ${all.length}`}>
        {at + 1}/{all.length}
      </span>
      <button type="button" class="icon-button tiny quiet" aria-label="Next version" disabled={at === all.length - 1 || isBusy} onClick={() => go(at + 1)}>
        <Icon name="right" size={15} />
      </button>
    </div>
  );
}

function Reasoning({ text, isOpen, ms }: { text: string; isOpen: boolean; ms?: number }) {
  return (
    <details class="reasoning">
      <summary>
        <Icon name="right" size={15} />
        {isOpen ? <span class="shimmer">Thinking</span> : ms ? `Thought for ${Math.max(1, Math.round(ms / 1000))} s` : 'Thoughts'}
      </summary>
      <div class="reasoning-text">
        <Markdown text={text} />
      </div>
    </details>
  );
}

function Trouble({ chat, message }: { chat: Chat; message: Message }) {
  const { end, error } = message;
  if (end === 'error' || end === 'broken') {
    const isFull = error?.code === 'context_length_exceeded';
    const isGone = end === 'broken';
    return (
      <div class="trouble" role="alert">
        <div>
          <strong>{error?.code === 'no_chat_template' ? 'This model does not chat' : isFull ? 'The context is full' : isGone ? 'The connection broke' : 'The server refused'}</strong>
          <p>{isFull ? `${error.message}.`.replace('..', '.') : (error?.message ?? 'The page was closed while this was being written.')}</p>
        </div>
        <div class="trouble-actions">
          {error?.code === 'no_chat_template' ? (
            <button type="button" class="button" onClick={() => openNew('write')}>
              Open a page
            </button>
          ) : isFull ? (
            <button type="button" class="button" onClick={() => carryOver(chat)}>
              Go on in a new chat
            </button>
          ) : (
            <button type="button" class="button" onClick={() => retry(chat, message)}>
              {message.content ? 'Go on from here' : 'Try again'}
            </button>
          )}
          {message.content && !isFull && (
            <button type="button" class="button quiet" onClick={() => answer(chat, message.parent!)}>
              Start over
            </button>
          )}
        </div>
      </div>
    );
  }
  if (end === 'length' || end === 'stopped')
    return (
      <div class="ended">
        <span>{end === 'length' ? 'The answer reached its length.' : 'Stopped.'}</span>
        {message.content && (
          <button type="button" class="link" onClick={() => goOn(chat, message)}>
            Go on
          </button>
        )}
      </div>
    );
  return null;
}

/** The last question, in a conversation of its own. */
function carryOver(chat: Chat) {
  const last = path(chat)
    .filter((m) => m.role === 'user')
    .pop();
  const next = newChat('chat');
  next.system = chat.system;
  next.sampling = { ...chat.sampling };
  next.adapters = { ...chat.adapters };
  if (last) send(next, null, last.content, last.files);
  openChat(next.id);
}

function Edit({ chat, message, onDone }: { chat: Chat; message: Message; onDone: () => void }) {
  const [text, setText] = useState(message.content);
  const submit = () => {
    onDone();
    if (message.role === 'user') {
      if (text.trim()) send(chat, message.parent, text, message.files);
    } else {
      message.content = text;
      message.end ??= 'stop';
      ++revision(message.id).value;
      changed(chat);
    }
  };
  return (
    <form
      class="edit"
      onSubmit={(e) => {
        e.preventDefault();
        submit();
      }}
    >
      <Area
        label={message.role === 'user' ? 'Edit your message' : 'Edit the answer'}
        value={text}
        onInput={setText}
        autofocus
        maxHeight={520}
        onKeyDown={(e) => {
          if (e.key === 'Escape') {
            e.stopPropagation();
            onDone();
          } else if (e.key === 'Enter' && (e.ctrlKey || e.metaKey || (!e.shiftKey && message.role === 'user'))) {
            e.preventDefault();
            submit();
          }
        }}
      />
      <div class="edit-actions">
        <button type="button" class="button quiet" onClick={onDone}>
          Cancel
        </button>
        <button type="submit" class="button primary" disabled={!text.trim()}>
          {message.role === 'user' ? 'Send' : 'Save'}
        </button>
      </div>
    </form>
  );
}

export function MessageView({ chat, message, isLast, editing, onEdit }: {
  chat: Chat;
  message: Message;
  isLast: boolean;
  editing: boolean;
  onEdit: (id: string | null) => void;
}) {
  void revision(message.id).value;
  const isLive = running.value.has(message.id);
  const wait = waiting.value.get(message.id);
  const isBusy = isRunning(chat);
  const isUser = message.role === 'user';
  const { reasoning, content, isOpen } = isUser ? { reasoning: '', content: message.content, isOpen: false } : splitThinking(message);
  const info = models.value.length > 1 ? models.value.find((m) => m.id === message.model) : undefined;
  const name = isUser ? 'You' : (message.model ?? 'Model');
  return (
    <article class={`message ${message.role} ${isLive ? 'live' : ''} ${isLast ? 'last' : ''}`} aria-label={name} data-id={message.id}>
      {!isUser && (
        <header class="message-head">
          <span class="who">{[name, ...(message.adapters ?? [])].join(' + ')}</span>
          {info && <span class="what">{[billions(info.parameters), mainType(info.weightTypes)].filter(Boolean).join(' · ')}</span>}
        </header>
      )}
      {message.files && (
        <ul class="files" aria-label="Files">
          {message.files.map((f) => (
            <li>
              <details class="file">
                <summary>
                  <Icon name="file" size={16} />
                  {f.name}
                  <small>{number(f.text.split('\n').length)} lines</small>
                </summary>
                <pre tabIndex={0}>{f.text}</pre>
              </details>
            </li>
          ))}
        </ul>
      )}
      {editing ? (
        <Edit chat={chat} message={message} onDone={() => onEdit(null)} />
      ) : (
        <div class="message-body">
          {reasoning && <Reasoning text={reasoning} isOpen={isLive && isOpen} ms={message.reasoning_ms} />}
          {isUser ? message.content && <p class="asked">{message.content}</p> : content && <Markdown text={content} />}
          {isLive && !content && !reasoning && (
            <p class="pending" aria-label="Waiting for the first token">
              {wait ? (
                <span class="busy-note">
                  {wait.message} Trying again in <Countdown until={wait.until} />
                </span>
              ) : (
                <Prefill />
              )}
            </p>
          )}
        </div>
      )}
      {!isLive && !isUser && <Trouble chat={chat} message={message} />}
      {!editing && (
        <footer class="message-foot">
          {!isUser && message.stats && (isLive || message.stats.tokens) ? <StatsLine stats={message.stats} isLive={isLive} /> : null}
          {!isLive && (
            <div class="actions">
              <Branches chat={chat} message={message} isBusy={isBusy} />
              <CopyButton text={isUser ? message.content : content} label="Copy" />
              <button type="button" class="icon-button quiet" aria-label="Edit" title="Edit" disabled={isBusy} onClick={() => onEdit(message.id)}>
                <Icon name="pen" />
              </button>
              {!isUser && (
                <button
                  type="button"
                  class="icon-button quiet"
                  aria-label="Answer again"
                  title={`Answer again${model.value && model.value.id !== message.model ? ` with ${model.value.id}` : ''}`}
                  disabled={isBusy}
                  onClick={() => answer(chat, message.parent!)}
                >
                  <Icon name="again" />
                </button>
              )}
            </div>
          )}
        </footer>
      )}
    </article>
  );
}

/** Until the first token: after a moment, how long it has been. */
function Prefill() {
  const [begin] = useState(Date.now());
  const [now, setNow] = useState(begin);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const s = Math.floor((now - begin) / 1000);
  return (
    <>
      <span class="reading" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      {s >= 2 && <span class="busy-note">Reading the prompt, {s} s</span>}
    </>
  );
}
