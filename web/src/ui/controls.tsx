import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons';

interface OptionalNumber {
  label: string;
  hint: string;
  value: number | undefined;
  onChange: (value: number | undefined) => void;
  min: number;
  max: number;
  step: number;
  start: number;
  unset?: string;
}

/** A slider that may also be left to the model. */
export function Slider({ label, hint, value, onChange, min, max, step, start, unset = 'model’s own' }: OptionalNumber) {
  const id = useId();
  const isSet = value !== undefined;
  const shown = value ?? start;
  const share = (Math.min(Math.max(shown, min), max) - min) / (max - min);
  return (
    <div class={`field slider ${isSet ? 'is-set' : ''}`}>
      <div class="field-head">
        <label for={id}>{label}</label>
        {isSet ? (
          <span class="field-value">
            <output for={id}>{value}</output>
            <button type="button" class="icon-button tiny quiet" aria-label={`Reset ${label}`} title="Reset" onClick={() => onChange(undefined)}>
              <Icon name="undo" size={14} />
            </button>
          </span>
        ) : (
          <span class="field-value unset">{unset}</span>
        )}
      </div>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={shown}
        aria-valuetext={isSet ? String(value) : unset}
        aria-describedby={`${id}-hint`}
        style={{ '--share': `${share * 100}%` }}
        onInput={(e) => onChange(Number(e.currentTarget.value))}
      />
      <p class="hint" id={`${id}-hint`}>
        {hint}
      </p>
    </div>
  );
}

interface NumberField {
  label: string;
  value: number | undefined;
  onChange: (value: number | undefined) => void;
  min?: number;
  max?: number;
  step?: number;
  placeholder?: string;
  hint?: string;
  children?: ComponentChildren;
}

export function NumberInput({ label, value, onChange, min, max, step = 1, placeholder, hint, children }: NumberField) {
  const id = useId();
  return (
    <div class="field">
      <div class="field-head">
        <label for={id}>{label}</label>
        {children}
      </div>
      <input
        id={id}
        type="number"
        inputMode="numeric"
        min={min}
        max={max}
        step={step}
        value={value ?? ''}
        placeholder={placeholder}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={(e) => {
          const text = e.currentTarget.value;
          onChange(text === '' ? undefined : Number(text));
        }}
      />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface AreaProps {
  value: string;
  onInput: (value: string) => void;
  label: string;
  placeholder?: string;
  class?: string;
  rows?: number;
  maxHeight?: number;
  areaRef?: (element: HTMLTextAreaElement | null) => void;
  onKeyDown?: (e: KeyboardEvent) => void;
  onPaste?: (e: ClipboardEvent) => void;
  id?: string;
  autofocus?: boolean;
}

/** A text field that grows with its text. */
export function Area({ value, onInput, label, maxHeight = 320, areaRef, autofocus, rows = 1, ...rest }: AreaProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const fit = () => {
    const a = area.current;
    if (!a) return;
    a.style.height = 'auto';
    a.style.height = `${Math.min(a.scrollHeight, maxHeight)}px`;
    a.style.overflowY = a.scrollHeight > maxHeight ? 'auto' : 'hidden';
  };
  useLayoutEffect(fit, [value]);
  useEffect(() => {
    areaRef?.(area.current);
    if (autofocus) area.current?.focus();
    window.addEventListener('resize', fit);
    return () => window.removeEventListener('resize', fit);
  }, []);
  return (
    <textarea ref={area} aria-label={label} rows={rows} value={value} onInput={(e) => onInput(e.currentTarget.value)} {...rest} />
  );
}

/** The time until `until`, in whole seconds. */
export function Countdown({ until }: { until: number }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, []);
  return <>{Math.max(0, Math.ceil((until - Date.now()) / 1000))} s</>;
}
