// The frame: views, list of conversations, theme, keys, and problems of the connection.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { connection, setKey } from './api';
import { composer } from './chat/composer';
import { chatsLoaded, current, currentId, isRunning, loadChats, stop } from './chat/chats';
import { Panel } from './chat/panel';
import { ChatList, searchField } from './chat/sidebar';
import { ChatView } from './chat/view';
import { EngineView } from './engine/view';
import { canChat, hasPictures, model, refreshModels } from './models';
import { loadPictures } from './pictures/gallery';
import { PicturesView } from './pictures/view';
import { drawerOpen, openNew, openView, panelOpen, type View, view, wantsWriting } from './route';
import { kept, storageKind } from './storage';
import { Dialog } from './ui/dialog';
import { Icon, type IconName, Mark } from './ui/icons';
import { Toasts } from './ui/toast';
import { WriteView } from './write/view';

type Theme = 'auto' | 'light' | 'dark';
const theme = kept<Theme>('theme', 'auto');
theme.subscribe((t) => {
  if (t === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = t;
});
const showsKeys = signal(false);

const views: [View, string, IconName][] = [
  ['chat', 'Chat', 'chat'],
  ['pictures', 'Pictures', 'picture'],
  ['engine', 'Engine', 'gauge'],
];

function Views() {
  return (
    <nav class="views" aria-label="Views">
      {views
        .filter(([v]) => v !== 'pictures' || hasPictures.value || view.value === 'pictures')
        .map(([v, name, icon]) => (
          <a
            href={v === 'chat' ? (currentId.value ? `#/chat/${currentId.value}` : '#/') : `#/${v}`}
            aria-current={view.value === v ? 'page' : undefined}
            onClick={(e) => {
              e.preventDefault();
              openView(v);
            }}
          >
            <Icon name={icon} size={20} />
            <span>{name}</span>
          </a>
        ))}
    </nav>
  );
}

function ThemeButton() {
  const next: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' };
  const names: Record<Theme, string> = { auto: 'as the system', light: 'light', dark: 'dark' };
  const icons: Record<Theme, IconName> = { auto: 'auto', light: 'sun', dark: 'moon' };
  const label = `Colours: ${names[theme.value]}`;
  return (
    <button type="button" class="icon-button quiet" aria-label={label} title={label} onClick={() => (theme.value = next[theme.value])}>
      <Icon name={icons[theme.value]} />
    </button>
  );
}

function Status() {
  const texts = {
    connecting: 'Connecting',
    ok: model.value ? 'Connected' : 'Connected, no text model',
    gone: 'Server gone',
    loading: 'Models are loading',
    key: 'Key needed',
  };
  return (
    <p class={`status ${connection.value}`}>
      <i aria-hidden="true" />
      {texts[connection.value]}
    </p>
  );
}

function Sidebar() {
  return (
    <aside class={`sidebar ${drawerOpen.value ? 'open' : ''}`} aria-label="Sidebar">
      <div class="brand">
        <Mark />
        <span>Redline</span>
        <button type="button" class="icon-button quiet drawer-close" aria-label="Close the list" onClick={() => (drawerOpen.value = false)}>
          <Icon name="close" />
        </button>
      </div>
      <Views />
      <ChatList />
      <div class="side-foot">
        <Status />
        <span class="spring" />
        <button type="button" class="icon-button quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (Ctrl+/)" onClick={() => (showsKeys.value = true)}>
          <Icon name="keys" />
        </button>
        <ThemeButton />
      </div>
    </aside>
  );
}

function TopBar() {
  const chat = current.value;
  const title = view.value === 'engine' ? 'Engine room' : view.value === 'pictures' ? 'Pictures' : chat?.title || (wantsWriting.value ? 'New page' : 'New chat');
  return (
    <div class="top-bar">
      <button type="button" class="icon-button" aria-label="Conversations and views" aria-expanded={drawerOpen.value} onClick={() => (drawerOpen.value = true)}>
        <Icon name="menu" size={20} />
      </button>
      <span class="top-title">{title}</span>
      {view.value === 'chat' ? (
        <button type="button" class="icon-button" aria-label="New chat" onClick={() => openNew('chat')}>
          <Icon name="plus" size={20} />
        </button>
      ) : (
        <button type="button" class="icon-button" aria-label="Back to the chat" onClick={() => openView('chat')}>
          <Icon name="chat" size={20} />
        </button>
      )}
    </div>
  );
}

function Banner() {
  if (connection.value === 'gone')
    return (
      <div class="banner" role="alert">
        <span class="banner-pulse" aria-hidden="true" />
        <span>
          <strong>The server is gone.</strong> Everything here is kept; it goes on when the server is back.
        </span>
        <button type="button" class="link" onClick={() => void refreshModels()}>
          Look now
        </button>
      </div>
    );
  if (connection.value === 'loading')
    return (
      <div class="banner calm" role="status">
        <span class="banner-pulse" aria-hidden="true" />
        <span>The models are being loaded.</span>
      </div>
    );
  if (storageKind.value === 'memory')
    return (
      <div class="banner calm" role="status">
        <span>This browser keeps nothing for this page: conversations end with it.</span>
      </div>
    );
  return null;
}

function KeyDialog() {
  return (
    <Dialog title="This server wants a key" onClose={() => (connection.value = 'connecting')} class="small">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          setKey(String(new FormData(e.currentTarget).get('key') ?? ''));
          connection.value = 'connecting';
          void refreshModels();
        }}
      >
        <p>It is kept in this browser and sent to this server only.</p>
        <div class="field">
          <label for="key">API key</label>
          <input id="key" name="key" type="password" autocomplete="off" required />
        </div>
        <div class="edit-actions">
          <button type="submit" class="button primary">
            Connect
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const shortcuts: [string, string][] = [
  ['Ctrl Shift O', 'New chat'],
  ['Ctrl K', 'Search conversations'],
  ['/', 'To the message field'],
  ['Enter', 'Send'],
  ['Shift Enter', 'New line'],
  ['↑', 'Edit your last message, in an empty field'],
  ['Esc', 'Stop'],
  ['Ctrl .', 'Settings of this conversation'],
  ['Tab, Ctrl Enter', 'Write on, at the end of a page'],
  ['Ctrl Z', 'Take back what was written on'],
  ['Alt 1 2 3', 'Chat, pictures, engine'],
  ['Ctrl /', 'This list'],
];

function KeysDialog() {
  return (
    <Dialog title="Keyboard" onClose={() => (showsKeys.value = false)} class="small">
      <dl class="keys">
        {shortcuts.map(([keys, what]) => (
          <div>
            <dt>
              {keys.split(' ').map((k) => (
                <kbd>{k.replace(',', '')}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="about">
        The API is described in <a href="openapi.json">openapi.json</a>. This page uses <a href="licenses.txt">free software</a>.
      </p>
    </Dialog>
  );
}

const isNarrow = () => matchMedia('(max-width: 860px)').matches;

function onKey(e: KeyboardEvent) {
  const isCommand = e.ctrlKey || e.metaKey;
  const target = e.target as HTMLElement;
  const isTyping = target.matches?.('input, textarea, select');
  if (document.querySelector('dialog[open]')) return;
  if (isCommand && e.shiftKey && e.key.toLowerCase() === 'o') openNew('chat');
  else if (isCommand && !e.shiftKey && e.key.toLowerCase() === 'k') {
    drawerOpen.value = isNarrow();
    requestAnimationFrame(() => searchField.element?.focus());
  } else if (isCommand && e.key === '.') panelOpen.value = !panelOpen.value;
  else if (isCommand && e.key === '/') showsKeys.value = true;
  else if (e.altKey && '123'.includes(e.key) && e.key.length === 1) openView(views[Number(e.key) - 1][0]);
  else if (e.key === '/' && !isTyping && composer.element) composer.element.focus();
  else if (e.key === 'Escape') {
    if (drawerOpen.value) drawerOpen.value = false;
    else if (view.value === 'chat' && isRunning(current.value)) stop(current.value!);
    else if (panelOpen.value) panelOpen.value = false;
    else return;
  } else return;
  e.preventDefault();
}

export function App() {
  useEffect(() => {
    void refreshModels();
    void loadChats();
    void loadPictures();
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  const chat = current.value;
  const v = view.value;
  // The conversation no longer exists: show an empty page.
  if (chatsLoaded.value && currentId.value && !chat && v === 'chat') queueMicrotask(() => openNew('chat'));
  const isWriting = chat ? chat.kind === 'write' : wantsWriting.value || (!!model.value && !canChat(model.value));
  useEffect(() => {
    const name = v === 'engine' ? 'Engine room' : v === 'pictures' ? 'Pictures' : chat?.title;
    document.title = name ? `${name} · Redline` : 'Redline';
  }, [v, chat?.title]);
  // The focus follows the drawer in and out.
  const hadDrawer = useRef(false);
  useEffect(() => {
    if (drawerOpen.value) document.querySelector<HTMLElement>('.drawer-close')?.focus();
    else if (hadDrawer.current) document.querySelector<HTMLElement>('.top-bar button')?.focus();
    hadDrawer.current = drawerOpen.value;
  }, [drawerOpen.value]);
  const hasPanel = panelOpen.value && v === 'chat';
  return (
    <div class={`app ${hasPanel ? 'with-panel' : ''}`}>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById('main')?.focus())}>
        To the content
      </a>
      <Sidebar />
      {drawerOpen.value && <div class="shade" aria-hidden="true" onClick={() => (drawerOpen.value = false)} />}
      <main id="main" tabIndex={-1} inert={drawerOpen.value && isNarrow()}>
        <TopBar />
        <Banner />
        {v === 'engine' ? <EngineView /> : v === 'pictures' ? <PicturesView /> : isWriting ? <WriteView key="write" /> : <ChatView />}
      </main>
      {hasPanel && <div class="panel-shade" aria-hidden="true" onClick={() => (panelOpen.value = false)} />}
      {hasPanel && <Panel />}
      {connection.value === 'key' && <KeyDialog />}
      {showsKeys.value && <KeysDialog />}
      <Toasts />
    </div>
  );
}

