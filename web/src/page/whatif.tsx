import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Decision, List, Load, Node, PendingGroup, Pod, WhatIfAnswer } from "../view";
import { ask, go, pendingTopic, query, updates, withQuery } from "../store";
import { type Key, t } from "../text";
import { cores, cpus, units, A, Beside, Head, Marks, More, number, Parts, percent, Facts, NodeLink, PodLink, Table, Topic } from "../ui";
import { Machine } from "./node";

interface Change {
  addNode?: { like: string; count: number };
  cordon?: string;
  removePod?: string;
  setQuota?: { name: string; min?: Record<string, string>; max?: Record<string, string> };
  scaleGang?: { gang: string; to: number };
  addPod?: string;
}

interface Question {
  changes: Change[];
  ask: { pods: string[]; mode: string; nodes?: string[] };
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

const isNames = (v: unknown): v is string[] => Array.isArray(v) && v.every((p) => typeof p === "string");

// question is that of the address, so that a link restores it; wrong says why the address has none.
function question(): Question & { wrong?: string } {
  const none: Question = { changes: [], ask: { pods: query("pod") ? [query("pod")] : [], mode: "schedule" } };
  if (!query("q")) {
    return none;
  }
  try {
    const q = JSON.parse(query("q"));
    const { changes = [], ask = {} } = isObject(q) ? q : { changes: 0 };
    if (!Array.isArray(changes) || !changes.every(isObject)) {
      return { ...none, wrong: t("wantsChanges") };
    }
    const { pods = [], mode = "schedule", nodes = [] }: Record<string, unknown> = isObject(ask) ? ask : { pods: 0 };
    if (!isNames(pods) || !isNames(nodes) || (mode !== "schedule" && mode !== "preempt")) {
      return { ...none, wrong: t("wantsPods") };
    }
    return { changes: changes as Change[], ask: { pods, mode, ...(nodes.length ? { nodes } : {}) } };
  } catch (error) {
    return { ...none, wrong: (error as Error).message };
  }
}

// Another question is not asked until the user says so.
const setQuestion = (q: Question) => go(withQuery({ q: JSON.stringify(q), pod: "", asked: "" }), true);

interface Outcome {
  of: string; // the question, as JSON
  answer?: WhatIfAnswer;
  error?: string;
}

const outcome = signal<Outcome | undefined>(undefined);
// busy is the question that is being asked, as JSON.
const busy = signal("");

// placedOn is the node whose picture is shown: an added node is like the one that it was copied from.
function placedOn(): string | undefined {
  const node = outcome.value?.answer?.placements[0]?.node;
  return node?.replace(/-whatif-\d+$/, "");
}

export const whatIfTopics = () => {
  const pods = question().ask.pods.slice(0, 3).map((p) => "pod/" + p);
  const node = placedOn();
  return [pendingTopic(), "nodes", "decisions", ...pods, ...(node ? ["node/" + node] : [])];
};

// run asks a question.
async function run(q: Question) {
  const of = JSON.stringify(q);
  busy.value = of;
  let found: Outcome;
  try {
    found = { of, answer: await ask<WhatIfAnswer>(q) };
  } catch (error) {
    found = { of, error: (error as Error).message };
  }
  if (busy.peek() === of) { // no other question was asked in the meantime
    busy.value = "";
    outcome.value = found;
  }
}

// Where pods would go in another cluster: the question, and before and after. An address with asked=yes asks at once.
export function WhatIf() {
  const { wrong, ...q } = question();
  const text = JSON.stringify(q);
  const found = outcome.value?.of === text ? outcome.value : undefined;
  const asked = query("asked") === "yes" && !wrong && q.ask.pods.length > 0;
  useEffect(() => {
    if (asked && outcome.peek()?.of !== text) {
      run(q);
    }
  }, [asked, text]);
  const again = () => {
    go(withQuery({ asked: "yes" }), true);
    run(q);
  };
  return (
    <>
      <Head title={t("whatIf")} sub={t("whatIfIs")} guide="what-if" commands={[command(q)]} />
      {wrong && <p class="problem" role="alert">{t("noQuestion", wrong)}</p>}
      <Mover />
      <Beside
        answer={(found || busy.value === text) && (
          <>
            {busy.value === text && <p class="quiet" role="status">{t("asking")}</p>}
            {found?.error && <p class="problem" role="alert">{found.error}</p>}
            {found?.answer && <Answer q={q} answer={found.answer} />}
          </>
        )}
      >
        <form class="figure" onSubmit={(e) => { e.preventDefault(); again(); }}>
          <Asked q={q} />
          <Changes q={q} />
          <p>
            <button type="submit" class="primary" disabled={!!busy.value || !q.ask.pods.length}>{busy.value ? t("asking") : t("ask")}</button>
          </p>
        </form>
      </Beside>
    </>
  );
}

const chosen = signal(""); // the pod that is to be put on a node
const shownPods = 40;
const shownNodes = 60;

// Mover puts a pod on a node, in the scheduler's copy of the cluster: by dragging it there, or by choosing both with
// the keyboard.
function Mover() {
  const nodes = (updates.value.nodes?.answer as List<Load> | undefined)?.items ?? [];
  const waiting = (updates.value[pendingTopic()]?.answer as List<PendingGroup> | undefined)?.items.flatMap((g) => g.pods) ?? [];
  const known = new Map((updates.value.decisions?.answer as List<Decision> | undefined)?.items.map((d) => [d.pod, d.node] as const));
  waiting.forEach((p) => known.set(p, ""));
  const filter = query("find"), pods = [...known].filter(([p]) => p.includes(filter)).sort(([a, x], [b, y]) => Number(!!x) - Number(!!y) || (a < b ? -1 : 1));
  const pod = known.has(chosen.value) ? chosen.value : "";
  const put = (name: string, node: string) => {
    if (known.has(name) && node !== known.get(name)) {
      const q: Question = { changes: known.get(name) ? [{ removePod: name }] : [], ask: { pods: [name], mode: "schedule", nodes: [node] } };
      go(withQuery({ q: JSON.stringify(q), pod: "", asked: "yes" }), true);
    }
  };
  const target = query("q") ? question().ask.nodes?.[0] : undefined;
  // Beside another question the answer comes first: this part is folded.
  return (
    <details class="figure mover" open={!query("q") || !!target}>
      <summary><h2>{t("moveTitle")} <span class="quiet small">{t("moveIs")}</span></h2></summary>
      <div class="pick">
        <label class="quiet small">{t("filter")} <input value={filter} onInput={(e) => go(withQuery({ find: e.currentTarget.value }), true)} /></label>
        <ul class="inline">
          {pods.slice(0, shownPods).map(([name, node]) => (
            <li>
              <button type="button" class="podchip" draggable aria-pressed={name === pod} title={`${name} ${node || t("waitsNow")}`} onClick={() => (chosen.value = name === pod ? "" : name)}
                onDragStart={(e) => { e.dataTransfer?.setData("text/plain", name); chosen.value = name; }}>
                <span class={node ? "is-ok" : "is-warn"} aria-hidden="true">{node ? "●" : "◐"}</span> <span class="code cut">{name}</span> <span class="quiet small">{node ? "" : t("waitsNow")}</span>
              </button>
            </li>
          ))}
          <More of={pods.length} shown={shownPods} />
          {!pods.length && <li class="quiet">{t("nothing")}</li>}
        </ul>
      </div>
      <ul class="targets">
        {nodes.slice(0, shownNodes).map((n) => {
          const here = !!pod && known.get(pod) === n.node;
          return (
            <li>
              <button type="button" class={"target" + (n.node === target ? " chosen" : "") + (here ? " here" : "")} disabled={!pod || here} title={pod ? t("putHere", pod) : t("choosePod")} data-node={n.node}
                onClick={() => put(pod, n.node)} onDragOver={(e) => e.preventDefault()}
                onDrop={(e) => { e.preventDefault(); put(e.dataTransfer?.getData("text/plain") || pod, n.node); }}>
                <span class="between"><span class="code cut" title={n.node}>{n.node}</span> <Marks health={n.health} short /> <b>{percent(number(n.requested) / number(n.allocatable))}</b></span>
                <Parts whole={number(n.allocatable)} parts={[{ kind: "in-lsr", n: number(n.requested), text: `${cores(number(n.requested))} / ${cores(number(n.allocatable))} CPU` }]} />
              </button>
            </li>
          );
        })}
        <More of={nodes.length} shown={shownNodes} to="/fleet" />
      </ul>
    </details>
  );
}

function Asked({ q }: { q: Question }) {
  const waiting = (updates.value[pendingTopic()]?.answer as List<PendingGroup> | undefined)?.items.flatMap((g) => g.pods) ?? [];
  const set = (pods: string[], mode = q.ask.mode, nodes = q.ask.nodes) => setQuestion({ ...q, ask: { pods, mode, ...(nodes?.length && mode === "schedule" ? { nodes } : {}) } });
  return (
    <>
      <h2>{t("whichPods")}</h2>
      <p class="form">
        <label>
          {t("pods")}{" "}
          <input list="waiting" size={36} value={q.ask.pods.join(" ")} placeholder="default/pretrain"
            onChange={(e) => set(e.currentTarget.value.split(/[\s,]+/).filter(Boolean))} />
        </label>
        <datalist id="waiting">{waiting.slice(0, 200).map((p) => <option value={p} />)}</datalist>
        <label>
          <input type="checkbox" checked={q.ask.mode === "preempt"}
            onChange={(e) => set(q.ask.pods, e.currentTarget.checked ? "preempt" : "schedule")} />{" "}
          {t("mayEvict")}
        </label>
        {q.ask.nodes && <span>{t("onlyOn", q.ask.nodes.join(", "))} <button type="button" onClick={() => set(q.ask.pods, q.ask.mode, [])}>{t("remove")}</button></span>}
      </p>
    </>
  );
}

// command asks the same question on the command line.
function command({ changes, ask }: Question): string[] {
  const words = ["tenon", "whatif", ...ask.pods.map((p) => "pod/" + p), ...changes.flatMap(flag), ...(ask.nodes ?? []).flatMap((n) => ["--on", "node/" + n])];
  return ask.mode === "preempt" ? [...words, "--preempt"] : words;
}

function flag(c: Change): string[] {
  if (c.addNode) {
    return ["--add", `${c.addNode.count || 1} x like node/${c.addNode.like}`];
  }
  if (c.cordon) {
    return ["--cordon", "node/" + c.cordon];
  }
  if (c.removePod) {
    return ["--remove", "pod/" + c.removePod];
  }
  if (c.scaleGang) {
    return ["--scale-gang", `${c.scaleGang.gang}=${c.scaleGang.to}`];
  }
  if (c.setQuota) {
    const { name, min = {}, max = {} } = c.setQuota;
    const amounts = (bound: string, of: Record<string, string>) => Object.entries(of).map(([r, n]) => `${bound}.${r}=${n}`);
    return ["--set-quota", `${name}:${[...amounts("max", max), ...amounts("min", min)]}`];
  }
  return ["--change", JSON.stringify(c)];
}

const kinds: Record<keyof Change, Key> = {
  addNode: "addNode", cordon: "cordon", removePod: "removePod", setQuota: "setQuota", scaleGang: "scaleGang", addPod: "addPod",
};

function Changes({ q }: { q: Question }) {
  const nodes = (updates.value.nodes?.answer as List<Load> | undefined)?.items.map((n) => n.node) ?? [];
  const first: Record<keyof Change, () => Change> = {
    addNode: () => ({ addNode: { like: nodes[0] ?? "", count: 1 } }),
    cordon: () => ({ cordon: nodes[0] ?? "" }),
    removePod: () => ({ removePod: "" }),
    setQuota: () => ({ setQuota: { name: "", max: { cpu: "" } } }),
    scaleGang: () => ({ scaleGang: { gang: "", to: 1 } }),
    addPod: () => ({ addPod: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: new\n  namespace: default\nspec:\n  containers:\n  - name: main\n    image: busybox\n    resources:\n      requests: {cpu: 4, memory: 8Gi}\n" }),
  };
  const change = (i: number, to?: Change) => {
    const changes = [...q.changes];
    to ? (changes[i] = to) : changes.splice(i, 1);
    setQuestion({ ...q, changes });
  };
  return (
    <>
      <h2>{t("changes")}</h2>
      {q.changes.map((c, i) => (
        <p class="form change">
          <Field change={c} nodes={nodes} set={(to) => change(i, to)} />
          <button type="button" onClick={() => change(i)}>{t("remove")}</button>
        </p>
      ))}
      <p class="form">
        {Object.entries(kinds).map(([kind, title]) => (
          <button type="button" onClick={() => change(q.changes.length, first[kind as keyof Change]())}>+ {t(title)}</button>
        ))}
      </p>
    </>
  );
}

function Field({ change: c, nodes, set }: { change: Change; nodes: string[]; set: (to: Change) => void }) {
  const input = (label: string, value: string, to: (v: string) => Change, size = 24) => (
    <label>{label} <input size={size} value={value} onChange={(e) => set(to(e.currentTarget.value.trim()))} /></label>
  );
  const select = (label: string, value: string, to: (v: string) => Change) => (
    <label>
      {label}{" "}
      <select value={value} onChange={(e) => set(to(e.currentTarget.value))}>
        {(nodes.includes(value) ? nodes : [value, ...nodes]).map((n) => <option value={n}>{n}</option>)}
      </select>
    </label>
  );
  if (c.addNode) {
    const { like, count } = c.addNode;
    return (
      <>
        {select(t("addNode"), like, (v) => ({ addNode: { like: v, count } }))}
        <label>
          × <input type="number" min={1} max={100} value={count}
            onChange={(e) => set({ addNode: { like, count: Number(e.currentTarget.value) } })} />
        </label>
      </>
    );
  }
  if (c.cordon !== undefined) {
    return select(t("cordon"), c.cordon, (v) => ({ cordon: v }));
  }
  if (c.removePod !== undefined) {
    return input(t("removePod"), c.removePod, (v) => ({ removePod: v }));
  }
  if (c.scaleGang) {
    const { gang, to } = c.scaleGang;
    return (
      <>
        {input(t("scaleGang"), gang, (v) => ({ scaleGang: { gang: v, to } }))}
        <label>
          → <input type="number" min={1} value={to} onChange={(e) => set({ scaleGang: { gang, to: Number(e.currentTarget.value) } })} />
        </label>
      </>
    );
  }
  if (c.setQuota) {
    const { name, min, max } = c.setQuota;
    const resource = Object.keys(max ?? min ?? {})[0] ?? "cpu";
    const next = (n: string, r: string, low: string, high: string): Change => ({
      setQuota: { name: n, ...(low ? { min: { [r]: low } } : {}), ...(high || !low ? { max: { [r]: high } } : {}) },
    });
    const [low, high] = [min?.[resource] ?? "", max?.[resource] ?? ""];
    return (
      <>
        {input(t("setQuota"), name, (v) => next(v, resource, low, high), 16)}
        {input(t("resource"), resource, (v) => next(name, v, low, high), 16)}
        {input("min", low, (v) => next(name, resource, v, high), 6)}
        {input("max", high, (v) => next(name, resource, low, v), 6)}
      </>
    );
  }
  if (c.addPod === undefined) {
    return <span title={JSON.stringify(c)}>{sentence(c as Patches)}</span>; // a fix of the scheduler, to remove or to keep
  }
  return (
    <label class="manifest">
      {t("addPod")}
      <textarea rows={12} cols={60} spellcheck={false} value={c.addPod} onChange={(e) => set({ addPod: e.currentTarget.value })} />
    </label>
  );
}

interface Patches {
  patchPod?: { name: string; patch: unknown };
  patchNode?: { name: string; patch: unknown };
}

// leaves lists the values of a patch with their paths: "spec.priority = 5". null removes a value.
function leaves(patch: unknown, path = ""): string[] {
  if (isObject(patch) && Object.keys(patch).length) {
    return Object.entries(patch).flatMap(([key, value]) => leaves(value, path ? `${path}.${key}` : key));
  }
  if (Array.isArray(patch) && patch.some(isObject)) {
    return patch.flatMap((value, i) => {
      const { name = i, ...rest } = isObject(value) ? value : { value };
      return leaves(Object.keys(rest).length ? rest : value, `${path}[${name}]`);
    });
  }
  return [patch === null ? t("withoutValue", path) : `${path} = ${typeof patch === "string" ? patch : JSON.stringify(patch)}`];
}

// sentence says what a change of a pod or of a node is.
function sentence(c: Patches): string {
  if (c.patchPod) {
    return t("patchPod", c.patchPod.name, leaves(c.patchPod.patch).join(", "));
  }
  if (c.patchNode) {
    return t("patchNode", c.patchNode.name, leaves(c.patchNode.patch).join(", "));
  }
  return leaves(c).join(", ");
}

function Answer({ q, answer }: { q: Question; answer: WhatIfAnswer }) {
  const node = placedOn();
  const first = answer.placements[0];
  const marked = cpus(first?.resourceStatus?.cpuset);
  return (
    <>
      <div class="sides">
        <section class="figure">
          <h2>{t("before")}</h2>
          {q.ask.pods.slice(0, 3).map((p) => <Topic<Pod> of={"pod/" + p}>{(pod) => <Now pod={pod} />}</Topic>)}
        </section>
        <section class="figure" aria-live="polite">
          <h2>{t("after")}</h2>
          {answer.placements.map((p) => (
            <Side pod={p.pod} state={t("wouldRun")} good>
              <Facts
                rows={[
                  [t("node"), p.node === node ? <NodeLink node={p.node} /> : p.node],
                  [t("cpus"), p.resourceStatus?.cpuset],
                  [t("devices"), Object.entries(p.devices ?? {}).map(([kind, list]) => `${kind} ${list.map((d) => d.minor).sort((a, b) => a - b).join(",")}`).join("; ")],
                ]}
              />
            </Side>
          ))}
          {answer.unschedulable.map((p) => (
            <Side pod={p.pod} state={p.rootCause?.code ?? t("wouldWait")}>
              <p>{p.rootCause?.message}</p>
              <p>{p.rootCause?.do}</p>
            </Side>
          ))}
        </section>
      </div>
      <Room q={q} answer={answer} />
      <Moved q={q} answer={answer} />
      {answer.victims.length + (answer.victimsHidden ?? 0) > 0 && (
        <section class="figure">
          <h2>{t("victims")}</h2>
          <Table label={t("victims")} head={[t("pod"), t("node"), t("forPod")]}
            rows={answer.victims.map((v) => [<PodLink pod={v.pod} />, <NodeLink node={v.node} />, <PodLink pod={v.for} />])} />
          {answer.victimsHidden ? <p class="note">{t("hidden", answer.victimsHidden)}</p> : null}
        </section>
      )}
      {node && marked.size > 0 && (
        <>
          <h2>{first.node}</h2>
          {first.node !== node && <p class="note">{t("likeNode", node)}</p>}
          <Topic<Node> of={"node/" + node}>{(n) => <Machine node={n} marked={marked} />}</Topic>
        </>
      )}
    </>
  );
}

// Room draws how many of the pods run, and what of their nodes is requested, before and after.
function Room({ q, answer }: { q: Question; answer: WhatIfAnswer }) {
  const known = q.ask.pods.map((p) => updates.value["pod/" + p]?.answer as Pod | undefined).filter((p) => p?.placement).length;
  const all = answer.placements.length + answer.unschedulable.length, after = answer.placements.length;
  const bar = (n: number) => <Parts whole={Math.max(1, all)} parts={[
    { n, kind: "in-ls", text: `${t("wouldRun")}: ${n}`, label: `● ${n}` }, { n: all - n, kind: "in-stranded", text: `${t("wouldWait")}: ${all - n}`, label: `◐ ${all - n}` },
  ]} />;
  return (
    <section class="figure">
      <h2>{t("podsPlaced")} <span class={after > known ? "is-ok" : after < known ? "is-bad" : "quiet"}>{after - known > 0 ? "+" : ""}{after - known}</span></h2>
      <div class="rows">
        <div class="line"><span>{t("before")}</span>{bar(known)}<span>{known}/{all}</span></div>
        <div class="line"><span>{t("after")}</span>{bar(after)}<span>{after}/{all}</span></div>
      </div>
    </section>
  );
}

// Moved draws the CPUs that are requested on the nodes that a pod leaves or comes to, before and after.
function Moved({ q, answer }: { q: Question; answer: WhatIfAnswer }) {
  const loads = new Map((updates.value.nodes?.answer as List<Load> | undefined)?.items.map((n) => [n.node, n]));
  const removed = new Set(q.changes.map((c) => c.removePod).filter(Boolean));
  const change = new Map<string, number>();
  const add = (node: string | undefined, n: number) => node && change.set(node, (change.get(node) ?? 0) + n);
  for (const name of q.ask.pods.slice(0, 3)) {
    const pod = updates.value["pod/" + name]?.answer as Pod | undefined, asked = number(/([\d.]+m?) (?:exclusive )?CPU/.exec(pod?.asked ?? "")?.[1]);
    removed.has(name) && add(pod?.placement?.node, -asked);
    add(answer.placements.find((p) => p.pod === name)?.node, asked);
  }
  const rows = [...change].map(([node, n]) => [node, loads.get(node) ?? loads.get(node.replace(/-whatif-\d+$/, "")), n, loads.has(node)] as const);
  if (!rows.some(([, , n]) => n)) {
    return null;
  }
  const bar = (title: string, load: Load, n: number, kind: string) => (
    <div class="line mini"><span>{title}</span><Parts whole={number(load.allocatable)} parts={[{ n, kind, text: cores(n) + " CPU" }]} /><span>{cores(n)} / {cores(number(load.allocatable))}</span></div>
  );
  return (
    <section class="figure">
      <h2>{t("nodesThen")}</h2>
      <div class="sides">
        {rows.map(([node, load, n, exists]) => load && (
          <div class="rows">
            <span class="code cut" title={node}>{node}</span>
            {bar(t("before"), load, exists ? number(load.requested) : 0, "in-other")}
            {bar(t("after"), load, Math.max(0, (exists ? number(load.requested) : 0) + n), n > 0 ? "in-lsr" : "in-ls")}
          </div>
        ))}
      </div>
    </section>
  );
}

function Now({ pod }: { pod: Pod }) {
  return (
    <Side pod={pod.pod} state={pod.rootCause?.code ?? pod.state} good={!pod.rootCause}>
      <p>{pod.rootCause?.message ?? (pod.placement && <>{t("placedOn")} <NodeLink node={pod.placement.node} /></>)}</p>
      <p class="quiet">{units(pod.asked ?? "")}</p>
    </Side>
  );
}

function Side({ pod, state, good, children }: { pod: string; state: string; good?: boolean; children: ComponentChildren }) {
  return (
    <article class={"side " + (good ? "good" : "bad")}>
      <h3><PodLink pod={pod} /> <span class="badge">{state}</span></h3>
      {children}
    </article>
  );
}

// questionPath is the address of a question about a pod.
export const questionPath = (changes: object[], pod: string, mode = "schedule") =>
  "/whatif?" + new URLSearchParams({ q: JSON.stringify({ changes, ask: { pods: [pod], mode } }), asked: "yes" });

// Try leads from a pod that waits to questions about it.
export function Try({ pod, nodes }: { pod: string; nodes: string[] }) {
  const link = (changes: Change[], mode?: string) => questionPath(changes, pod, mode);
  return (
    <p class="form">
      <span>{t("try")}:</span>
      {nodes.slice(0, 1).map((like) => <A class="button" to={link([{ addNode: { like, count: 1 } }])}>{t("tryNode", like)}</A>)}
      <A class="button" to={link([], "preempt")}>{t("tryPreempt")}</A>
      <A class="button" to={"/whatif?" + new URLSearchParams({ pod })}>{t("tryOther")}</A>
    </p>
  );
}
