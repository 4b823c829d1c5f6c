// Parts that pages share.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { HealthHealth } from "./view";
import { go, link, namespace, now, place, query, updates, withQuery } from "./store";
import { t } from "./text";

export const clock = (d: Date) => d.toTimeString().slice(0, 8);

// age writes how long ago a time was.
export const age = (since: string | undefined) => (since ? duration((now.value - Date.parse(since)) / 1000) : "–");

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds)), minutes = Math.floor(s / 60), hours = Math.floor(minutes / 60);
  return s < 120 ? s + " s" : minutes < 120 ? minutes + " min" : hours < 48 ? `${hours} h ${minutes % 60} min` : Math.floor(hours / 24) + " d";
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

// cores writes CPUs, bytes an amount of memory, percent a part of a whole, as people read them.
export const cores = (n: number) => (n > 0 && n < 0.9995 ? Math.round(n * 1000) + "m" : n.toLocaleString("en-US", { maximumFractionDigits: 1 }));
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const i = n < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(n) / 10));
  return `${+(n / 2 ** (10 * i)).toPrecision(3)} ${units[i]}`;
}
// cpus reads a list of CPUs: "0-3,8".
export function cpus(list: string | undefined): Set<number> {
  const all = new Set<number>();
  for (const part of (list ?? "").split(",").filter(Boolean)) {
    const [from, to = from] = part.split("-").map(Number);
    for (let n = from; n <= to; n++) {
      all.add(n);
    }
  }
  return all;
}
export const percent = (part: number) =>
  Number.isFinite(part) ? (part > 0 && part < 0.01 ? "<1%" : Math.round(100 * part) + "%") : "–";

// units writes the amounts of memory in a text as people read them.
export const units = (text: string) => text.replace(/(\d+(?:\.\d+)?)([KMGTP]i)\b/g, (_, n, unit) => bytes(number(n + unit)));

// amount writes a quantity of a resource.
export const amount = (resource: string, quantity: string | number) => {
  const n = typeof quantity === "number" ? quantity : number(quantity);
  return resource === "cpu" ? cores(n) : /memory|storage|hugepages/.test(resource) ? bytes(n) : String(+n.toFixed(3));
};

export const sum = <T,>(items: T[], of: (item: T) => number) => items.reduce((n, item) => n + of(item), 0);

// A is a link within the console.
export function A(props: { to: string; children: ComponentChildren; class?: string; current?: boolean; title?: string; label?: string; replace?: boolean; style?: Record<string, string>; row?: boolean }) {
  const follow = (e: MouseEvent) => {
    if (!e.metaKey && !e.ctrlKey && !e.shiftKey && e.button === 0) {
      e.preventDefault();
      go(props.to, props.replace);
    }
  };
  return (
    <a href={props.to} class={props.class} title={props.title} style={props.style} data-row={props.row || undefined} onClick={follow}
      aria-label={props.label} aria-current={props.current ? "page" : undefined}>
      {props.children}
    </a>
  );
}

const shapes: Record<string, string> = { notReady: "▲", cordon: "■" };

// Marks says what is wrong with a node, by shape and word; nothing for a healthy one.
export function Marks({ health, short }: { health?: HealthHealth; short?: boolean }) {
  return (
    <>
      {health?.findings?.slice(0, short ? 1 : undefined).map((f) => (
        <span class={"mark mark-" + f.cause} title={[f.text, f.message, f.since && t("sinceWhen", age(f.since))].filter(Boolean).join(": ")}>
          {Object.hasOwn(shapes, f.cause) ? shapes[f.cause] : "◐"}{short ? "" : " " + f.text}
        </span>
      ))}
    </>
  );
}

// A Reservation, which counts as reservation/NAME, has no page of its own.
export const podPath = (pod: string) =>
  pod.startsWith("reservation/") ? "/reservations" : "/pod/" + pod.split("/").map(encodeURIComponent).join("/");
export const PodLink = ({ pod }: { pod: string }) =>
  pod.includes("/") ? <A to={podPath(pod)} title={pod}>{pod}</A> : <span>{pod}</span>;
// HolderLink names who holds a device: a pod, or a ResourceClaim, which has no page.
export const HolderLink = ({ holder: h }: { holder: { pod: string; claim?: boolean } }) =>
  h.claim ? <span>{t("claimOf", h.pod)}</span> : <PodLink pod={h.pod} />;
export const nodePath = (node: string) => "/node/" + encodeURIComponent(node);
export const NodeLink = ({ node }: { node: string }) => <A to={nodePath(node)}>{node}</A>;

// word quotes a word for a shell.
const word = (w: string) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", "'\\''") + "'");

function useCopy(text: string): [boolean, () => void] {
  const [copied, setCopied] = useState(false);
  return [copied, async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  }];
}

// Copy is a button that copies a text.
export function Copy({ text, title = t("copy") }: { text: string; title?: string }) {
  const [copied, copy] = useCopy(text);
  return <button type="button" onClick={copy}>{copied ? t("copied") : title}</button>;
}

const lines = {
  copy: "M5.5 5.5h8v9h-8zM10.5 5.5v-4h-8v9h3", done: "M2.5 8.5l4 4 7-9", book: "M8 3.5c-2-1.5-4-1.5-6-1v10c2-.5 4-.5 6 1 2-1.5 4-1.5 6-1v-10c-2-.5-4-.5-6 1zv10",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.5 10.5l4 4", sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6L13 13M13 3l-1.4 1.4M4.4 11.6L3 13",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z", half: "M8 2.5a5.5 5.5 0 1 1 0 11zM8 2.5v11M8 2.5a5.5 5.5 0 1 0 0 11",
};
export const Icon = ({ name }: { name: keyof typeof lines }) => <svg viewBox="0 0 16 16" aria-hidden="true"><path d={lines[name]} /></svg>;

// Command is a line of a terminal that shows the same; a click copies it.
export function Command({ words, title = t("asCommand") }: { words: string[]; title?: string }) {
  const text = words.map(word).join(" ");
  const [copied, copy] = useCopy(text);
  return (
    <button type="button" class="copy" title={`${title} ${t("copy")}`} onClick={copy}>
      <code>{text}</code> <Icon name={copied ? "done" : "copy"} />
    </button>
  );
}

const guides = "https://github.com/tenon-project/tenon/blob/main/docs/guide/";

interface HeadProps {
  title: string;
  sub?: ComponentChildren;
  mono?: boolean;
  guide?: string;
  commands?: string[][];
  children?: ComponentChildren;
}

// Head is the first line of a page: what it is about, its commands and its guide.
export function Head({ title, sub, mono, guide, commands = [], children }: HeadProps) {
  return (
    <div class="head">
      <h1 class={mono ? "mono" : ""}>{title}</h1>
      {sub && <span class="quiet">{sub}</span>}
      {children}
      <span class="right">
        {commands.map((words) => <Command words={words} />)}
        {guide && (
          <a class="button icon" href={guides + guide + ".md"} target="_blank" rel="noreferrer" title={t("guide")} aria-label={t("guide")}>
            <Icon name="book" />
          </a>
        )}
      </span>
    </div>
  );
}

export interface Part {
  n: number;
  kind: string; // a class of the style sheet
  text: string; // what the part is and how much: the title
  label?: string; // what stands in it where there is room
  to?: string;
}

// Parts is a bar of parts of a whole. What is left of the whole is empty.
export function Parts({ parts, whole, under }: { parts: Part[]; whole: number; under?: boolean }) {
  const shown = parts.filter((p) => p.n > 0);
  return (
    <div class={"parts" + (under ? " under" : "")} role={shown.some((p) => p.to) ? undefined : "img"} aria-label={shown.map((p) => p.text).join(", ") || "–"}>
      {shown.map((p) => {
        const width = (100 * p.n) / (whole || 1), text = !under && width > 4 ? p.label : "";
        const props = { class: p.kind + (text ? "" : " thin"), title: p.text, style: { width: width + "%" } };
        const label = text && <span>{text}</span>;
        return p.to ? <A {...props} to={p.to} label={p.text}>{label}</A> : <span {...props}>{label}</span>;
      })}
    </div>
  );
}

// Spark is a small line of numbers over time.
export function Spark({ values, label, tone }: { values: number[]; label: string; tone?: string }) {
  const most = Math.max(1, ...values), at = values.map((n, i) => `${(100 * i) / Math.max(1, values.length - 1)} ${30 - (28 * n) / most}`);
  return (
    <svg class="spark" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label={label} style={tone ? { "--tone": `var(--${tone})` } : undefined}>
      <path class="area" d={`M0 32 L${at.join(" L")} L100 32 z`} />
      <path d={"M" + at.join(" L")} />
    </svg>
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
    <form class="namespace" onSubmit={choose}>
      <input name="namespace" value={namespace()} placeholder={t("allNamespaces")} aria-label={t("namespace")} title={t("namespace")} size={18}
        onChange={(e) => e.currentTarget.form!.requestSubmit()} />
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
    return link.value.state === "connecting" || link.value.state === "live" ? <div class="skeleton" role="status" aria-label={t("loading")} /> : null;
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
// Of a longer table only the rows in and around the window are drawn; the others are room above and below them.
export const drawnRows = 200;

export function Table({ head, rows, label }: { head: string[]; rows: ComponentChildren[][]; label: string }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [at, setAt] = useState({ first: 0, height: 0 }); // of a row, as those that are drawn have it
  const long = rows.length > drawnRows;
  useEffect(() => {
    if (!long) {
      return;
    }
    const look = () => {
      const top = body.current!.getBoundingClientRect().top, drawn = body.current!.querySelectorAll("tr:not(.room)");
      const height = (drawn[drawn.length - 1].getBoundingClientRect().bottom - drawn[0].getBoundingClientRect().top) / drawn.length;
      const step = drawnRows / 4, above = Math.floor(-top / height) - step; // it is drawn anew once in so many rows
      const first = Math.max(0, Math.min(rows.length - drawnRows, Math.floor(above / step) * step));
      setAt((was) => was.first === first && was.height ? was : { first, height });
    };
    look();
    addEventListener("scroll", look, { capture: true, passive: true });
    return () => removeEventListener("scroll", look, { capture: true });
  }, [long, rows.length]);
  const from = long ? Math.min(at.first, rows.length - drawnRows) : 0, shown = long ? rows.slice(from, from + drawnRows) : rows;
  const room = (n: number) => n > 0 && <tr class="room" aria-hidden="true"><td colSpan={head.length} style={{ height: n * at.height + "px" }} /></tr>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table aria-rowcount={long ? rows.length + 1 : undefined}>
        <thead>
          <tr>{head.map((h) => <th scope="col">{h}</th>)}</tr>
        </thead>
        <tbody ref={body}>
          {room(from)}
          {shown.map((row, i) => (
            <tr aria-rowindex={long ? from + i + 2 : undefined}>{row.map((cell) => <td>{cell}</td>)}</tr>
          ))}
          {room(rows.length - from - shown.length)}
        </tbody>
      </table>
    </div>
  );
}

type Rows = ComponentChildren[][];

// Figure is a picture with its table; the address says which of them is shown. Many rows are made only for the table.
export function Figure(props: { id: string; title: string; sub?: ComponentChildren; class?: string; picture: ComponentChildren; head: string[]; rows: Rows | (() => Rows) }) {
  const asTable = query("table").split(" ").includes(props.id);
  const others = query("table").split(" ").filter((id) => id && id !== props.id);
  const to = withQuery({ table: (asTable ? others : [...others, props.id]).join(" ") });
  return (
    <section class={"figure " + (props.class ?? "")}>
      <h2>
        {props.title} {props.sub && <span class="quiet small">{props.sub}</span>}{" "}
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
export function More({ of, shown, to, block }: { of: number; shown: number; to?: string; block?: boolean }) {
  if (of <= shown) {
    return null;
  }
  const text = t("more", of - shown);
  const link = to ? <A to={to}>{text}</A> : text;
  return block ? <p class="quiet more">{link}</p> : <li class="quiet more">{link}</li>;
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
