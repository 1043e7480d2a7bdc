import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icons';

export interface MenuItem {
  label: string;
  icon?: IconName;
  note?: string;
  checked?: boolean;
  danger?: boolean;
  act: () => void;
}

interface Props {
  label: string;
  items: MenuItem[];
  children: ComponentChildren;
  class?: string;
  side?: 'above' | 'below';
  align?: 'start' | 'end';
  header?: string;
}

/** A button that opens a menu: arrows move, Escape closes, letters find. */
export function Menu({ label, items, children, class: name, side = 'below', align = 'start', header }: Props) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const entries = () => [...(place.current?.querySelectorAll<HTMLElement>('[role^=menuitem]') ?? [])];
  useLayoutEffect(() => {
    if (!isOpen) return;
    const list = entries();
    (list.find((e) => e.getAttribute('aria-checked') === 'true') ?? list[0])?.focus();
    const outside = (e: Event) => {
      if (!place.current?.contains(e.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [isOpen]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const onKey = (e: KeyboardEvent) => {
    const list = entries();
    const at = list.indexOf(document.activeElement as HTMLElement);
    const go = (i: number) => {
      e.preventDefault();
      list[(i + list.length) % list.length]?.focus();
    };
    if (e.key === 'ArrowDown') go(at + 1);
    else if (e.key === 'ArrowUp') go(at - 1);
    else if (e.key === 'Home') go(0);
    else if (e.key === 'End') go(list.length - 1);
    else if (e.key === 'Tab') setOpen(false);
    else if (e.key === 'Escape') {
      e.stopPropagation();
      close();
    } else if (e.key.length === 1 && /\S/.test(e.key)) {
      const found = list.findIndex((x, i) => i > at && x.textContent?.toLowerCase().startsWith(e.key.toLowerCase()));
      if (found >= 0) go(found);
    }
  };
  return (
    <div class="menu-place" ref={place}>
      <button
        type="button"
        ref={button}
        class={name ?? 'icon-button quiet'}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
        onKeyDown={(e) => {
          if (e.key === 'ArrowDown' && !isOpen) {
            e.preventDefault();
            setOpen(true);
          }
        }}
      >
        {children}
      </button>
      {isOpen && (
        <div class={`menu ${side} ${align}`} role="menu" id={id} aria-label={label} onKeyDown={onKey}>
          {header && (
            <div class="menu-header" role="presentation">
              {header}
            </div>
          )}
          {items.map((item) => (
            <button
              type="button"
              role={item.checked === undefined ? 'menuitem' : 'menuitemradio'}
              aria-checked={item.checked}
              tabIndex={-1}
              class={item.danger ? 'danger' : undefined}
              onClick={() => {
                close();
                item.act();
              }}
            >
              {item.icon && <Icon name={item.icon} />}
              <span class="menu-text">
                {item.label}
                {item.note && <small>{item.note}</small>}
              </span>
              {item.checked && <Icon name="check" />}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
