// Icons are drawn on a grid of 24 x 24 with strokes of one width.
const paths: Record<string, string> = {
  chat: 'M20 12a7.5 7.5 0 0 1-10.9 6.7L4.5 20l1.3-4.4A7.5 7.5 0 1 1 20 12z',
  picture: 'M5 4.5h14a1.5 1.5 0 0 1 1.5 1.5v12a1.5 1.5 0 0 1-1.5 1.5H5A1.5 1.5 0 0 1 3.5 18V6A1.5 1.5 0 0 1 5 4.5zM4 17l4.8-5 4 4 2.7-2.7L20 17.5M15.8 9.2v.1',
  gauge: 'M6.2 18.2a8.5 8.5 0 1 1 11.6 0M12 13.5l4-4.6M11 14.5a1.4 1.4 0 1 0 2 0',
  plus: 'M12 5v14M5 12h14',
  pen: 'M4 20l1-4.2L16.3 4.5a2 2 0 0 1 2.9 0l.3.3a2 2 0 0 1 0 2.9L8.2 19 4 20zM14.5 6.5l3 3',
  search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5L20 20',
  menu: 'M4 7h16M4 12h16M4 17h10',
  more: 'M5.5 12h.1M12 12h.1M18.5 12h.1',
  send: 'M12 19V5.5M6 11l6-6 6 6',
  stop: 'M7.5 7.5h9v9h-9z',
  copy: 'M9 9V5.5A1.5 1.5 0 0 1 10.5 4h8A1.5 1.5 0 0 1 20 5.5v8a1.5 1.5 0 0 1-1.5 1.5H15M5.5 9h8A1.5 1.5 0 0 1 15 10.5v8a1.5 1.5 0 0 1-1.5 1.5h-8A1.5 1.5 0 0 1 4 18.5v-8A1.5 1.5 0 0 1 5.5 9z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  again: 'M19.5 12a7.5 7.5 0 1 1-2.3-5.4L19.5 9M19.5 4.5V9H15',
  left: 'M14.5 6l-6 6 6 6',
  right: 'M9.5 6l6 6-6 6',
  down: 'M6 9.5l6 6 6-6',
  close: 'M6 6l12 12M18 6L6 18',
  trash: 'M4.5 7h15M9.5 7V4.5h5V7M6.5 7l.8 12.5h9.4L17.5 7M10.3 10.5v5.5M13.7 10.5v5.5',
  tune: 'M4 7.5h9M17 7.5h3M4 16.5h3M11 16.5h9M15 5.3a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4zM9 14.3a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z',
  attach: 'M19 11.5l-7.3 7.3a4.6 4.6 0 0 1-6.5-6.5l7.6-7.6a3 3 0 0 1 4.3 4.3l-7.6 7.6a1.5 1.5 0 0 1-2.1-2.1l6.9-6.9',
  file: 'M13.5 3.5h-7v17h11v-13zM13.5 3.5v4h4',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1',
  moon: 'M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z',
  auto: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 4v16',
  save: 'M12 4v11M7.5 11l4.5 4.5 4.5-4.5M5 20h14',
  load: 'M12 15.5V4.5M7.5 9L12 4.5 16.5 9M5 20h14',
  branch: 'M7 5v14M7 13c6 0 10-1.5 10-6M17 7a1.8 1.8 0 1 0 0-3.6A1.8 1.8 0 0 0 17 7z',
  undo: 'M8.5 5L4.5 9l4 4M5 9h9a5.5 5.5 0 0 1 0 11h-3',
  keys: 'M4 6.5h16v11H4zM7 10h.1M10.3 10h.1M13.7 10h.1M17 10h.1M8 14h8',
  help: 'M9.2 9.2a2.9 2.9 0 1 1 4.3 2.5c-1 .6-1.5 1.1-1.5 2.3M12 17.4v.1',
  arrow: 'M5 12h13M13 6.5l5.5 5.5-5.5 5.5',
};

export type IconName = keyof typeof paths;

export function Icon({ name, size = 18 }: { name: string; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

/** The mark: a tachometer whose needle is in the red. */
export function Mark({ size = 22 }: { size?: number }) {
  return (
    <svg class="mark" width={size} height={size} viewBox="0 0 64 64" aria-hidden="true" focusable="false">
      <path class="dial" d="M12.9 49.1A25 25 0 0 1 43.7 10.9" />
      <path class="red" d="M51.7 17.6A25 25 0 0 1 51.2 49.1" />
      <path class="needle" d="M28.9 34.2 45.9 20.4a1 1 0 0 1 1.4 1.4L34.6 39.8a4 4 0 1 1-5.700-5.600z" />
    </svg>
  );
}
