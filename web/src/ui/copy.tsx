import { useRef, useState } from 'preact/hooks';
import { Icon } from './icons';
import { announce } from './toast';

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages loaded over plain HTTP from another machine have no clipboard object.
    const area = document.createElement('textarea');
    area.value = text;
    area.setAttribute('aria-hidden', 'true');
    area.className = 'offscreen';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

export function CopyButton({ text, label, class: name = 'quiet' }: { text: string; label: string; class?: string }) {
  const [isDone, setDone] = useState(false);
  const timer = useRef(0);
  const copy = async () => {
    if (!(await copyText(text))) return announce('Copying failed.');
    announce('Copied.');
    setDone(true);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setDone(false), 1600);
  };
  return (
    <button type="button" class={`icon-button ${name}`} aria-label={label} title={label} onClick={copy}>
      <Icon name={isDone ? 'check' : 'copy'} />
    </button>
  );
}
