import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { model } from '../models';
import { Icon, Mark } from '../ui/icons';
import { openChat } from '../route';
import { addFiles, Composer } from './composer';
import { current, isRunning, newChat, revision, running, send } from './chats';
import { MessageView } from './message';
import { type Attachment, type Chat, path } from './tree';

const ideas = [
  ['Explain', 'how a suspension bridge carries its own weight, for a curious ten-year-old'],
  ['Draft', 'a short note that declines a meeting and proposes a written summary instead'],
  ['Write', 'a Python function that merges overlapping intervals, with tests'],
  ['Compare', 'three ways to keep basil alive on a windowsill, as a table'],
];
const smallIdeas = [
  ['Tell me', 'a story about a dragon who is afraid of the dark'],
  ['Tell me', 'a story about a small boat and a big wave'],
  ['Write', 'a story with the words lantern, rabbit and snow'],
  ['Ask', 'who are you?'],
];

function Welcome({ onPick }: { onPick: (text: string) => void }) {
  const m = model.value;
  const isSmall = !!m && m.parameters > 0 && m.parameters < 1e8;
  return (
    <div class="welcome">
      <Mark size={52} />
      <h1>{greeting()}</h1>
      <p class="welcome-note">
        {m ? (
          <>
            You are talking to <strong>{m.id}</strong>. Everything stays on this machine and in this browser.
          </>
        ) : (
          'Waiting for the server’s models.'
        )}
      </p>
      {m && (
        <div class="ideas">
          {(isSmall ? smallIdeas : ideas).map(([verb, rest]) => (
            <button type="button" class="idea" onClick={() => onPick(verb === 'Ask' ? capital(rest) : `${verb} ${rest}`)}>
              <span>
                <strong>{verb}</strong> {rest}
              </span>
              <Icon name="arrow" size={16} />
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

const capital = (s: string) => s[0].toUpperCase() + s.slice(1);

function greeting(): string {
  const hour = new Date().getHours();
  return hour < 5 ? 'Still up?' : hour < 12 ? 'Good morning' : hour < 18 ? 'Good afternoon' : 'Good evening';
}

export function ChatView() {
  const chat = current.value;
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const isAway = useSignal(false);
  const isDropping = useSignal(false);
  const editing = useSignal<string | null>(null);
  const messages = chat ? path(chat) : [];
  const last = messages[messages.length - 1];
  const isBusy = isRunning(chat);
  // New text is followed only if the end of the conversation is visible.
  const onScroll = () => {
    const s = scroller.current!;
    follows.current = s.scrollHeight - s.scrollTop - s.clientHeight < 80;
    isAway.value = !follows.current;
  };
  const toEnd = () => scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  const rev = last ? revision(last.id).value : 0;
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  }, [rev, messages.length, last?.id, isBusy]);
  useEffect(() => {
    follows.current = true;
    isAway.value = false;
    editing.value = null;
    toEnd();
  }, [chat?.id]);

  const say = (text: string, files: Attachment[]) => {
    const target: Chat = chat ?? newChat('chat');
    follows.current = true;
    send(target, target.leaf, text, files);
    if (!chat) openChat(target.id);
  };
  const editLast = () => {
    const mine = messages.filter((m) => m.role === 'user').pop();
    if (mine && !isBusy) editing.value = mine.id;
  };
  return (
    <div
      class={`chat-view ${isDropping.value ? 'dropping' : ''}`}
      onDragOver={(e) => {
        if (![...(e.dataTransfer?.types ?? [])].includes('Files')) return;
        e.preventDefault();
        isDropping.value = true;
      }}
      onDragLeave={(e) => {
        if (!(e.currentTarget as Node).contains(e.relatedTarget as Node)) isDropping.value = false;
      }}
      onDrop={(e) => {
        e.preventDefault();
        isDropping.value = false;
        void addFiles(chat?.id ?? 'new', [...(e.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="scroller" ref={scroller} onScroll={onScroll} tabIndex={messages.length ? 0 : -1} role="region" aria-label="Conversation">
        {messages.length ? (
          <div class="messages" aria-busy={isBusy}>
            <h1 class="offscreen">{chat!.title}</h1>
            {messages.map((m) => (
              <MessageView
                key={m.id}
                chat={chat!}
                message={m}
                isLast={m === last}
                editing={editing.value === m.id}
                onEdit={(id) => (editing.value = id)}
              />
            ))}
          </div>
        ) : (
          <Welcome onPick={(text) => say(text, [])} />
        )}
      </div>
      <div class="composer-place">
        {isAway.value && messages.length > 0 && (
          <button
            type="button"
            class="to-end"
            aria-label="To the end"
            onClick={() => {
              follows.current = true;
              toEnd();
            }}
          >
            <Icon name="down" size={16} />
            {last && running.value.has(last.id) ? 'Follow' : 'To the end'}
          </button>
        )}
        <Composer chat={chat} onSend={say} onEditLast={editLast} />
        <p class="fineprint">Models make mistakes. Check what matters.</p>
      </div>
      {isDropping.value && (
        <div class="drop-note" aria-hidden="true">
          <Icon name="attach" size={26} />
          Drop text files here
        </div>
      )}
    </div>
  );
}
