// Requests to the server that this page came from, and its errors.
import { signal } from '@preact/signals';

export class ApiError extends Error {
  constructor(
    message: string,
    /** HTTP status; 0: the server could not be reached, or the connection broke. */
    public status: number,
    public code = '',
    public param = '',
    public retryAfter_s = 0,
  ) {
    super(message);
  }
}

export type Connection = 'connecting' | 'ok' | 'gone' | 'loading' | 'key';
export const connection = signal<Connection>('connecting');

const kKey = 'redline.key';
let key = readKey();

function readKey(): string {
  try {
    return localStorage.getItem(kKey) ?? '';
  } catch {
    return '';
  }
}

export function setKey(value: string) {
  key = value.trim();
  try {
    if (key) localStorage.setItem(kKey, key);
    else localStorage.removeItem(kKey);
  } catch {
    // Without storage the key lasts as long as the page.
  }
}

/** Relative to the page, so that a proxy may serve it below a prefix. */
export const urlOf = (path: string) => new URL(path.replace(/^\//, ''), document.baseURI).href;

interface Options {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  timeout_ms?: number;
}

/** Throws ApiError, or the AbortError of `signal`. */
export async function call(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (options.body !== undefined) headers['Content-Type'] = 'application/json';
  const timeout = options.timeout_ms ? new AbortController() : null;
  const timer = timeout ? setTimeout(() => timeout.abort(), options.timeout_ms) : 0;
  let response: Response;
  try {
    response = await fetch(urlOf(path), {
      method: options.method ?? (options.body === undefined ? 'GET' : 'POST'),
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal ?? timeout?.signal,
      cache: 'no-store',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    connection.value = 'gone';
    throw new ApiError('The server cannot be reached.', 0);
  } finally {
    clearTimeout(timer);
  }
  if (response.ok) return response;
  throw await errorOf(response);
}

async function errorOf(response: Response): Promise<ApiError> {
  const retryAfter_s = Number(response.headers.get('Retry-After')) || 0;
  let message = `The server answered ${response.status}.`;
  let code = '';
  let param = '';
  try {
    const { error } = await response.json();
    if (typeof error === 'string') message = error;
    else if (error?.message) ({ message, code, param } = { message: error.message, code: error.code ?? '', param: error.param ?? '' });
  } catch {
    if (response.status === 502 || response.status === 504) {
      connection.value = 'gone';
      return new ApiError('The server cannot be reached through the proxy.', 0);
    }
  }
  if (response.status === 401) connection.value = 'key';
  return new ApiError(message, response.status, code, param, retryAfter_s);
}

export async function json<T>(path: string, options: Options = {}): Promise<T> {
  return (await call(path, options)).json() as Promise<T>;
}

export interface ServerEvent {
  event: string;
  data: string;
}

/** The events of a text/event-stream. A stream that breaks throws ApiError with status 0. */
export async function* events(response: Response, abort?: AbortSignal): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let buffer = '';
  try {
    for (;;) {
      let chunk;
      try {
        chunk = await reader.read();
      } catch (error) {
        if (abort?.aborted) throw error;
        connection.value = 'gone';
        throw new ApiError('The connection broke while the text was coming.', 0);
      }
      buffer += chunk.done ? decoder.decode() + '\n\n' : decoder.decode(chunk.value, { stream: true });
      buffer = buffer.replace(/\r\n?/g, '\n');
      for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
        const block = buffer.slice(0, end);
        buffer = buffer.slice(end + 2);
        let event = 'message';
        const data: string[] = [];
        for (const line of block.split('\n')) {
          if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
          else if (line.startsWith('event:')) event = line.slice(6).trim();
        }
        if (data.length) yield { event, data: data.join('\n') };
      }
      if (chunk.done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
