// What the page knows: its address, the stream of the server, and the settings of the user.
import { computed, effect, signal } from "@preact/signals";

export interface Update {
  topic: string;
  read: string;
  answer?: unknown;
  notes?: string[];
  error?: string;
}

export interface Link {
  // denied: the token is missing, wrong or expired. lost: the server does not answer.
  state: "connecting" | "live" | "lost" | "denied";
  text?: string;
}

// place is the address of the view: path and query.
export const place = signal(new URL(location.href));
export const link = signal<Link>({ state: "connecting" });
// read is when the server last read the cluster.
export const read = signal<Date | undefined>(undefined);
export const updates = signal<Record<string, Update>>({});
// topics are those that the view draws.
export const topics = signal<string[]>([]);

const tokenKey = "tenon-token";

// The token is in the fragment of the address that the user opens. It is kept for this tab alone.
function takeToken(): string {
  const found = /^#t=(.+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(tokenKey, found[1]);
    history.replaceState(null, "", location.pathname + location.search);
    place.value = new URL(location.href);
  }
  return sessionStorage.getItem(tokenKey) ?? "";
}

let token = takeToken();
addEventListener("hashchange", () => {
  token = takeToken();
  connect(topics.peek());
});

// signIn takes a token that the user entered.
export function signIn(entered: string) {
  token = entered;
  sessionStorage.setItem(tokenKey, token);
  link.value = { state: "connecting" };
  connect(topics.peek());
}

export function go(to: string, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  const before = place.peek().pathname;
  place.value = new URL(location.href);
  if (before !== place.peek().pathname) {
    scrollTo(0, 0);
  }
}
addEventListener("popstate", () => (place.value = new URL(location.href)));

// withQuery returns the address of this view with other values; an empty one is left out.
export function withQuery(values: Record<string, string>): string {
  const to = new URL(place.value);
  for (const [key, value] of Object.entries(values)) {
    if (value) {
      to.searchParams.set(key, value);
    } else {
      to.searchParams.delete(key);
    }
  }
  return to.pathname + to.search;
}

export const query = (key: string) => place.value.searchParams.get(key) ?? "";

// namespace is the one that the view is of; "" is all of them. The menu keeps it.
export const namespace = () => query("namespace");
export const pendingTopic = () => (namespace() ? "pending/" + namespace() : "pending");

// The stream. There is one for each tab; another set of topics ends it and begins another.
let running = new AbortController();

const topicKey = computed(() => JSON.stringify(topics.value));
effect(() => {
  connect(JSON.parse(topicKey.value));
});

async function connect(wanted: string[]) {
  running.abort();
  running = new AbortController();
  const signal = running.signal;
  const known = updates.peek();
  updates.value = Object.fromEntries(wanted.filter((t) => known[t]).map((t) => [t, known[t]]));
  if (!wanted.length) {
    return;
  }
  for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8000)) {
    try {
      const from = "/api/v1/stream?" + wanted.map((t) => "topic=" + encodeURIComponent(t)).join("&");
      const response = await fetch(from, { headers: { Authorization: "Bearer " + token }, signal });
      if (response.status === 401) {
        link.value = { state: "denied", text: await message(response) };
        return;
      }
      if (!response.ok || !response.body) {
        throw new Error(await message(response));
      }
      for await (const event of events(response.body, signal)) {
        receive(event);
        pause = 500;
      }
      throw new Error();
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      link.value = { state: "lost", text: error instanceof TypeError ? "" : (error as Error).message };
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// silence is how long the server may send nothing. It reads a large cluster for up to a minute.
const silence = 90_000;

async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>>, signal: AbortSignal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    let late = 0;
    const timeout = new Promise<never>((_, reject) => {
      late = window.setTimeout(() => reject(new Error("the server is silent")), silence);
    });
    const { done, value } = await Promise.race([reader.read(), timeout]);
    clearTimeout(late);
    if (done || signal.aborted) {
      return;
    }
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      yield { name, data: JSON.parse(data) };
    }
  }
}

function receive(event: { name: string; data: Update }) {
  if (event.name === "update") {
    const last = updates.peek()[event.data.topic];
    // An error leaves the last answer on the page, with its age.
    const next = event.data.error && last?.answer ? { ...last, error: event.data.error } : event.data;
    updates.value = { ...updates.peek(), [event.data.topic]: next };
  } else {
    read.value = new Date(event.data.read);
    link.value = { state: "live" };
  }
}

async function message(response: Response): Promise<string> {
  try {
    return (await response.json()).message;
  } catch {
    return response.status + " " + response.statusText;
  }
}

// ask posts a question about another cluster than this one.
export async function ask<T>(question: unknown): Promise<T> {
  const response = await fetch("/api/v1/whatif", {
    method: "POST",
    headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });
  if (!response.ok) {
    throw new Error(await message(response));
  }
  return response.json();
}

// Settings are kept in this browser.
function setting<T extends string>(key: string, first: T) {
  const s = signal((localStorage.getItem(key) as T | null) ?? first);
  effect(() => localStorage.setItem(key, s.value));
  return s;
}

export type Language = "en" | "zh";
export const language = setting<Language>("tenon-language", navigator.language.startsWith("zh") ? "zh" : "en");
export const theme = setting<"auto" | "light" | "dark">("tenon-theme", "auto");
effect(() => {
  document.documentElement.lang = language.value;
  document.documentElement.dataset.theme = theme.value;
});

// now ticks for ages.
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);
