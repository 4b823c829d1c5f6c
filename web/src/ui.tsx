// Parts that pages share.
import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { HealthHealth } from "./view";
import { go, link, namespace, now, place, query, updates, withQuery } from "./store";
import { t } from "./text";

export const clock = (d: Date) => d.toTimeString().slice(0, 8);

// age writes how long ago a time was, as the command line does.
export function age(since: string | undefined): string {
  if (!since) {
    return "–";
  }
  const seconds = Math.max(0, Math.round((now.value - Date.parse(since)) / 1000));
  if (seconds < 120) {
    return seconds + "s";
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) {
    return minutes + "m";
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? hours + "h" : Math.floor(hours / 24) + "d";
}

const factors: Record<string, number> = {
  "": 1, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

// number reads a quantity of Kubernetes, to draw it.
export function number(quantity: string | undefined): number {
  const [, digits, unit] = /^(-?[\d.]+)([a-zA-Z]*)$/.exec(quantity ?? "") ?? ["", "0", ""];
  return Number(digits) * (factors[unit] ?? 1);
}

export const sum = <T,>(items: T[], of: (item: T) => number) => items.reduce((n, item) => n + of(item), 0);

// A is a link within the console.
export function A(props: { to: string; children: ComponentChildren; class?: string; current?: boolean; title?: string; label?: string; replace?: boolean }) {
  const follow = (e: MouseEvent) => {
    if (!e.metaKey && !e.ctrlKey && !e.shiftKey && e.button === 0) {
      e.preventDefault();
      go(props.to, props.replace);
    }
  };
  return (
    <a href={props.to} class={props.class} title={props.title} onClick={follow}
      aria-label={props.label} aria-current={props.current ? "page" : undefined}>
      {props.children}
    </a>
  );
}

const shapes: Record<string, string> = { notReady: "▲", cordon: "■" };

// Marks says what is wrong with a node, by shape and word; nothing for a healthy one.
export function Marks({ health }: { health?: HealthHealth }) {
  return (
    <>
      {health?.findings?.map((f) => (
        <span class={"mark mark-" + f.cause} title={[f.text, f.message, f.since && t("sinceWhen", age(f.since))].filter(Boolean).join(": ")}>
          {Object.hasOwn(shapes, f.cause) ? shapes[f.cause] : "◐"} {f.text}
        </span>
      ))}
    </>
  );
}

export const podPath = (pod: string) => "/pod/" + pod.split("/").map(encodeURIComponent).join("/");
export const PodLink = ({ pod }: { pod: string }) =>
  pod.includes("/") ? <A to={podPath(pod)}>{pod}</A> : <span>{pod}</span>;
// HolderLink names who holds a device: a pod, or a ResourceClaim, which has no page.
export const HolderLink = ({ holder: h }: { holder: { pod: string; claim?: boolean } }) =>
  h.claim ? <span>claim {h.pod}</span> : <PodLink pod={h.pod} />;
export const nodePath = (node: string) => "/node/" + encodeURIComponent(node);
export const NodeLink = ({ node }: { node: string }) => <A to={nodePath(node)}>{node}</A>;

// word quotes a word for a shell.
const word = (w: string) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", "'\\''") + "'");

// Copy is a button that copies a text.
export function Copy({ text, title = t("copy") }: { text: string; title?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return <button type="button" onClick={copy}>{copied ? t("copied") : title}</button>;
}

// Command is a line of a terminal that shows the same, to copy.
export function Command({ words, title = t("asCommand") }: { words: string[]; title?: string }) {
  const text = words.map(word).join(" ");
  return (
    <p class="command">
      <span>{title}</span> <code>{text}</code> <Copy text={text} />
    </p>
  );
}

// Namespace chooses one: who may not read the pods of all namespaces sees those of that one.
export function Namespace() {
  const choose = (e: SubmitEvent) => {
    e.preventDefault();
    const chosen = String(new FormData(e.currentTarget as HTMLFormElement).get("namespace")).trim();
    go(withQuery({ namespace: chosen, cause: "", pod: "" }));
  };
  return (
    <form class="form" onSubmit={choose}>
      <label>{t("namespace")} <input name="namespace" value={namespace()} placeholder={t("allOfThem")} size={24} /></label>
      <button type="submit">{t("show")}</button>
    </form>
  );
}

// denied matches what is said where a right is missing.
const denied = /cannot (list|get)|is missing|forbidden/;

// ofNamespaces are the topics that a page can ask about one namespace.
const ofNamespaces = new Set(["pending", "gangs"]);

// kept is the query of a link to another page.
export const kept = () => (namespace() ? "?" + new URLSearchParams({ namespace: namespace() }) : "");

// Topic draws an answer of the server, or why there is none.
export function Topic<T>({ of, children }: { of: string; children: (answer: T) => ComponentChildren }) {
  const update = updates.value[of];
  if (!update) {
    return link.value.state === "connecting" || link.value.state === "live" ? <p class="quiet">{t("loading")}</p> : null;
  }
  return (
    <>
      {update.error && (
        <p class="problem" role="alert">
          {update.error}
          {update.answer ? " (" + t("dataFrom", clock(new Date(update.read)), age(update.read)) + ")" : ""}
        </p>
      )}
      {update.error && !update.answer && denied.test(update.error) && (
        <p class="note linked">
          {t(ofNamespaces.has(of) ? "chooseNamespace" : "wholeCluster")} <A to={"/pending" + kept()}>{t("pending")}</A>
        </p>
      )}
      {update.notes?.map((note) => <p class="note">{note}</p>)}
      {update.answer ? (update.error ? <div class="stale">{children(update.answer as T)}</div> : children(update.answer as T)) : null}
    </>
  );
}

// Table is a table that scrolls within its own box.
export function Table({ head, rows, label }: { head: string[]; rows: ComponentChildren[][]; label: string }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>{head.map((h) => <th scope="col">{h}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>{row.map((cell) => <td>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type Rows = ComponentChildren[][];

// Figure is a picture with its table; the address says which of them is shown. Many rows are made only for the table.
export function Figure(props: { id: string; title: string; picture: ComponentChildren; head: string[]; rows: Rows | (() => Rows) }) {
  const asTable = query("table").split(" ").includes(props.id);
  const others = query("table").split(" ").filter((id) => id && id !== props.id);
  const to = withQuery({ table: (asTable ? others : [...others, props.id]).join(" ") });
  return (
    <section class="figure">
      <h2>
        {props.title}{" "}
        <A to={to} replace class="switch">{asTable ? t("picture") : t("table")}</A>
      </h2>
      {asTable
        ? <Table head={props.head} rows={typeof props.rows === "function" ? props.rows() : props.rows} label={props.title} />
        : props.picture}
    </section>
  );
}

// Bar is a number as a part of another.
export function Bar({ part, whole, label, kind = "" }: { part: number; whole: number; label: string; kind?: string }) {
  const width = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
  return (
    <span class="bar" role="img" aria-label={label} title={label}>
      {width > 0 && <span class={"fill " + kind} style={{ width: width + "%" }} />}
    </span>
  );
}

// Beside draws an answer beside the list that it is about, where there is room for it.
export function Beside({ children, answer }: { children: ComponentChildren; answer?: ComponentChildren }) {
  return (
    <div class={answer ? "beside" : ""}>
      <div>{children}</div>
      {answer && <div class="answer">{answer}</div>}
    </div>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.filter(([, value]) => value !== undefined && value !== "" && value !== null && value !== false).map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// PodList is a list of links, cut where it is long.
export function PodList({ pods, most = 50 }: { pods: string[]; most?: number }) {
  if (!pods.length) {
    return <span class="quiet">{t("nothing")}</span>;
  }
  return (
    <ul class="inline">
      {pods.slice(0, most).map((pod) => <li><PodLink pod={pod} /></li>)}
      {pods.length > most && <li class="quiet">{t("more", pods.length - most)}</li>}
    </ul>
  );
}

// More says how many entries a list leaves out; it leads to all of them where there is a page with them.
export function More({ of, shown, to }: { of: number; shown: number; to?: string }) {
  if (of <= shown) {
    return null;
  }
  const text = t("more", of - shown);
  return <li class="quiet">{to ? <A to={to}>{text}</A> : text}</li>;
}

// decoded reads a part of a path. An invalid encoding stands for itself.
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const parts = () => place.value.pathname.split("/").slice(1).map(decoded);

// Guard draws an error in place of a page that cannot be drawn.
export class Guard extends Component<{ children: ComponentChildren; at: string }, { failed?: Error; at?: string }> {
  static getDerivedStateFromProps(props: { at: string }, state: { at?: string }) {
    return state.at === props.at ? null : { failed: undefined, at: props.at };
  }
  componentDidCatch(failed: Error) {
    this.setState({ failed });
  }
  render() {
    return this.state.failed
      ? <p class="problem" role="alert">{t("notDrawn", this.state.failed.message)} <A to="/">{t("overview")}</A></p>
      : this.props.children;
  }
}
