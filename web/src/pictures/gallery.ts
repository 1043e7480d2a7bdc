// The images that were painted, kept in the browser, and those that are being painted.
import { signal } from '@preact/signals';
import { ApiError } from '../api';
import { newId, storage } from '../storage';
import { announce, toast } from '../ui/toast';
import { type Input, paint, type Progress } from './predictions';

export interface Picture {
  id: string;
  created: number;
  model: string;
  input: Input;
  seed?: number;
  seconds: number;
  executedShare?: number;
  blob: Blob;
}

export interface Job {
  id: string;
  model: string;
  input: Input;
  abort: AbortController;
  progress: Progress;
  begin: number;
  error?: string;
}

export const pictures = signal<Picture[]>([]);
export const jobs = signal<Job[]>([]);
const urls = new Map<string, string>();

export function urlOfPicture(p: Picture): string {
  let url = urls.get(p.id);
  if (!url) urls.set(p.id, (url = URL.createObjectURL(p.blob)));
  return url;
}

export async function loadPictures() {
  const all = await storage.all<Picture>('pictures').catch(() => []);
  pictures.value = [...pictures.value, ...all].sort((a, b) => b.created - a.created);
}

/** What is gone from the gallery is gone from storage: a reload right after it must not bring it back. */
export async function removePicture(p: Picture) {
  try {
    await storage.remove('pictures', p.id);
  } catch {
    toast('The browser could not delete the picture.');
    return;
  }
  pictures.value = pictures.value.filter((x) => x !== p);
  toast('Deleted the picture.', {
    label: 'Undo',
    act: () => {
      pictures.value = [...pictures.value, p].sort((a, b) => b.created - a.created);
      void storage.put('pictures', p);
    },
  });
}

export async function start(model: string, input: Input) {
  const job: Job = { id: newId(), model, input, abort: new AbortController(), progress: {}, begin: Date.now() };
  jobs.value = [...jobs.value, job];
  const update = (change: Partial<Job>) => (jobs.value = jobs.value.map((j) => (j.id === job.id ? { ...j, ...change } : j)));
  const drop = () => (jobs.value = jobs.value.filter((j) => j.id !== job.id));
  try {
    const done = await paint(model, input, job.abort.signal, (progress) => {
      const now = jobs.value.find((j) => j.id === job.id);
      // If a step has no preview, the previous one stays.
      update({ progress: { ...progress, previews: progress.previews ?? now?.progress.previews } });
    });
    const now = Date.now();
    const fresh = done.pictures.map((blob, i): Picture => ({
      id: newId(),
      created: now - i,
      model,
      input: { ...input, image: undefined },
      seed: done.seeds[i],
      seconds: done.seconds,
      executedShare: done.executedShare,
      blob,
    }));
    drop();
    pictures.value = [...fresh, ...pictures.value];
    announce('The picture is done.');
    for (const p of fresh) storage.put('pictures', p).catch(() => toast('The browser could not store the picture.'));
  } catch (error) {
    if (job.abort.signal.aborted || (error instanceof DOMException && error.name === 'AbortError')) drop();
    else update({ error: error instanceof ApiError ? error.message : 'The server sent something that is not a picture.' });
  }
}

export const dismiss = (job: Job) => (jobs.value = jobs.value.filter((j) => j.id !== job.id));
