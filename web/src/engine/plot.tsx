// Draws lines over time, and a dial. They are small enough to need no library.
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

export interface Line {
  name: string;
  tone: 'a' | 'b' | 'c';
  values: (number | null)[];
}

const width = 600;

/** The next round number above. */
export function niceAbove(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (step * power >= value) return step * power;
  return 10 * power;
}

export const shortNumber = (v: number) =>
  v >= 1e6 ? `${(v / 1e6).toFixed(1)}M` : v >= 10000 ? `${(v / 1000).toFixed(0)}k` : v >= 100 || Number.isInteger(v) ? v.toFixed(0) : v.toFixed(1);

export function Plot({ title, unit, lines, capacity, least = 1, end, height = 150 }: {
  title: string;
  unit: string;
  lines: Line[];
  /** Samples from left to right. */
  capacity: number;
  /** The axis reaches at least here. */
  least?: number;
  /** It ends here. */
  end?: number;
  height?: number;
}) {
  const at = useSignal<number | null>(null);
  const frame = useRef<SVGSVGElement>(null);
  const count = Math.max(...lines.map((l) => l.values.length));
  const top = end ?? niceAbove(Math.max(least, ...lines.flatMap((l) => l.values.map((v) => v ?? 0))) * 1.04);
  const x = (i: number) => width - ((count - 1 - i) * width) / (capacity - 1);
  const y = (v: number) => height - (v / top) * (height - 6);
  const pathOf = (values: (number | null)[]) => {
    let d = '';
    let isDown = false;
    values.forEach((v, i) => {
      if (v === null) isDown = false;
      else {
        d += `${isDown ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        isDown = true;
      }
    });
    return d;
  };
  const shown = at.value === null ? count - 1 : Math.min(Math.max(at.value, 0), count - 1);
  const valueOf = (l: Line) => l.values[shown];
  const say = lines.map((l) => `${l.name} ${valueOf(l) === null || valueOf(l) === undefined ? 'none' : shortNumber(valueOf(l)!)}`).join(', ');
  return (
    <figure class="plot">
      <figcaption>
        <span class="plot-title">{title}</span>
        <span class="legend">
          {lines.map((l) => (
            <span class={`tone-${l.tone}`}>
              <i aria-hidden="true" />
              {l.name}
              <b>{valueOf(l) === null || valueOf(l) === undefined ? '–' : shortNumber(valueOf(l)!)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div class="plot-frame">
        <svg
          ref={frame}
          viewBox={`0 0 ${width} ${height}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}, ${unit}: ${say}; the axis ends at ${shortNumber(top)}`}
          onPointerMove={(e) => {
            const box = frame.current!.getBoundingClientRect();
            at.value = Math.round(count - 1 - (1 - (e.clientX - box.left) / box.width) * (capacity - 1));
          }}
          onPointerLeave={() => (at.value = null)}
        >
          {[0.25, 0.5, 0.75].map((f) => (
            <line class="grid" x1={0} x2={width} y1={y(top * f)} y2={y(top * f)} />
          ))}
          <line class="base" x1={0} x2={width} y1={height - 0.5} y2={height - 0.5} />
          {lines.map((l, i) => {
            const d = pathOf(l.values);
            return (
              <g class={`tone-${l.tone}`}>
                {i === 0 && d && !l.values.includes(null) && <path class="area" d={`${d}L${x(count - 1)} ${height}L${x(0)} ${height}Z`} />}
                <path class="line" d={d} />
              </g>
            );
          })}
          {at.value !== null && count > 0 && <line class="cursor" x1={x(shown)} x2={x(shown)} y1={0} y2={height} />}
        </svg>
        <span class="axis-top" aria-hidden="true">
          {shortNumber(top)} {unit}
        </span>
        <span class="axis-time" aria-hidden="true">
          {at.value === null ? 'now' : `${count - 1 - shown} s ago`}
        </span>
      </div>
    </figure>
  );
}

const polar = (r: number, share: number) => {
  const angle = ((-210 + 240 * share) * Math.PI) / 180;
  return [120 + r * Math.cos(angle), 116 + r * Math.sin(angle)];
};
const arc = (r: number, from: number, to: number) => {
  const [x1, y1] = polar(r, from);
  const [x2, y2] = polar(r, to);
  return `M${x1.toFixed(2)} ${y1.toFixed(2)}A${r} ${r} 0 ${to - from > 0.75 ? 1 : 0} 1 ${x2.toFixed(2)} ${y2.toFixed(2)}`;
};

/** A tachometer from 0 to 1. */
export function Dial({ share, label, value, unit }: { share: number; label: string; value: string; unit: string }) {
  return (
    <div class="dial-place">
      <svg class="dial" viewBox="0 0 240 190" role="img" aria-label={`${label}: ${Math.round(share * 100)} percent`}>
        <path class="track" d={arc(96, 0, 0.88)} />
        <path class="red" d={arc(96, 0.9, 1)} />
        {share > 0.005 && <path class="filled" d={arc(96, 0, Math.min(share, 1))} />}
        {Array.from({ length: 21 }, (_, i) => {
          const [x1, y1] = polar(84, i / 20);
          const [x2, y2] = polar(i % 4 === 0 ? 74 : 79, i / 20);
          return <line class={i >= 18 ? 'tick red' : 'tick'} x1={x1} y1={y1} x2={x2} y2={y2} />;
        })}
        {[0, 0.2, 0.4, 0.6, 0.8, 1].map((v) => {
          const [x, y] = polar(62, v);
          return (
            <text class="mark-text" x={x} y={y + 3.5}>
              {v * 100}
            </text>
          );
        })}
        <g class="needle" style={{ transform: `rotate(${-210 + 240 * Math.min(Math.max(share, 0), 1)}deg)` }}>
          <path d="M104 114 L206 115.4 L206 116.6 L104 118 Z" />
        </g>
        <circle class="hub" cx="120" cy="116" r="7" />
      </svg>
      <p class="dial-value">
        <b>{value}</b> <span>{unit}</span>
      </p>
      <p class="dial-label">{label}</p>
    </div>
  );
}
