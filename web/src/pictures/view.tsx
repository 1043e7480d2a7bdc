import { useSignal } from '@preact/signals';
import { useId, useRef } from 'preact/hooks';
import { download } from '../chat/sidebar';
import { imageModels, pictureModel } from '../models';
import { kept } from '../storage';
import { Area, NumberInput, Slider } from '../ui/controls';
import { Dialog } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { toast } from '../ui/toast';
import { dismiss, type Job, jobs, type Picture, pictures, removePicture, start, urlOfPicture } from './gallery';
import type { Input } from './predictions';

interface Form {
  prompt: string;
  negative: string;
  width?: number;
  height?: number;
  steps?: number;
  guidance?: number;
  seed?: number;
  batch: number;
  quality?: number;
  cache: string;
  strength: number;
}

const form = kept<Form>('picture-form', { prompt: '', negative: '', batch: 1, cache: '', strength: 0.7 });
const set = (change: Partial<Form>) => (form.value = { ...form.value, ...change });

const shapes: [string, number, number][] = [
  ['Square', 1, 1],
  ['Portrait', 3, 4],
  ['Landscape', 4, 3],
  ['Wide', 16, 9],
];

const cacheNames: Record<string, string> = { auto: 'Automatic', none: 'Every step in full' };

function asDataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

function JobCard({ job }: { job: Job }) {
  const { step = 0, steps = 0, position, previews } = job.progress;
  const share = steps ? step / steps : 0;
  const text = job.error ? job.error : steps ? `Step ${step} of ${steps}` : position ? `Number ${position} in the queue` : 'Starting';
  return (
    <div class={`job ${job.error ? 'failed' : ''}`}>
      <div class="job-pictures" style={{ '--ratio': String(job.input.width / job.input.height) }}>
        {Array.from({ length: job.input.batch }, (_, i) =>
          previews?.[i] ? <img src={previews[i]} alt="" /> : <span class="blank" />,
        )}
      </div>
      <div class="job-foot">
        <p role={job.error ? 'alert' : undefined}>
          <strong>{text}</strong>
          <span>{job.input.prompt}</span>
        </p>
        {job.error ? (
          <button type="button" class="button" onClick={() => dismiss(job)}>
            Close
          </button>
        ) : (
          <button type="button" class="button" onClick={() => job.abort.abort()}>
            Cancel
          </button>
        )}
      </div>
      {!job.error && (
        <div class="job-bar" role="progressbar" aria-label="Progress" aria-valuemin={0} aria-valuemax={steps || 1} aria-valuenow={step}>
          <span style={{ width: `${share * 100}%` }} />
        </div>
      )}
    </div>
  );
}

function Detail({ picture, onClose, onInit }: { picture: Picture; onClose: () => void; onInit: (p: Picture) => void }) {
  const { input } = picture;
  const rows: [string, string][] = [
    ['Model', picture.model],
    ['Size', `${input.width} × ${input.height}`],
  ];
  if (picture.seed !== undefined) rows.push(['Seed', String(picture.seed)]);
  if (input.steps) rows.push(['Steps', String(input.steps)]);
  if (input.guidance !== undefined) rows.push(['Guidance', String(input.guidance)]);
  if (input.negative_prompt) rows.push(['Without', input.negative_prompt]);
  if (input.cache) rows.push(['Step cache', cacheNames[input.cache] ?? input.cache]);
  rows.push(['Took', `${picture.seconds.toFixed(1)} s${picture.executedShare !== undefined && picture.executedShare < 0.995 ? `, ${Math.round(picture.executedShare * 100)} % of the work` : ''}`]);
  return (
    <Dialog title="Picture" onClose={onClose} class="picture-dialog">
      <div class="picture-detail">
        <img src={urlOfPicture(picture)} alt={input.prompt} />
        <div>
          <p class="picture-prompt">{input.prompt}</p>
          <dl class="facts">
            {rows.map(([name, value]) => (
              <div>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
          <div class="picture-actions">
            <button type="button" class="button primary" onClick={() => download(`redline-${picture.seed ?? picture.id}.${picture.blob.type.split('/')[1] ?? 'png'}`, picture.blob)}>
              <Icon name="save" size={16} /> Download
            </button>
            <button
              type="button"
              class="button"
              onClick={() => {
                set({
                  prompt: input.prompt, negative: input.negative_prompt ?? '', width: input.width, height: input.height, steps: input.steps,
                  guidance: input.guidance, seed: picture.seed, cache: input.cache ?? '', quality: input.quality,
                });
                onClose();
                toast('The settings of this picture are set.');
              }}
            >
              <Icon name="tune" size={16} /> Use its settings
            </button>
            <button
              type="button"
              class="button"
              onClick={() => {
                onInit(picture);
                onClose();
              }}
            >
              <Icon name="picture" size={16} /> Start from it
            </button>
            <button
              type="button"
              class="button danger"
              onClick={() => {
                onClose();
                removePicture(picture);
              }}
            >
              <Icon name="trash" size={16} /> Delete
            </button>
          </div>
        </div>
      </div>
    </Dialog>
  );
}

export function PicturesView() {
  const f = form.value;
  const m = imageModels.value.find((x) => x.id === pictureModel.value) ?? imageModels.value[0];
  const init = useSignal<{ url: string; name: string } | null>(null);
  const open = useSignal<Picture | null>(null);
  const picker = useRef<HTMLInputElement>(null);
  const id = useId();
  const d = m?.image ?? {};
  const side = d.width ?? 1024;
  const width = f.width ?? d.width ?? side;
  const height = f.height ?? d.height ?? side;
  const multiple = d.multiple ?? 16;
  const sizeOf = (w: number, h: number): [number, number] => {
    const scale = Math.sqrt((side * (d.height ?? side)) / (w * h));
    const round = (v: number) => Math.max(multiple, Math.round((v * scale) / multiple) * multiple);
    return [round(w), round(h)];
  };
  const caches = d.caches ?? ['auto', 'none'];
  const go = () => {
    if (!m || !f.prompt.trim()) return;
    const input: Input = {
      prompt: f.prompt.trim(),
      width,
      height,
      batch: f.batch,
      seed: f.seed ?? Math.floor(Math.random() * 2 ** 31),
    };
    if (f.negative.trim()) input.negative_prompt = f.negative.trim();
    if (f.steps) input.steps = f.steps;
    if (f.guidance !== undefined) input.guidance = f.guidance;
    if (f.quality !== undefined) input.quality = f.quality;
    if (f.cache) input.cache = f.cache;
    if (init.value) Object.assign(input, { image: init.value.url, strength: f.strength });
    void start(m.id, input);
    // On a phone the image appears below the form.
    requestAnimationFrame(() => {
      const j = document.querySelector('.gallery-place');
      if (j && j.getBoundingClientRect().top > innerHeight * 0.6) j.scrollIntoView({ block: 'start', behavior: 'smooth' });
    });
  };
  const useFile = async (file: File | undefined) => {
    if (!file) return;
    if (!/^image\/(png|jpeg|webp)$/.test(file.type)) return toast('A picture to start from is PNG, JPEG or WebP.');
    init.value = { url: await asDataUrl(file), name: file.name };
  };
  if (!m)
    return (
      <div class="pictures-view scroller">
        <p class="nothing big">This server has no model for pictures.</p>
      </div>
    );
  return (
    <div
      class="pictures-view scroller"
      onDragOver={(e) => e.preventDefault()}
      onDrop={(e) => {
        e.preventDefault();
        void useFile(e.dataTransfer?.files[0]);
      }}
    >
      <div class="pictures">
        <form
          class="paint"
          aria-label="Picture"
          onSubmit={(e) => {
            e.preventDefault();
            go();
          }}
        >
          <h1>Pictures</h1>
          <div class="field">
            <Area
              label="Prompt"
              class="prompt"
              value={f.prompt}
              rows={3}
              placeholder="What should it show?"
              onInput={(prompt) => set({ prompt })}
              onKeyDown={(e) => {
                if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
                  e.preventDefault();
                  go();
                }
              }}
            />
          </div>
          <button type="submit" class="button primary big" disabled={!f.prompt.trim()} title="Paint (Ctrl+Enter)">
            {f.batch > 1 ? `Paint ${f.batch} pictures` : 'Paint'}
          </button>
          <div class="shapes" role="radiogroup" aria-label="Shape">
            {shapes.map(([name, w, h]) => {
              const [a, b] = sizeOf(w, h);
              return (
                <label class={a === width && b === height ? 'on' : ''}>
                  <input type="radio" name="shape" checked={a === width && b === height} onChange={() => set({ width: a, height: b })} />
                  <i aria-hidden="true" style={{ aspectRatio: `${w} / ${h}`, [w >= h ? 'width' : 'height']: '20px' }} />
                  <span>{name}</span>
                  <small>
                    {a}×{b}
                  </small>
                </label>
              );
            })}
          </div>
          <div class="field-pair">
            <NumberInput label="Pictures" min={1} max={8} value={f.batch} onChange={(v) => set({ batch: Math.min(8, Math.max(1, v ?? 1)) })} />
            <NumberInput label="Seed" min={0} value={f.seed} placeholder="random" onChange={(seed) => set({ seed })} />
          </div>
          {init.value ? (
            <div class="init">
              <img src={init.value.url} alt="The picture to start from" />
              <Slider label="Change" hint="How far it may go from the picture it starts from." min={0.05} max={1} step={0.05} start={0.7} value={f.strength} onChange={(v) => set({ strength: v ?? 0.7 })} />
              <button type="button" class="icon-button quiet" aria-label="Start from noise again" onClick={() => (init.value = null)}>
                <Icon name="close" size={16} />
              </button>
            </div>
          ) : (
            <button type="button" class="link subtle" onClick={() => picker.current?.click()}>
              Start from a picture
            </button>
          )}
          <input
            ref={picker}
            type="file"
            accept="image/png,image/jpeg,image/webp"
            hidden
            aria-label="Picture to start from"
            onChange={(e) => {
              void useFile(e.currentTarget.files?.[0]);
              e.currentTarget.value = '';
            }}
          />
          <details class="more">
            <summary>
              <Icon name="right" size={15} /> Model, steps and cache
            </summary>
            <div class="more-body">
              {imageModels.value.length > 1 && (
                <div class="field">
                  <label for={`${id}-model`}>Model</label>
                  <select id={`${id}-model`} value={m.id} onChange={(e) => (pictureModel.value = e.currentTarget.value)}>
                    {imageModels.value.map((x) => (
                      <option value={x.id}>{x.id}</option>
                    ))}
                  </select>
                </div>
              )}
              {d.negative_prompt !== false && (
                <div class="field">
                  <div class="field-head">
                    <span>Without</span>
                  </div>
                  <Area label="Negative prompt" value={f.negative} rows={2} placeholder="What it should not show" onInput={(negative) => set({ negative })} />
                </div>
              )}
              <div class="field-pair">
                <NumberInput label="Width" min={multiple} max={d.max_side ?? 2048} step={multiple} value={width} onChange={(v) => set({ width: v })} />
                <NumberInput label="Height" min={multiple} max={d.max_side ?? 2048} step={multiple} value={height} onChange={(v) => set({ height: v })} />
              </div>
              <Slider label="Steps" hint="More steps, finer picture." min={1} max={60} step={1} start={d.steps ?? 20} value={f.steps} onChange={(steps) => set({ steps })} />
              <Slider label="Guidance" hint="How closely it follows the prompt." min={0} max={15} step={0.25} start={d.guidance ?? 4} value={f.guidance} onChange={(guidance) => set({ guidance })} />
              <div class="field">
                <label for={`${id}-cache`}>Step cache</label>
                <select id={`${id}-cache`} value={f.cache} onChange={(e) => set({ cache: e.currentTarget.value })}>
                  <option value="">model’s own</option>
                  {caches.map((c) => (
                    <option value={c}>{cacheNames[c] ?? c}</option>
                  ))}
                </select>
              </div>
              <Slider label="Quality" hint="Lower lets the step cache forecast more steps." min={0} max={1} step={0.05} start={0.7} value={f.quality} onChange={(quality) => set({ quality })} />
            </div>
          </details>
        </form>
        <section class="gallery-place" aria-label="Pictures so far">
          {jobs.value.map((job) => (
            <JobCard key={job.id} job={job} />
          ))}
          {pictures.value.length === 0 && jobs.value.length === 0 ? (
            <div class="gallery-empty">
              <Icon name="picture" size={30} />
              <p>Pictures appear here as they are painted. They are kept in this browser only.</p>
            </div>
          ) : (
            <ul class="gallery">
              {pictures.value.map((p) => (
                <li key={p.id}>
                  <button type="button" onClick={() => (open.value = p)} aria-label={`Picture: ${p.input.prompt}`}>
                    <img src={urlOfPicture(p)} alt="" width={p.input.width} height={p.input.height} loading="lazy" />
                    <span aria-hidden="true">{p.input.prompt}</span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </section>
      </div>
      {open.value && (
        <Detail
          picture={open.value}
          onClose={() => (open.value = null)}
          onInit={async (p) => (init.value = { url: await asDataUrl(p.blob), name: 'picture' })}
        />
      )}
    </div>
  );
}
