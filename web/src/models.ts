// The models of the server, and the state of the connection.
import { computed, signal } from '@preact/signals';
import { ApiError, connection, json } from './api';
import { kept } from './storage';

export interface ImageDefaults {
  width?: number;
  height?: number;
  steps?: number;
  guidance?: number;
  max_side?: number;
  multiple?: number;
  negative_prompt?: boolean;
  caches?: string[];
}

export interface Model {
  id: string;
  context: number;
  parameters: number;
  size: number;
  architecture: string;
  weightTypes: string;
  canChat: boolean;
  canWrite: boolean;
  canPaint: boolean;
  image: ImageDefaults;
  adapters: string[];
}

interface ModelEntry {
  id: string;
  parent?: string;
  max_model_len?: number;
  capabilities?: string[];
  has_chat_template?: boolean;
  image?: ImageDefaults;
  meta?: {
    architecture?: string;
    n_params?: number;
    size?: number;
    weight_types?: string;
    capabilities?: string[];
    has_chat_template?: boolean;
    image?: ImageDefaults;
  };
}

export const models = signal<Model[]>([]);
/** Models whose chat the server refused: they have no template. */
const withoutTemplate = signal<string[]>([]);
export const chosenModel = kept('model', '');
/** Models that are used to write on although they can chat. */
export const pictureModel = kept('picture-model', '');

export const textModels = computed(() => models.value.filter((m) => m.canChat || m.canWrite));
export const imageModels = computed(() => models.value.filter((m) => m.canPaint));
export const hasPictures = computed(() => imageModels.value.length > 0);
export const model = computed<Model | undefined>(
  () => textModels.value.find((m) => m.id === chosenModel.value) ?? textModels.value[0],
);
export const canChat = (m: Model | undefined) => !!m?.canChat && !withoutTemplate.value.includes(m.id);
export const noteNoTemplate = (id: string) => {
  withoutTemplate.value = [...withoutTemplate.value, id];
};

/**
 * Returns the type of most weights in a list such as "f32 x61, q4_1 x210, q8_0 x1". Norms are f32 in files of every type, so
 * f32 is returned only if there is no other.
 */
export function mainType(weightTypes: string): string {
  const types = weightTypes.split(', ').map((t) => t.split(' x'));
  const others = types.filter(([name]) => name !== 'f32');
  return (others.length ? others : types).reduce((a, b) => (Number(b[1]) > Number(a[1]) ? b : a))[0];
}

function toModels(entries: ModelEntry[]): Model[] {
  return entries
    .filter((e) => !e.parent)
    .map((e) => {
      const meta = e.meta ?? {};
      const capabilities = e.capabilities ?? meta.capabilities;
      const hasTemplate = e.has_chat_template ?? meta.has_chat_template ?? true;
      return {
        id: e.id,
        context: e.max_model_len ?? 0,
        parameters: meta.n_params ?? 0,
        size: meta.size ?? 0,
        architecture: meta.architecture ?? '',
        weightTypes: meta.weight_types ?? '',
        canChat: capabilities ? capabilities.includes('chat') : hasTemplate,
        canWrite: capabilities ? capabilities.includes('completion') : true,
        canPaint: capabilities?.includes('image') ?? false,
        image: e.image ?? meta.image ?? {},
        adapters: entries.filter((a) => a.parent === e.id).map((a) => a.id.slice(e.id.length + 1)),
      };
    });
}

let waiting: ReturnType<typeof setTimeout> | undefined;
let delay_ms = 1000;

/** Asks until there is an answer. */
export async function refreshModels(): Promise<void> {
  clearTimeout(waiting);
  try {
    const answer = await json<{ data: ModelEntry[] }>('v1/models', { timeout_ms: 8000 });
    models.value = toModels(answer.data ?? []);
    connection.value = models.value.length ? 'ok' : 'loading';
    delay_ms = 1000;
    if (!models.value.length) waiting = setTimeout(refreshModels, 1000);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return;
    connection.value = error instanceof ApiError && error.status === 503 ? 'loading' : 'gone';
    waiting = setTimeout(refreshModels, delay_ms);
    delay_ms = Math.min(delay_ms * 1.5, 8000);
  }
}

connection.subscribe((state) => {
  if (state === 'gone') {
    clearTimeout(waiting);
    waiting = setTimeout(refreshModels, delay_ms);
  }
});
window.addEventListener('online', () => void refreshModels());

export function billions(n: number): string {
  if (!n) return '';
  if (n >= 1e9) return `${(n / 1e9).toFixed(n < 1e10 ? 1 : 0)}B`;
  return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M`;
}
