import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Icon } from '../ui/icons';
import { Menu } from '../ui/menu';
import { toast } from '../ui/toast';
import { copyText } from '../ui/copy';
import { model } from '../models';
import { openChat, openNew, view } from '../route';
import { changes, chats, currentId, exported, imported, isRunning, removeChat, rename } from './chats';
import { type Chat, toMarkdown } from './tree';

export function download(name: string, data: Blob | string, type = 'text/plain') {
  const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const fileName = (chat: Chat, end: string) => `${(chat.title || 'untitled').replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 60)}.${end}`;

const day = 86400000;
function group(chat: Chat): string {
  const today = new Date().setHours(0, 0, 0, 0);
  if (chat.updated >= today) return 'Today';
  if (chat.updated >= today - day) return 'Yesterday';
  if (chat.updated >= today - 6 * day) return 'This week';
  if (chat.updated >= today - 29 * day) return 'This month';
  return 'Earlier';
}

/** The place of the words in a conversation, or null. */
function excerpt(chat: Chat, words: string): string | null {
  if (chat.title.toLowerCase().includes(words)) return '';
  const texts = [...Object.values(chat.messages).map((m) => m.content), (chat.spans ?? []).map((s) => s.text).join('')];
  for (const text of texts) {
    const at = text.toLowerCase().indexOf(words);
    if (at >= 0) return `${at > 24 ? '…' : ''}${text.slice(Math.max(0, at - 24), at + 60).replace(/\s+/g, ' ')}`;
  }
  return null;
}

function Entry({ chat, note }: { chat: Chat; note: string }) {
  const isRenaming = useSignal(false);
  const isHere = view.value === 'chat' && currentId.value === chat.id;
  const title = chat.title || 'Untitled';
  if (isRenaming.value)
    return (
      <li>
        <input
          class="rename"
          aria-label="New title"
          value={title}
          ref={(e) => {
            if (e && document.activeElement !== e) e.select();
          }}
          onBlur={(e) => {
            if (isRenaming.value) rename(chat, e.currentTarget.value);
            isRenaming.value = false;
          }}
          onKeyDown={(e) => {
            if (e.key === 'Enter') e.currentTarget.blur();
            if (e.key === 'Escape') {
              e.stopPropagation();
              isRenaming.value = false;
            }
          }}
        />
      </li>
    );
  return (
    <li class={isHere ? 'here' : ''}>
      <a href={`#/chat/${chat.id}`} aria-current={isHere ? 'page' : undefined} onClick={() => openChat(chat.id)} onDblClick={() => (isRenaming.value = true)}>
        {chat.kind === 'write' && <Icon name="pen" size={14} />}
        <span class="entry-title">
          {title}
          {note && <small>{note}</small>}
        </span>
        {isRunning(chat) && <span class="pulse" role="img" aria-label="being written" />}
      </a>
      <Menu
        label={`Menu of ${title}`}
        align="end"
        items={[
          { label: 'Rename', icon: 'pen', act: () => (isRenaming.value = true) },
          {
            label: 'Copy as Markdown',
            icon: 'copy',
            act: () => void copyText(toMarkdown(chat)).then((ok) => toast(ok ? 'Copied.' : 'Copying failed.')),
          },
          { label: 'Save as Markdown', icon: 'save', act: () => download(fileName(chat, 'md'), toMarkdown(chat), 'text/markdown') },
          { label: 'Save as JSON', icon: 'save', act: () => download(fileName(chat, 'json'), exported([chat]), 'application/json') },
          { label: 'Delete', icon: 'trash', danger: true, act: () => removeChat(chat) },
        ]}
      >
        <Icon name="more" />
      </Menu>
    </li>
  );
}

export const searchField: { element: HTMLInputElement | null } = { element: null };

export function ChatList() {
  void changes.value;
  const words = useSignal('');
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => () => void (searchField.element = null), []);
  const needle = words.value.trim().toLowerCase();
  const found = chats.value
    .map((chat) => ({ chat, note: needle ? excerpt(chat, needle) : '' }))
    .filter((f): f is { chat: Chat; note: string } => f.note !== null)
    .sort((a, b) => b.chat.updated - a.chat.updated);
  const footText = chats.value.length === 0 ? 'Load conversations' : chats.value.length === 1 ? '1 conversation' : `${chats.value.length} conversations`;
  const groups = new Map<string, typeof found>();
  for (const f of found) groups.set(group(f.chat), [...(groups.get(group(f.chat)) ?? []), f]);
  return (
    <div class="chat-list">
      <div class="new-row">
        <button type="button" class="button new" onClick={() => openNew('chat')} title="New chat (Ctrl+Shift+O)">
          <Icon name="plus" /> New chat
        </button>
        {model.value?.canWrite && (
          <button type="button" class="button new square" onClick={() => openNew('write')} aria-label="New page to write on" title="New page to write on">
            <Icon name="pen" />
          </button>
        )}
      </div>
      <div class="search">
        <Icon name="search" size={16} />
        <input
          type="search"
          placeholder="Search"
          aria-label="Search conversations"
          value={words.value}
          ref={(e) => {
            searchField.element = e;
          }}
          onInput={(e) => (words.value = e.currentTarget.value)}
        />
        <kbd aria-hidden="true">Ctrl K</kbd>
      </div>
      <nav class="entries" aria-label="Conversations" tabIndex={-1}>
        {[...groups].map(([name, list]) => (
          <section>
            <h2>{name}</h2>
            <ul>
              {list.map(({ chat, note }) => (
                <Entry key={chat.id} chat={chat} note={note} />
              ))}
            </ul>
          </section>
        ))}
        {!found.length && <p class="nothing">{needle ? 'Nothing found.' : 'Your conversations will be listed here. They are kept in this browser only.'}</p>}
      </nav>
      <div class="list-foot">
        <Menu
          label={footText}
          class="link subtle"
          side="above"
          items={[
            {
              label: 'Save all as JSON',
              icon: 'save',
              act: () => download('redline-conversations.json', exported(chats.value), 'application/json'),
            },
            { label: 'Load from JSON', icon: 'load', act: () => picker.current?.click() },
          ]}
        >
          {footText}
        </Menu>
        <input
          ref={picker}
          type="file"
          accept="application/json,.json"
          hidden
          aria-label="Conversations to load"
          onChange={async (e) => {
            const file = e.currentTarget.files?.[0];
            e.currentTarget.value = '';
            if (!file) return;
            try {
              const n = imported(await file.text());
              toast(n === 1 ? 'Loaded 1 conversation.' : `Loaded ${n} conversations.`);
            } catch {
              toast(`${file.name} does not hold conversations of this page.`);
            }
          }}
        />
      </div>
    </div>
  );
}
