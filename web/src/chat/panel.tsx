// The settings of a conversation, or the defaults of new conversations.
import { useEffect, useState } from 'preact/hooks';
import { billions, model } from '../models';
import { panelOpen, wantsWriting } from '../route';
import { Area, NumberInput, Slider } from '../ui/controls';
import { Icon } from '../ui/icons';
import { ModelMenu } from './composer';
import { changed, current, defaultAdapters, defaultSampling, defaultSystem } from './chats';
import { moreSamplers } from './samplers';
import type { Sampling } from './tree';

function StopStrings({ value, onChange }: { value: string[]; onChange: (v: string[]) => void }) {
  const [text, setText] = useState(value.join('\n'));
  useEffect(() => setText(value.join('\n')), [value.length === 0]);
  return (
    <div class="field">
      <div class="field-head">
        <span>Stop at</span>
      </div>
      <Area
        label="Stop strings, one per line"
        value={text}
        placeholder="one per line"
        rows={2}
        onInput={(t) => {
          setText(t);
          onChange(t.split('\n').filter(Boolean).slice(0, 16));
        }}
      />
    </div>
  );
}

/** Open from the start where one of them is set. */
function MoreSamplers({ sampling, set }: { sampling: Sampling; set: (change: Sampling) => void }) {
  const [startsOpen] = useState(() => moreSamplers.some(({ name }) => sampling[name] !== undefined));
  return (
    <details class="more" open={startsOpen}>
      <summary>
        <Icon name="right" size={15} /> More samplers
      </summary>
      <div class="more-body">
        {moreSamplers.map(({ name, ...slider }) => (
          <Slider key={name} {...slider} value={sampling[name]} onChange={(value) => set({ [name]: value })} />
        ))}
      </div>
    </details>
  );
}

export function Panel() {
  const chat = current.value;
  const m = model.value;
  const isWriting = chat ? chat.kind === 'write' : wantsWriting.value;
  const sampling = chat?.sampling ?? defaultSampling.value;
  const adapters = chat?.adapters ?? defaultAdapters.value;
  const system = chat?.system ?? defaultSystem.value;
  const setSampling = (change: Sampling) => {
    const next = { ...sampling, ...change };
    if (chat) {
      chat.sampling = next;
      changed(chat);
    } else defaultSampling.value = next;
  };
  const setAdapter = (name: string, scale: number) => {
    const next = { ...adapters, [name]: scale };
    if (!scale) delete next[name];
    if (chat) {
      chat.adapters = next;
      changed(chat);
    } else defaultAdapters.value = next;
  };
  const setSystem = (text: string) => {
    if (chat) {
      chat.system = text;
      changed(chat);
    } else defaultSystem.value = text;
  };
  const isChanged = Object.values(sampling).some((v) => v !== undefined && !(Array.isArray(v) && !v.length));
  return (
    <aside class="panel" aria-label="Settings">
      <header>
        <h2>{chat ? (isWriting ? 'This page' : 'This conversation') : 'New conversations'}</h2>
        <button type="button" class="icon-button quiet" aria-label="Close settings" onClick={() => (panelOpen.value = false)}>
          <Icon name="close" />
        </button>
      </header>
      <div class="panel-body">
        <section aria-label="Model">
          <h3>Model</h3>
          <ModelMenu side="below" />
          {m && (
            <dl class="facts">
              {m.architecture && (
                <div>
                  <dt>Architecture</dt>
                  <dd>{m.architecture}</dd>
                </div>
              )}
              {m.parameters > 0 && (
                <div>
                  <dt>Parameters</dt>
                  <dd>{billions(m.parameters)}</dd>
                </div>
              )}
              {m.weightTypes && (
                <div>
                  <dt>Weights</dt>
                  <dd>{m.weightTypes}</dd>
                </div>
              )}
              {m.context > 0 && (
                <div>
                  <dt>Context</dt>
                  <dd>{m.context.toLocaleString('en-US')} tokens</dd>
                </div>
              )}
            </dl>
          )}
        </section>
        {m && m.adapters.length > 0 && (
          <section aria-label="Adapters">
            <h3>Adapters</h3>
            {m.adapters.map((name) => {
              const scale = adapters[name] ?? 0;
              return (
                <div class={`adapter ${scale ? 'on' : ''}`}>
                  <label>
                    <input type="checkbox" checked={scale !== 0} onChange={(e) => setAdapter(name, e.currentTarget.checked ? 1 : 0)} />
                    <span>{name}</span>
                  </label>
                  {scale !== 0 && (
                    <input
                      type="range"
                      aria-label={`Weight of ${name}`}
                      min={0.05}
                      max={2}
                      step={0.05}
                      value={scale}
                      style={{ '--share': `${(scale / 2) * 100}%` }}
                      onInput={(e) => setAdapter(name, Number(e.currentTarget.value))}
                    />
                  )}
                  {scale !== 0 && <output>{scale.toFixed(2)}</output>}
                </div>
              );
            })}
          </section>
        )}
        {!isWriting && (
          <section aria-label="Instructions">
            <h3>Instructions</h3>
            <Area
              label="System prompt"
              class="system"
              value={system}
              rows={3}
              maxHeight={260}
              placeholder="What the model should know and how it should answer. Sent as the system prompt."
              onInput={setSystem}
            />
          </section>
        )}
        <section aria-label="Sampling">
          <h3>
            Sampling
            {isChanged && (
              <button
                type="button"
                class="link subtle"
                onClick={() => {
                  const none: Sampling = {};
                  if (chat) {
                    chat.sampling = none;
                    changed(chat);
                  } else defaultSampling.value = none;
                }}
              >
                Reset all
              </button>
            )}
          </h3>
          <Slider label="Temperature" hint="0 always takes the most likely token." min={0} max={2} step={0.05} start={0.8} value={sampling.temperature} onChange={(temperature) => setSampling({ temperature })} />
          <Slider label="Top p" hint="The most likely tokens that together have this probability." min={0.05} max={1} step={0.01} start={0.95} value={sampling.top_p} onChange={(top_p) => setSampling({ top_p })} />
          <Slider label="Min p" hint="Drops what is less likely than this share of the best." min={0} max={0.5} step={0.01} start={0} value={sampling.min_p} onChange={(min_p) => setSampling({ min_p })} />
          <Slider label="Top k" hint="At most this many tokens; 0 is all." min={0} max={200} step={1} start={0} value={sampling.top_k} onChange={(top_k) => setSampling({ top_k })} />
          <Slider label="Repetition penalty" hint="Above 1 avoids what was already said." min={1} max={1.5} step={0.01} start={1} value={sampling.repetition_penalty} onChange={(repetition_penalty) => setSampling({ repetition_penalty })} />
          <MoreSamplers key={chat?.id} sampling={sampling} set={setSampling} />
          <div class="field-pair">
            <NumberInput
              label={isWriting ? 'Tokens at a time' : 'Longest answer'}
              min={1}
              value={sampling.max_tokens}
              placeholder={isWriting ? '120' : 'as long as fits'}
              onChange={(max_tokens) => setSampling({ max_tokens })}
            />
            <NumberInput label="Seed" min={0} value={sampling.seed} placeholder="random" onChange={(seed) => setSampling({ seed })} />
          </div>
          <StopStrings value={sampling.stop ?? []} onChange={(stop) => setSampling({ stop })} />
        </section>
      </div>
    </aside>
  );
}
