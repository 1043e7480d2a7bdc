// Short messages at the foot of the page, and the announcements for screen readers.
import { signal } from '@preact/signals';

interface Action {
  label: string;
  act: () => void;
}
const shown = signal<{ id: number; text: string; action?: Action } | null>(null);
const spoken = signal('');
let count = 0;
let timer = 0;

export function toast(text: string, action?: Action) {
  shown.value = { id: ++count, text, action };
  clearTimeout(timer);
  timer = window.setTimeout(() => (shown.value = null), action ? 8000 : 4500);
}

export function announce(text: string) {
  spoken.value = '';
  setTimeout(() => (spoken.value = text), 50);
}

export function Toasts() {
  const t = shown.value;
  return (
    <>
      <div class="toast-place" role="status" aria-live="polite">
        {t && (
          <div class="toast" key={t.id}>
            <span>{t.text}</span>
            {t.action && (
              <button
                type="button"
                onClick={() => {
                  t.action!.act();
                  shown.value = null;
                }}
              >
                {t.action.label}
              </button>
            )}
          </div>
        )}
      </div>
      <div class="offscreen" role="log" aria-live="polite" aria-label="Announcements">
        {spoken.value}
      </div>
    </>
  );
}
