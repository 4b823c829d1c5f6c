// What the page knows: its address, the stream of the server, and the settings of the user.
import { computed, effect, signal } from "@preact/signals";
import { attach, type FromTab, type Link, message, type ToTab, type Update } from "./stream";

// place is the address of the view: path and query.
export const place = signal(new URL(location.href));
export const link = signal<Link>({ state: "connecting" });
// read is when the server last read the cluster.
export const read = signal<Date | undefined>(undefined);
export const updates = signal<Record<string, Update>>({});
// topics are those that the view draws.
export const topics = signal<string[]>([]);
// visible is false while the user looks at another tab. A hidden one follows nothing.
const visible = signal(document.visibilityState === "visible");
addEventListener("visibilitychange", () => (visible.value = document.visibilityState === "visible"));

const tokenKey = "tenon-token";

// The token is in the fragment of the address that the user opens. It is kept for this tab, and the address without it
// takes the place of the other in the history of the browser.
function takeToken(): string {
  const found = /^#t=(.+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(tokenKey, found[1]);
    history.replaceState(null, "", location.pathname + location.search);
    place.value = new URL(location.href);
  }
  return sessionStorage.getItem(tokenKey) ?? "";
}

// token is undefined until another tab has been asked for its own.
const token = signal<string | undefined>(takeToken() || undefined);
addEventListener("hashchange", () => (token.value = takeToken()));

// signIn takes a token that the user entered, or that another tab has.
export function signIn(entered: string) {
  sessionStorage.setItem(tokenKey, entered);
  link.value = { state: "connecting" };
  token.value = entered;
}

// ownHub is a hub of this tab alone.
function ownHub(): MessagePort {
  const channel = new MessageChannel();
  attach(channel.port1);
  return channel.port2;
}

// sharedHub is that of all tabs, where the browser has SharedWorkers and starts this one.
declare const WORKER: string;
function sharedHub(): MessagePort {
  if (typeof SharedWorker !== "function") {
    return ownHub();
  }
  const worker = new SharedWorker(WORKER, { type: "module" });
  worker.onerror = () => follow(ownHub());
  return worker.port;
}

const hub = signal<MessagePort>(sharedHub());
const tell = (said: FromTab) => hub.value.postMessage(said);

const hear = ({ data }: MessageEvent<ToTab>) => {
  if ("update" in data) {
    updates.value = { ...updates.peek(), [data.update.topic]: data.update };
  } else if ("token" in data) {
    if (token.peek() === undefined) {
      token.value = data.token;
      sessionStorage.setItem(tokenKey, data.token);
    }
  } else {
    link.value = data.link;
    read.value = data.read ? new Date(data.read) : read.peek();
  }
};
// The hub forgets this tab once the lock is free.
const lock = "tab-" + Math.random();

function follow(other: MessagePort) {
  hub.value = other;
  other.onmessage = hear;
  if (token.peek() === undefined) {
    tell({ wantsToken: true });
  }
}
follow(hub.peek());
navigator.locks?.request(lock, () => {
  tell({ lock });
  return new Promise(() => {});
});

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

const topicKey = computed(() => JSON.stringify(topics.value));
effect(() => {
  const wanted: string[] = JSON.parse(topicKey.value);
  const known = updates.peek();
  updates.value = Object.fromEntries(wanted.filter((t) => known[t]).map((t) => [t, known[t]]));
  if (token.value !== undefined) {
    tell({ watch: visible.value ? wanted : [], token: token.value });
  }
});

// ask posts a question about another cluster than this one.
export async function ask<T>(question: unknown): Promise<T> {
  const response = await fetch("/api/v1/whatif", {
    method: "POST",
    headers: { Authorization: "Bearer " + (token.peek() ?? ""), "Content-Type": "application/json" },
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
setInterval(() => visible.peek() && (now.value = Date.now()), 1000);

// mostAge is after how many milliseconds without an answer of the server what it said last counts as old.
const mostAge = 60_000;
// stale: what the page shows is not what the server says now. A page without data is not stale.
export const stale = computed(() =>
  !!read.value && (link.value.state === "lost" || link.value.state === "denied" || now.value - read.value.getTime() > mostAge),
);

// wide: there is room for an answer beside the list.
const wideQuery = matchMedia("(min-width: 1200px)");
export const wide = signal(wideQuery.matches);
wideQuery.addEventListener("change", (e) => (wide.value = e.matches));
