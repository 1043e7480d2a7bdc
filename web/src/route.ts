// The view is in the fragment: #/ (new), #/chat/ID, #/write, #/pictures, #/engine.
import { computed, signal } from '@preact/signals';
import { currentId } from './chat/chats';

const hash = signal(location.hash);
window.addEventListener('hashchange', () => (hash.value = location.hash));

export type View = 'chat' | 'pictures' | 'engine';
export const view = computed<View>(() => {
  if (hash.value.startsWith('#/pictures')) return 'pictures';
  if (hash.value.startsWith('#/engine')) return 'engine';
  return 'chat';
});
/** A new page is to be written on, not to chat. */
export const wantsWriting = computed(() => hash.value === '#/write');

hash.subscribe((h) => {
  const found = /^#\/chat\/(\w+)/.exec(h);
  if (view.value === 'chat') currentId.value = found ? found[1] : null;
});

export const drawerOpen = signal(false);
export const panelOpen = signal(false);

function go(to: string) {
  drawerOpen.value = false;
  // The event of the browser comes later: until then, what is typed would go into the view that was left.
  hash.value = to;
  if (location.hash !== to) location.hash = to;
}
export const openChat = (id: string) => go(`#/chat/${id}`);
export const openNew = (kind: 'chat' | 'write' = 'chat') => go(kind === 'write' ? '#/write' : '#/');
export const openView = (v: View) => go(v === 'chat' ? (currentId.value ? `#/chat/${currentId.value}` : '#/') : `#/${v}`);
