// A page that a person and a model write in turn. The text lies in a text area, whose own letters are transparent; a copy
// behind it shows who wrote what. With the caret in a word of the model, the page offers what else it thought of.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { addChat, current, newChat, revision, running, stop, waiting } from '../chat/chats';
import { ModelMenu } from '../chat/composer';
import { StatsLine } from '../chat/message';
import type { Chat, Span } from '../chat/tree';
import { model } from '../models';
import { openChat, panelOpen } from '../route';
import { kept } from '../storage';
import { Countdown } from '../ui/controls';
import { CopyButton } from '../ui/copy';
import { Icon } from '../ui/icons';
import { setText, showTake, takeBack, writeErrors, writeOn } from './generate';
import { edited, slice, textOfSpans, tokenAt } from './spans';

const beginnings = [
  'Once upon a time, in a house at the edge of the sea,',
  'One day, a little fox found a red kite stuck in a tree.',
  'There was a boy named Tim who loved to count the stars.',
  'The old clock had not ticked for a hundred years. Then, one night,',
];

const showsAuthors = kept('write-authors', true);

export function WriteView() {
  const chat = current.value;
  const area = useRef<HTMLTextAreaElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const caret = useSignal(-1);
  const rev = chat ? revision(chat.id).value : 0;
  const spans = chat?.spans ?? [];
  const text = textOfSpans(spans);
  const isBusy = !!chat && running.value.has(chat.id);
  const wait = chat && waiting.value.get(chat.id);
  const error = chat && writeErrors.get(chat.id);
  const takes = chat?.takes;

  const ensure = (): Chat => {
    if (chat) return chat;
    const fresh = newChat('write');
    fresh.title = 'Untitled page';
    addChat(fresh);
    openChat(fresh.id);
    return fresh;
  };
  const begin = (line: string) => {
    const c = ensure();
    setText(c, [{ text: line, by: 'you' }]);
    void writeOn(c);
  };
  const goOn = () => {
    if (isBusy || !model.value) return;
    const c = ensure();
    void writeOn(c);
  };
  useLayoutEffect(() => {
    const a = area.current!;
    a.style.height = '0';
    a.style.height = `${a.scrollHeight}px`;
    const s = scroller.current!;
    if (isBusy && s.scrollHeight - s.scrollTop - s.clientHeight < 220) s.scrollTop = s.scrollHeight;
  }, [rev, chat?.id, text]);
  useEffect(() => {
    caret.value = -1;
    if (matchMedia('(hover: hover)').matches) area.current?.focus();
  }, [chat?.id]);

  const found = !isBusy && caret.value >= 0 ? tokenAt(spans, caret.value) : null;
  const others = found?.span.token?.top.filter(([t]) => t && t !== found.span.text).slice(0, 5) ?? [];
  const replace = (other: string) => {
    if (!chat || !found) return;
    setText(chat, [...slice(spans, 0, found.begin), { text: other, by: 'you' }]);
    void writeOn(chat);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if ((e.key === 'Enter' && (e.ctrlKey || e.metaKey)) || (e.key === 'Tab' && !e.shiftKey && text && area.current!.selectionStart >= text.length && !isBusy)) {
      e.preventDefault();
      goOn();
    } else if (e.key === 'z' && (e.ctrlKey || e.metaKey) && chat?.takes && !isBusy) {
      e.preventDefault();
      takeBack(chat);
    }
  };
  const words = text.trim() ? text.trim().split(/\s+/).length : 0;
  return (
    <div class="write-view">
      <div class="scroller" ref={scroller}>
        <div class="sheet">
          <h1 class="offscreen">{chat?.title || 'New page'}</h1>
          {!text && !isBusy && (
            <div class="write-welcome">
              <p class="write-lead">Write a beginning. {model.value ? <strong>{model.value.id}</strong> : 'The model'} writes on.</p>
              <div class="beginnings">
                {beginnings.map((b) => (
                  <button type="button" onClick={() => begin(b)} disabled={!model.value}>
                    {b}
                  </button>
                ))}
              </div>
            </div>
          )}
          <div class={`paper ${showsAuthors.value ? 'authors' : ''} ${isBusy ? 'live' : ''}`}>
            <div class="ink" aria-hidden="true">
              {spans.map((s, i) => (
                <Piece key={i} span={s} isFound={s === found?.span} />
              ))}
              {isBusy && <span class="nib" />}
              {'\u200b'}
            </div>
            <textarea
              ref={area}
              aria-label="Text"
              spellcheck={false}
              readOnly={isBusy}
              value={text}
              placeholder={text || isBusy ? undefined : 'Or begin here…'}
              onInput={(e) => {
                const c = ensure();
                setText(c, edited(c.spans ?? [], e.currentTarget.value));
                caret.value = e.currentTarget.selectionStart;
              }}
              onSelect={(e) => (caret.value = e.currentTarget.selectionStart === e.currentTarget.selectionEnd ? e.currentTarget.selectionStart : -1)}
              onKeyDown={onKeyDown}
            />
          </div>
          {wait && (
            <p class="busy-note" role="status">
              {wait.message} Trying again in <Countdown until={wait.until} />
            </p>
          )}
          {error && !isBusy && (
            <div class="trouble" role="alert">
              <div>
                <strong>{error.code === 'context_length_exceeded' ? 'The context is full' : error.status === 0 ? 'The connection broke' : 'The server refused'}</strong>
                <p>{error.message}</p>
              </div>
              <div class="trouble-actions">
                <button type="button" class="button" onClick={goOn}>
                  Try again
                </button>
              </div>
            </div>
          )}
        </div>
      </div>
      <div class="write-bar">
        <div class={`others ${others.length ? 'shown' : ''}`} role="group" aria-label="Other words">
          {others.length > 0 && (
            <>
              <span>
                instead of <q>{visible(found!.span.text)}</q> <i>{percent(found!.span.token!.p)}</i>
              </span>
              {others.map(([t, p]) => (
                <button type="button" onMouseDown={(e) => e.preventDefault()} onClick={() => replace(t)}>
                  {visible(t)} <i>{percent(p)}</i>
                </button>
              ))}
            </>
          )}
        </div>
        <div class="write-row">
          {isBusy && chat ? (
            <button type="button" class="button primary big" onClick={() => stop(chat)} title="Stop (Esc)">
              <Icon name="stop" /> Stop
            </button>
          ) : (
            <button type="button" class="button primary big" onClick={goOn} disabled={!model.value} title="Write on (Tab at the end, or Ctrl+Enter)">
              <Icon name="pen" /> Write on
            </button>
          )}
          <button type="button" class="button" aria-label="Another" disabled={!takes || isBusy} onClick={() => chat && void writeOn(chat, true)}>
            <Icon name="again" size={16} /> <span class="wide">Another</span>
          </button>
          <button type="button" class="button" disabled={!takes || isBusy} onClick={() => chat && takeBack(chat)} aria-label="Take back" title="Take back (Ctrl+Z)">
            <Icon name="undo" size={16} /> <span class="wide">Take back</span>
          </button>
          {takes && takes.versions.length > 1 && (
            <div class="branches" role="group" aria-label="Versions">
              <button type="button" class="icon-button tiny quiet" aria-label="Previous version" disabled={isBusy || takes.shown === 0} onClick={() => showTake(chat!, takes.shown - 1)}>
                <Icon name="left" size={15} />
              </button>
              <span aria-label={`Version ${takes.shown + 1} of ${takes.versions.length}`}>
                {takes.shown + 1}/{takes.versions.length}
              </span>
              <button type="button" class="icon-button tiny quiet" aria-label="Next version" disabled={isBusy || takes.shown === takes.versions.length - 1} onClick={() => showTake(chat!, takes.shown + 1)}>
                <Icon name="right" size={15} />
              </button>
            </div>
          )}
          <span class="spring" />
          <ModelMenu side="above" />
          <button type="button" class={`icon-button quiet authors-button ${showsAuthors.value ? 'on' : ''}`} aria-pressed={showsAuthors.value} aria-label="Show who wrote what" title="Show who wrote what" onClick={() => (showsAuthors.value = !showsAuthors.value)}>
            <span aria-hidden="true">A</span>
          </button>
          <CopyButton text={text} label="Copy the text" />
          <button type="button" class="icon-button quiet" aria-label="Settings of this page" title="Settings of this page (Ctrl+.)" aria-expanded={panelOpen.value} onClick={() => (panelOpen.value = !panelOpen.value)}>
            <Icon name="tune" />
          </button>
        </div>
        <div class="write-foot">
          {chat?.stats ? <StatsLine stats={chat.stats} isLive={isBusy} /> : <span />}
          <span>{words === 1 ? '1 word' : `${words.toLocaleString('en-US')} words`}</span>
        </div>
      </div>
    </div>
  );
}

const visible = (t: string) => t.replace(/^ /, '').replace(/\n/g, '↵') || '␣';
const percent = (p: number) => (p >= 0.995 ? '99+%' : p < 0.01 ? '<1%' : `${Math.round(p * 100)}%`);

/** What was unlikely is underlined. */
function Piece({ span, isFound }: { span: Span; isFound: boolean }) {
  if (span.by === 'you') return <span>{span.text}</span>;
  const isSurprise = (span.token?.p ?? 1) < 0.05;
  // The space before a word is not part of it.
  const space = /^\s*/.exec(span.text)![0];
  return (
    <span class="by-model">
      {space}
      <span class={`${isSurprise ? 'surprise' : ''} ${isFound ? 'found' : ''}`}>{span.text.slice(space.length)}</span>
    </span>
  );
}
