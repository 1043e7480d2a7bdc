// Where a message is written: text, files by button, paste or drag, model and settings.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { billions, chosenModel, mainType, model, textModels } from '../models';
import { connection } from '../api';
import { Area } from '../ui/controls';
import { Icon } from '../ui/icons';
import { Menu } from '../ui/menu';
import { toast } from '../ui/toast';
import { panelOpen } from '../route';
import { adaptersFor, current, defaultAdapters, isRunning, stop } from './chats';
import type { Attachment, Chat } from './tree';

const kMaxFileBytes = 2 << 20;
const kLongPaste = 4000;

const drafts = new Map<string, { text: string; files: Attachment[] }>();
const revision = signal(0);
export const composer: { element: HTMLTextAreaElement | null } = { element: null };

const draftOf = (id: string) => {
  let d = drafts.get(id);
  if (!d) drafts.set(id, (d = { text: '', files: [] }));
  return d;
};

export async function addFiles(id: string, list: Iterable<File>) {
  const draft = draftOf(id);
  for (const file of list) {
    if (file.size > kMaxFileBytes) {
      toast(`${file.name} is larger than 2 MB.`);
      continue;
    }
    const text = await file.text();
    if (text.includes('\u0000') || /\ufffd{3}/.test(text)) toast(`${file.name} is not a text file.`);
    else draft.files = [...draft.files, { name: file.name, text }];
  }
  ++revision.value;
}

export function ModelMenu({ side }: { side: 'above' | 'below' }) {
  const m = model.value;
  if (!m) return <span class="model-name none">{connection.value === 'ok' ? 'no text model' : 'no model yet'}</span>;
  const active = adaptersFor(current.value ?? ({ adapters: defaultAdapters.value } as Chat), m.adapters).map((a) => a.name);
  const face = (
    <>
      <span class="model-name">{m.id}</span>
      {active.length > 0 && <span class="model-adapters"> + {active.join(', ')}</span>}
      <Icon name="down" size={14} />
    </>
  );
  return (
    <Menu
      label={`Model: ${[m.id, ...(active.length ? [active.join(', ')] : [])].join(' + ')}`}
      class="model-button"
      side={side}
      header="Models"
      items={textModels.value.map((t) => ({
        label: t.id,
        note: [billions(t.parameters), mainType(t.weightTypes), t.context ? `${t.context.toLocaleString('en-US')} tokens` : '']
          .filter(Boolean)
          .join(' · '),
        checked: t.id === m.id,
        act: () => (chosenModel.value = t.id),
      }))}
    >
      {face}
    </Menu>
  );
}

export function Composer({ chat, onSend, onEditLast }: {
  chat: Chat | undefined;
  onSend: (text: string, files: Attachment[]) => void;
  onEditLast: () => void;
}) {
  void revision.value;
  const id = chat?.id ?? 'new';
  const draft = draftOf(id);
  const isBusy = isRunning(chat);
  const canSend = !isBusy && !!model.value && (draft.text.trim() !== '' || draft.files.length > 0);
  const picker = useRef<HTMLInputElement>(null);
  const submit = () => {
    if (!canSend) return;
    const { text, files } = draft;
    drafts.delete(id);
    ++revision.value;
    onSend(text.trim(), files);
  };
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) composer.element?.focus();
  }, [id]);
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && (matchMedia('(hover: hover)').matches || e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      submit();
    } else if (e.key === 'ArrowUp' && !draft.text) {
      e.preventDefault();
      onEditLast();
    }
  };
  const onPaste = (e: ClipboardEvent) => {
    const files = [...(e.clipboardData?.files ?? [])];
    const text = e.clipboardData?.getData('text/plain') ?? '';
    if (files.length) {
      e.preventDefault();
      void addFiles(id, files);
    } else if (text.length > kLongPaste) {
      e.preventDefault();
      draft.files = [...draft.files, { name: `pasted-${draft.files.length + 1}.txt`, text }];
      ++revision.value;
    }
  };
  return (
    <form
      class={`composer ${isBusy ? 'busy' : ''}`}
      onSubmit={(e) => {
        e.preventDefault();
        submit();
      }}
    >
      {draft.files.length > 0 && (
        <ul class="chips" aria-label="Files to send">
          {draft.files.map((f, i) => (
            <li class="chip">
              <Icon name="file" size={15} />
              <span>{f.name}</span>
              <button
                type="button"
                class="icon-button tiny quiet"
                aria-label={`Remove ${f.name}`}
                onClick={() => {
                  draft.files = draft.files.filter((_, k) => k !== i);
                  ++revision.value;
                }}
              >
                <Icon name="close" size={13} />
              </button>
            </li>
          ))}
        </ul>
      )}
      <Area
        label="Message"
        placeholder={chat?.leaf ? 'Reply' : 'Ask anything'}
        value={draft.text}
        onInput={(t) => {
          draft.text = t;
          ++revision.value;
        }}
        areaRef={(e) => (composer.element = e)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div class="composer-row">
        <button type="button" class="icon-button quiet" aria-label="Add text files" title="Add text files" onClick={() => picker.current?.click()}>
          <Icon name="attach" />
        </button>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label="Text files"
          onChange={(e) => {
            void addFiles(id, [...(e.currentTarget.files ?? [])]);  // the list is emptied with the field
            e.currentTarget.value = '';
          }}
        />
        <ModelMenu side="above" />
        <span class="spring" />
        <button
          type="button"
          class="icon-button quiet"
          aria-label="Settings of this chat"
          title="Settings of this chat (Ctrl+.)"
          aria-expanded={panelOpen.value}
          onClick={() => (panelOpen.value = !panelOpen.value)}
        >
          <Icon name="tune" />
        </button>
        {isBusy && chat ? (
          <button type="button" class="send stop" aria-label="Stop" title="Stop (Esc)" onClick={() => stop(chat)}>
            <Icon name="stop" size={20} />
          </button>
        ) : (
          <button type="submit" class="send" aria-label="Send" title="Send (Enter)" disabled={!canSend}>
            <Icon name="send" size={20} />
          </button>
        )}
      </div>
    </form>
  );
}
