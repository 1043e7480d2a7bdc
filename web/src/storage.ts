// Stores data in the browser: IndexedDB, else localStorage, else the memory of this page.
import { signal } from '@preact/signals';

export type StorageKind = 'indexeddb' | 'localstorage' | 'memory';
export const storageKind = signal<StorageKind>('indexeddb');

type Store = 'chats' | 'pictures';
interface Backend {
  all<T>(store: Store): Promise<T[]>;
  put(store: Store, value: { id: string }): Promise<void>;
  remove(store: Store, id: string): Promise<void>;
}

const asPromise = <T>(request: IDBRequest<T>) =>
  new Promise<T>((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function openDatabase(): Promise<Backend> {
  const request = indexedDB.open('redline', 1);
  request.onupgradeneeded = () => {
    for (const name of ['chats', 'pictures']) request.result.createObjectStore(name, { keyPath: 'id' });
  };
  const db = await asPromise(request);
  const done = (store: Store, act: (s: IDBObjectStore) => IDBRequest) =>
    new Promise<void>((resolve, reject) => {
      const transaction = db.transaction(store, 'readwrite');
      act(transaction.objectStore(store));
      transaction.oncomplete = () => resolve();
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  return {
    all: (store) => asPromise(db.transaction(store).objectStore(store).getAll()),
    put: (store, value) => done(store, (s) => s.put(value)),
    remove: (store, id) => done(store, (s) => s.delete(id)),
  };
}

/** Blobs do not survive JSON: images then last as long as the page. */
function openLocal(): Backend {
  localStorage.setItem('redline.probe', '1');
  localStorage.removeItem('redline.probe');
  const prefix = (store: Store) => `redline.${store}.`;
  return {
    async all<T>(store: Store) {
      return Object.keys(localStorage)
        .filter((k) => k.startsWith(prefix(store)))
        .map((k) => JSON.parse(localStorage.getItem(k)!) as T);
    },
    async put(store, value) {
      if (store !== 'pictures') localStorage.setItem(prefix(store) + value.id, JSON.stringify(value));
    },
    async remove(store, id) {
      localStorage.removeItem(prefix(store) + id);
    },
  };
}

const nothing: Backend = { all: async () => [], put: async () => {}, remove: async () => {} };

const backend: Promise<Backend> = (async () => {
  try {
    return await openDatabase();
  } catch {
    try {
      const local = openLocal();
      storageKind.value = 'localstorage';
      return local;
    } catch {
      storageKind.value = 'memory';
      return nothing;
    }
  }
})();

export const storage = {
  all: async <T>(store: Store) => (await backend).all<T>(store),
  put: async (store: Store, value: { id: string }) => (await backend).put(store, value),
  remove: async (store: Store, id: string) => (await backend).remove(store, id),
};

/** A signal whose value survives a reload. */
export function kept<T>(name: string, initial: T) {
  const key = `redline.${name}`;
  let value = initial;
  try {
    const text = localStorage.getItem(key);
    if (text !== null) value = JSON.parse(text) as T;
  } catch {
    // The stored value cannot be read: the initial value is used.
  }
  const s = signal<T>(value);
  s.subscribe((v) => {
    try {
      localStorage.setItem(key, JSON.stringify(v));
    } catch {
      // The value cannot be stored.
    }
  });
  return s;
}

export const newId = () =>
  Date.now().toString(36) + Array.from(crypto.getRandomValues(new Uint8Array(6)), (b) => (b % 36).toString(36)).join('');
