// Markdown as elements. What a model writes is never parsed as HTML: tags are shown as text, links open only web and mail
// addresses, and images become links, so that a text cannot make the browser call a server.
import type { ComponentChildren } from 'preact';
import { memo } from './ui/memo';
import { lexer, type Token, type Tokens } from 'marked';
import { highlighted } from './highlight';
import { CopyButton } from './ui/copy';

const entities: Record<string, string> = {
  amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', trade: '™', hellip: '…',
  mdash: '—', ndash: '–', times: '×', deg: '°', euro: '€', pound: '£', larr: '←', rarr: '→', middot: '·', bull: '•',
  laquo: '«', raquo: '»', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', plusmn: '±', frac12: '½', le: '≤', ge: '≥', ne: '≠',
};

function decode(text: string): string {
  if (!text.includes('&')) return text;
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z\d]{2,8}));/gi, (all, decimal, hex, name) => {
    if (name) return entities[name] ?? all;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

function safeUrl(href: string): string | null {
  const decoded = decode(href).trim();
  return /^(https?:\/\/|mailto:)/i.test(decoded) ? decoded : null;
}

function Link({ href, title, children }: { href: string; title?: string | null; children: ComponentChildren }) {
  const url = safeUrl(href);
  if (!url) return <>{children}</>;
  return (
    <a href={url} title={title ?? undefined} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((t) => {
    switch (t.type) {
      case 'strong':
        return <strong>{inline(t.tokens)}</strong>;
      case 'em':
        return <em>{inline(t.tokens)}</em>;
      case 'del':
        return <del>{inline(t.tokens)}</del>;
      case 'codespan':
        return <code>{t.text}</code>;
      case 'br':
        return <br />;
      case 'link':
        return (
          <Link href={t.href} title={t.title}>
            {inline(t.tokens)}
          </Link>
        );
      case 'image':
        return (
          <Link href={t.href} title={t.title}>
            {t.text || t.href}
          </Link>
        );
      case 'escape':
        return t.text;
      case 'text':
        return 'tokens' in t && t.tokens ? inline(t.tokens) : decode(t.raw);
      default:
        return t.raw;
    }
  });
}

function Code({ text, language }: { text: string; language: string }) {
  return (
    <div class="code">
      <div class="code-head">
        <span>{language || 'text'}</span>
        <CopyButton text={text} label="Copy code" />
      </div>
      <pre tabIndex={0} aria-label={language ? `Code, ${language}` : 'Code'} role="region">
        <code>{highlighted(text, language)}</code>
      </pre>
    </div>
  );
}

function Table({ token }: { token: Tokens.Table }) {
  const align = token.align.map((a) => (a ? `align-${a}` : undefined));
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, i) => (
              <th scope="col" class={align[i]}>
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row) => (
            <tr>
              {row.map((cell, i) => (
                <td class={align[i]}>{inline(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function List({ token }: { token: Tokens.List }) {
  const items = token.items.map((item) => (
    <li class={item.task ? 'task' : undefined}>
      {item.task && <input type="checkbox" checked={!!item.checked} disabled aria-label={item.checked ? 'done' : 'to do'} />}
      {blocks(item.tokens.filter((t) => t.type !== 'checkbox'))}
    </li>
  ));
  return token.ordered ? <ol start={Number(token.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function block(t: Token): ComponentChildren {
  switch (t.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading': {
      // The page has its own h1 and h2.
      const Tag = `h${Math.min(t.depth + 2, 6)}` as 'h3';
      return <Tag class={`depth-${t.depth}`}>{inline(t.tokens)}</Tag>;
    }
    case 'paragraph':
      return <p>{inline(t.tokens)}</p>;
    case 'code':
      return <Code text={t.text} language={(t.lang ?? '').split(/[\s{:]/)[0]} />;
    case 'blockquote':
      return <blockquote>{blocks(t.tokens ?? [])}</blockquote>;
    case 'list':
      return <List token={t as Tokens.List} />;
    case 'table':
      return <Table token={t as Tokens.Table} />;
    case 'hr':
      return <hr />;
    case 'text':
      return 'tokens' in t && t.tokens ? inline(t.tokens) : decode(t.raw);
    case 'html':
      return <p class="raw">{t.raw}</p>;
    default:
      return inline([t]);
  }
}

const blocks = (tokens: Token[]): ComponentChildren => tokens.map(block);

/** While a text streams, only its last block changes. */
const Block = memo(({ token }: { token: Token; raw: string }) => <>{block(token)}</>, (a, b) => a.raw === b.raw);

export function Markdown({ text }: { text: string }) {
  return (
    <div class="prose">
      {lexer(text, { gfm: true, breaks: false }).map((token, i) => (
        <Block key={i} token={token} raw={token.raw} />
      ))}
    </div>
  );
}
