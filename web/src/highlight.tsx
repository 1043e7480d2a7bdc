// Code in colours: Prism's tokens as elements. No HTML is built from strings anywhere on this page.
import Prism from 'prismjs/components/prism-core';
import 'prismjs/components/prism-markup';
import 'prismjs/components/prism-css';
import 'prismjs/components/prism-clike';
import 'prismjs/components/prism-javascript';
import 'prismjs/components/prism-typescript';
import 'prismjs/components/prism-c';
import 'prismjs/components/prism-cpp';
import 'prismjs/components/prism-python';
import 'prismjs/components/prism-bash';
import 'prismjs/components/prism-json';
import 'prismjs/components/prism-rust';
import 'prismjs/components/prism-go';
import 'prismjs/components/prism-java';
import 'prismjs/components/prism-sql';
import 'prismjs/components/prism-yaml';
import 'prismjs/components/prism-diff';
import type { ComponentChildren } from 'preact';

const names: Record<string, string> = {
  py: 'python', js: 'javascript', jsx: 'javascript', mjs: 'javascript', ts: 'typescript', tsx: 'typescript',
  'c++': 'cpp', cc: 'cpp', cxx: 'cpp', h: 'cpp', hpp: 'cpp', cuda: 'cpp', cu: 'cpp', sh: 'bash', shell: 'bash',
  zsh: 'bash', console: 'bash', html: 'markup', xml: 'markup', svg: 'markup', yml: 'yaml', rs: 'rust', golang: 'go',
  jsonc: 'json', patch: 'diff', kotlin: 'java', scala: 'java', csharp: 'java', cs: 'java', php: 'clike', swift: 'clike',
};

function nodes(stream: Prism.TokenStream): ComponentChildren {
  if (typeof stream === 'string') return stream;
  if (Array.isArray(stream)) return stream.map(nodes);
  return <span class={`t-${stream.type}`}>{nodes(stream.content)}</span>;
}

export function highlighted(code: string, language: string): ComponentChildren {
  const lower = language.toLowerCase();
  const grammar = Prism.languages[names[lower] ?? lower];
  if (!grammar || typeof grammar === 'function' || code.length > 60000) return code;
  return nodes(Prism.tokenize(code, grammar));
}
