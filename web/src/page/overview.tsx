import type { ComponentChildren } from "preact";
import type { Decision, Evicted, Gang, GPULoad, List, Load, NodeUse, PendingGroup, Quota, Status } from "../view";
import { namespace, now, pendingTopic, updates } from "../store";
import { causeText, isKey, t } from "../text";
import {
  A, age, amount, bytes, clock, cores, duration, Figure, Head, kept, Marks, More, Namespace, nodePath, NodeLink, number, type Part, Parts, percent,
  PodLink, Spark, sum, Topic,
} from "../ui";
import { Dots, gangPath } from "./gangs";
import { fits } from "./gpus";
import { quotaPath } from "./quota";

const gangsTopic = () => (namespace() ? "gangs/" + namespace() : "gangs");
export const overviewTopics = () => [
  pendingTopic(), gangsTopic(), ...(namespace() ? [] : ["nodes", "gpus", "quotas", "status", "evicted", "decisions", "use"]),
];

const items = <T,>(topic: string) => (updates.value[topic]?.answer as List<T> | undefined)?.items;

// The cluster at a glance. Each part leads to its page.
export function Overview() {
  const whole = !namespace();
  return (
    <>
      <Head title={t("overview")} guide="console" commands={whole ? [["tenon", "top"], ["tenon", "status"]] : [["tenon", "explain", "-n", namespace()]]}>
        {whole && <Pills />}
        <Namespace />
      </Head>
      {!whole && <p class="note">{t("ofOneNamespace", namespace())}</p>}
      <div class="grid">
        <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => <Waiting groups={list.items} />}</Topic>
        {whole && (
          <>
            <Topic<List<Load>> of="nodes">{(list) => <><Decided nodes={list.items} /><FreeGPUs /><LastHour /><Capacity nodes={list.items} /><Fleet nodes={list.items} /></>}</Topic>
          </>
        )}
        <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => <Why groups={list.items} />}</Topic>
        <Topic<List<Gang>> of={gangsTopic()}>{(list) => <Gangs gangs={list.items} />}</Topic>
        {whole && (
          <>
            <Changes />
            <Topic<List<Quota>> of="quotas">{(list) => <Quotas quotas={list.items} />}</Topic>
            <Topic<Status> of="status">{(status) => <Components status={status} />}</Topic>
          </>
        )}
      </div>
    </>
  );
}

function Pill({ bad, warn, to, children }: { bad?: boolean; warn?: boolean; to: string; children: ComponentChildren }) {
  const [kind, shape] = bad ? ["is-bad", "▲"] : warn ? ["is-warn", "■"] : ["is-ok", "●"];
  return <A to={to} class={"pill" + (bad ? " bad" : "")}><span class={kind} aria-hidden="true">{shape}</span> <span>{children}</span></A>;
}

// Pills say what is wrong with nodes, agents and components.
function Pills() {
  const nodes = items<Load>("nodes"), status = updates.value.status?.answer as Status | undefined;
  const of = (cause: string) => (nodes ?? []).filter((n) => n.health?.findings?.some((f) => f.cause === cause));
  const named = (list: Load[]) => list.length > 0 && <span class="code quiet">{list[0].node}{list.length > 1 ? ` +${list.length - 1}` : ""}</span>;
  const [down, cordoned, silent] = [of("notReady"), of("cordon"), of("agent")];
  const failing = status?.findings.filter((f) => f.status !== "ok") ?? [];
  return (
    <span class="pills">
      {nodes && (
        <>
          <Pill bad={down.length > 0} to="/fleet?by=health"><b>{down.length}</b> NotReady {named(down)}</Pill>
          <Pill warn={cordoned.length > 0} to="/fleet?by=health"><b>{cordoned.length}</b> {t("cordoned")} {named(cordoned)}</Pill>
          <Pill bad={silent.length > 0} to="/fleet?by=health"><b>{silent.length}</b> {t("agentsDown")} {named(silent)}</Pill>
        </>
      )}
      {status && (
        <Pill bad={failing.length > 0} to="/system">
          <b>{status.findings.length - failing.length}/{status.findings.length}</b> {t("checksOk")} {failing.length > 0 && <span class="code quiet">{failing[0].check}</span>}
        </Pill>
      )}
    </span>
  );
}

interface NumberProps {
  label: string;
  value: string | number;
  of?: string;
  foot?: string;
  to: string;
  children?: ComponentChildren;
}

const NumberCard = ({ label, value, of, foot, to, children }: NumberProps) => (
  <A to={to} class="figure number s3">
    <span class="label">{label}</span>
    <span><b>{value}</b> <span class="quiet">{of}</span></span>
    {children}
    <span class="foot">{foot}</span>
  </A>
);

function Waiting({ groups }: { groups: PendingGroup[] }) {
  const all = sum(groups, (g) => g.count), oldest = groups.map((g) => g.oldest).sort()[0];
  return (
    <NumberCard label={t("podsWait")} value={all} of={t("pods")} to={"/pending" + kept()} foot={oldest ? t("oldestWaits", age(oldest)) : t("nonePending")}>
      <div class="spark"><Parts whole={Math.max(1, all)} parts={causeParts(groups)} /></div>
    </NumberCard>
  );
}

// minutes counts events by the minute of the last hour.
function minutes(times: string[]): number[] {
  const out = Array<number>(60).fill(0);
  for (const time of times) {
    const i = Math.floor((now.value - Date.parse(time)) / 60_000);
    if (i >= 0 && i < 60) {
      out[59 - i]++;
    }
  }
  return out;
}

function Decided({ nodes }: { nodes: Load[] }) {
  const all = sum(nodes, (n) => number(n.allocatable)), requested = sum(nodes, (n) => number(n.requested));
  const stranded = sum(nodes, (n) => number(n.stranded)), usable = nodes.filter((n) => !n.health?.closed).length;
  return (
    <NumberCard label={t("cpuDecided")} value={percent(requested / all)} of={`${cores(requested)} / ${cores(all)}`} to="/fleet"
      foot={[t("usableNodes", usable, nodes.length), stranded > 0 && t("strandedIs", cores(stranded))].filter(Boolean).join(" · ")}>
      <div class="spark"><Parts whole={all} parts={classParts(nodes)} /></div>
    </NumberCard>
  );
}

// Missing says why what a figure is made of could not be read.
const Missing = ({ of }: { of: string[] }) => (
  <>{of.map((topic) => updates.value[topic]?.error && <p class="problem" role="alert">{updates.value[topic].error}</p>)}</>
);

function FreeGPUs() {
  const known = items<GPULoad>("gpus"), nodes = known ?? [], all = sum(nodes, (n) => n.gpus);
  const most = fits(nodes).filter(([, n]) => n > 0).map(([size]) => size).pop();
  return (
    <NumberCard label={t("gpusFreeNow")} value={known ? sum(nodes, (n) => n.free) : "–"} of={`/ ${known ? all : "–"}`} to="/gpus"
      foot={!known ? t("notKnown") : all === 0 ? t("noGPU") : t("largestSet", most ?? "0")}>
      <div class="spark"><Parts whole={Math.max(1, all)} parts={gpuParts(nodes)} /></div>
    </NumberCard>
  );
}

const recent = (evicted: Evicted[]) => evicted.filter((e) => Date.parse(e.time) > now.value - 3_600_000);

function LastHour() {
  const decisions = items<Decision>("decisions"), evicted = items<Evicted>("evicted");
  const bound = minutes((decisions ?? []).map((d) => d.time));
  return (
    <NumberCard label={t("boundInHour")} value={decisions ? sum(bound, (n) => n) : "–"} of={t("pods")} to="/decisions"
      foot={t("evictedInHour", evicted ? recent(evicted).length : "–")}>
      <Spark values={bound} label={t("boundInHour")} tone="lsr" />
    </NumberCard>
  );
}

const classes = [["lse", "LSE"], ["lsr", "LSR"], ["kubelet", "kubelet"], ["ls", "LS"]] as const;

// classParts are the CPUs of nodes by class. What is free and cannot be used by new pods is a part of its own.
export function classParts(nodes: Load[]): Part[] {
  const held = classes.map(([key, name]) => ({ kind: "in-" + key, name, n: sum(nodes, (l) => number(String(l[key]))) }));
  const other = Math.max(0, sum(nodes, (n) => number(n.requested)) - sum(held, (h) => h.n));
  const stranded = sum(nodes, (n) => number(n.stranded));
  const free = sum(nodes, (n) => number(n.allocatable)) - sum(held, (h) => h.n) - other - stranded;
  return [...held, { kind: "in-other", name: t("otherPods"), n: other < 0.05 ? 0 : other }, { kind: "in-free", name: t("freeNow"), n: free }, { kind: "in-stranded", name: t("strandedNow"), n: stranded }]
    .map(({ kind, name, n }) => ({ kind, n, text: `${name} ${cores(n)} CPU`, label: `${name} ${cores(n)}` }));
}

// memoryParts is the memory of nodes by the class of the pods that request it.
export function memoryParts(use: NodeUse[]): Part[] {
  const asked = sum(use, (u) => number(u.memory.requested)), whole = sum(use, (u) => number(u.memory.allocatable));
  const held = ["LSE", "LSR", "LS", "BE", "SYSTEM"].map((name) => ({ kind: name === "SYSTEM" ? "in-other" : "in-" + name.toLowerCase(), name, n: sum(use, (u) => number(u.memoryByClass?.[name])) }));
  const known = sum(held, (h) => h.n);
  return [...held, { kind: "in-other", name: t("requestedNow"), n: Math.max(0, asked - known) }, { kind: "in-free", name: t("freeNow"), n: Math.max(0, whole - Math.max(asked, known)) }]
    .map(({ kind, name, n }) => ({ kind, n, text: `${name} ${bytes(n)}`, label: `${name} ${bytes(n)}` }));
}

function gpuParts(nodes: GPULoad[]): Part[] {
  const all = sum(nodes, (n) => n.gpus), free = sum(nodes, (n) => n.free), shared = sum(nodes, (n) => n.inParts);
  const stranded = Math.min(sum(nodes, (n) => sum(n.stranded, (s) => s.gpus)), all - free - shared);
  return [
    { kind: "in-used", name: t("wholeGPUs"), n: all - free - shared - stranded }, { kind: "in-shared", name: t("sharedGPUs"), n: shared },
    { kind: "in-free", name: t("freeNow"), n: free }, { kind: "in-stranded", name: t("strandedNow"), n: stranded },
  ].map(({ kind, name, n }) => ({ kind, n, text: `${name} ${n} GPU`, label: `${name} ${n}` }));
}

function Capacity({ nodes }: { nodes: Load[] }) {
  const use = items<NodeUse>("use") ?? [], gpus = items<GPULoad>("gpus") ?? [];
  const cpu = sum(nodes, (n) => number(n.allocatable)), be = sum(nodes, (n) => number(n.be)), used = sum(use, (u) => number(u.cpu.used));
  const memory = sum(use, (u) => number(u.memory.allocatable)), inUse = sum(use, (u) => number(u.memory.used));
  const gpu = sum(gpus, (n) => n.gpus);
  const parts = classParts(nodes), closed = nodes.filter((n) => n.health?.closed);
  const causes = [...Map.groupBy(closed, (n) => n.health!.closed!)].sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <Figure
      id="allocated"
      class="s8 w6"
      title={t("whereCapacity")}
      sub={t("decidedOf")}
      picture={
        <>
          <Missing of={["use", "gpus"]} />
          <div class="rows">
            <div class="line"><span>CPU</span><span><Parts whole={cpu} parts={parts} />
              {(be > 0 || used > 0) && <Parts under whole={cpu} parts={[{ kind: "in-be", n: be, text: t("beReclaimed", cores(be)) }, { kind: "in-used", n: Math.max(0, used - be), text: t("usedNow", cores(used) + " CPU") }]} />}
            </span><span>{cores(cpu)}</span></div>
            {memory > 0 && (
              <div class="line"><span>{t("memoryName")}</span><span>
                <Parts whole={memory} parts={memoryParts(use)} />
                <Parts under whole={memory} parts={[{ kind: "in-ls", n: inUse, text: t("usedNow", bytes(inUse)) }]} />
              </span><span>{bytes(memory)}</span></div>
            )}
            {gpu > 0 && <div class="line"><span>GPU</span><Parts whole={gpu} parts={gpuParts(gpus)} /><span>{gpu}</span></div>}
          </div>
          <ul class="keys">
            {classes.map(([key, name]) => <li><i class={"in-" + key} /> {name}</li>)}
            <li><i class="in-be" /> {t("beThin")}</li>
            <li><i class="in-stranded" /> {t("strandedNow")}</li>
          </ul>
          {causes.map(([cause, of]) => (
            <p class="empty">◐ {t("strandedOn", cores(sum(of, (n) => number(n.stranded))), of.length)} <span class="code">{cause}</span></p>
          ))}
        </>
      }
      head={[t("class"), t("cpus")]}
      rows={parts.map((p) => [p.text, cores(p.n)])}
    />
  );
}

const shownNodes = 8;

// Fleet is the nodes that need a look, then those with most of their CPU requested.
function Fleet({ nodes }: { nodes: Load[] }) {
  const part = (n: Load) => number(n.requested) / number(n.allocatable);
  const first = [...nodes].sort((a, b) => Number(!!b.health?.findings) - Number(!!a.health?.findings) || part(b) - part(a) || (a.node < b.node ? -1 : 1));
  return (
    <Figure
      id="health"
      class="s4 w3"
      title={t("fleet")}
      sub={t("usable", nodes.filter((n) => !n.health?.closed).length, nodes.length)}
      picture={
        <div class="rows">
          {first.slice(0, shownNodes).map((n) => (
            <A to={nodePath(n.node)} class="line mini">
              <span class="code cut" title={n.node}>{n.node}</span>
              <Parts whole={number(n.allocatable)} parts={[{ kind: n.health?.closed ? "in-other" : "in-used", n: number(n.requested), text: `${cores(number(n.requested))} / ${cores(number(n.allocatable))} CPU` }]} />
              <span>{percent(part(n))} {n.health?.findings ? <Marks health={n.health} short /> : <span class="is-ok" aria-hidden="true">●</span>}</span>
            </A>
          ))}
          <More block of={nodes.length} shown={shownNodes} to="/fleet" />
        </div>
      }
      head={[t("node"), t("requested"), t("health"), t("strandedCPUs")]}
      rows={() => first.map((n) => [<NodeLink node={n.node} />, percent(part(n)), n.health?.findings ? <Marks health={n.health} /> : "–", n.stranded ?? "–"])}
    />
  );
}

const causeTo = (g: PendingGroup) => "/pending?" + new URLSearchParams({ ...(namespace() && { namespace: namespace() }), cause: g.rootCause, pod: g.example });

const causeParts = (groups: PendingGroup[]): Part[] =>
  groups.map((g, i) => ({ kind: "of-cause c" + (i % 8), n: g.count, text: `${causeText(g.rootCause)}: ${g.count}`, label: String(g.count) }));

// Why draws what pods wait for: one cause for each, so that they add up.
function Why({ groups }: { groups: PendingGroup[] }) {
  const all = sum(groups, (g) => g.count), most = 12;
  return (
    <Figure
      id="waiting"
      class="s8 w6"
      title={t("whyWait", all)}
      sub={t("oneCause")}
      picture={
        all === 0 ? <p class="empty">{t("nonePending")}</p> : (
          <>
            <Parts whole={all} parts={causeParts(groups).map((p, i) => ({ ...p, to: causeTo(groups[i]) }))} />
            <div class="causelist">
              {groups.slice(0, most).map((g, i) => (
                <A to={causeTo(g)}>
                  <i class={"dot c" + (i % 8)} /> <span class="cut" title={g.message}>{causeText(g.rootCause)}</span>
                  <span class="code">{g.rootCause}</span> <b class="count">{g.count}</b>
                </A>
              ))}
              {groups.length > most && <A to={"/pending" + kept()}><span>{t("moreCauses", groups.length - most)}</span> <b class="count code">{sum(groups.slice(most), (g) => g.count)}</b></A>}
            </div>
          </>
        )
      }
      head={[t("cause"), t("class"), t("pods"), t("oldest")]}
      rows={groups.map((g) => [<A to={causeTo(g)}>{g.rootCause}</A>, g.class, g.count, age(g.oldest)])}
    />
  );
}

const shown = 6;

function Gangs({ gangs }: { gangs: Gang[] }) {
  const waiting = gangs.filter((g) => g.state !== "Bound").sort((a, b) => (a.createTime < b.createTime ? -1 : 1));
  return (
    <section class="figure s4 w3">
      <h2>{t("gangs")} <span class="quiet small">{t("running", gangs.length - waiting.length, gangs.length)}</span></h2>
      {!waiting.length && <p class="empty">{t(gangs.length ? "noGangWaits" : "noGang")}</p>}
      <div class="rows">
        {waiting.slice(0, shown).map((g) => (
          <A to={gangPath(g.name)} class="line gang">
            <span class="code cut" title={g.name}>{g.name}</span> <Dots gang={g} most={24} /> <span class="is-warn">◐ {age(g.createTime)}</span>
          </A>
        ))}
        <More block of={waiting.length} shown={shown} to={"/gangs" + kept()} />
      </div>
    </section>
  );
}

function Quotas({ quotas }: { quotas: Quota[] }) {
  const limited = quotas.filter((q) => Object.keys(q.max).length && q.parentName);
  const borrowing = limited.flatMap((q) => Object.entries(q.borrowed).filter(([, n]) => number(n) > 0).slice(0, 1).map(([r, n]) => [q, r, n] as const));
  return (
    <section class="figure s3 w3">
      <h2>{t("quotas")} <span class="quiet small">{limited.length > 0 && t("borrowing", borrowing.length, limited.length)}</span></h2>
      {!limited.length && <p class="empty">{t("noQuota")}</p>}
      <div class="rows">
        {borrowing.slice(0, shown).map(([q, r, n]) => (
          <A to={quotaPath(q.name)} class="line quota">
            <span class="code cut" title={q.name}>{q.name}</span>
            <Parts whole={Math.max(number(q.runtime[r]), number(q.used[r]))} parts={[
              { kind: "in-lsr", n: Math.min(number(q.used[r]), number(q.min[r])), text: `${t("used")} ${amount(r, q.used[r])} / ${amount(r, q.runtime[r])} ${r}` },
              { kind: "in-lse", n: Math.max(0, number(q.used[r]) - number(q.min[r])), text: t("borrowsOf", amount(r, n) + " " + r) },
            ]} />
            <span>+{amount(r, n)}</span>
          </A>
        ))}
        <More block of={borrowing.length} shown={shown} to="/quota" />
      </div>
    </section>
  );
}

function Components({ status: s }: { status: Status }) {
  const bad = s.findings.filter((f) => f.status !== "ok");
  return (
    <section class="figure s3 w3">
      <h2><A to="/system">{t("system")}</A></h2>
      <p class="empty">{s.subject}: {bad.length ? t("checksFail", bad.length, s.findings.length) : t("checksPass", s.findings.length)}</p>
      <div class="rows">
        {bad.slice(0, shown).map((f) => <span class="cut" title={f.found}><span class={f.status === "fail" ? "is-bad" : "is-warn"}>{f.status === "fail" ? "▲" : "◐"}</span> {f.check} <span class="quiet">{f.found}</span></span>)}
        {s.components.map((c) => <span class="between"><span>{c.name}</span> <span class={c.ready < c.desired ? "is-bad" : ""}>{c.ready}/{c.desired}</span></span>)}
        {s.reports.map((r) => (
          <span class="between" title={r.oldestNode && t("oldestReport", age(r.oldest), r.oldestNode)}>
            <span>{t(r.kind === "topology" ? "topologyReports" : "deviceReports")}</span> <span class={r.nodes < r.of ? "is-bad" : ""}>{r.nodes}/{r.of}</span>
          </span>
        ))}
      </div>
    </section>
  );
}

const shownChanges = 10;

// Changes are what happened within an hour, newest first: pods that were bound or evicted.
function Changes() {
  const known = items<Evicted>("evicted"), evicted = recent(known ?? []), since = now.value - 3_600_000;
  const by = (e: Evicted) => {
    const key = "by_" + e.by;
    return isKey(key) ? t(key) : e.by;
  };
  const all = [
    ...evicted.map((e) => ({ time: e.time, pod: e.pod, kind: "is-bad", shape: "▲", what: t("wasEvicted"), says: [by(e), e.why].filter(Boolean).join(": ") })),
    ...(items<Decision>("decisions") ?? []).filter((d) => Date.parse(d.time) > since)
      .map((d) => ({ time: d.time, pod: d.pod, kind: "is-ok", shape: "●", what: t("wasBound"), says: `→ ${d.node} · ${t("feasibleOf", d.feasible, d.of)}` })),
  ].sort((a, b) => (a.time < b.time ? 1 : -1));
  return (
    <Figure
      id="changes"
      class="s6 w12"
      title={t("lastHour")}
      sub={known && t("evicted", evicted.length)}
      picture={
        <div class="rows events">
          <Missing of={["evicted", "decisions"]} />
          {!all.length && known && items("decisions") && <p class="empty">{t("nothingChanged")}</p>}
          {all.slice(0, shownChanges).map((e) => (
            <span class="event">
              <time class="quiet" dateTime={e.time} title={duration((now.value - Date.parse(e.time)) / 1000)}>{clock(new Date(e.time))}</time>
              <span class={e.kind}>{e.shape} {e.what}</span> <PodLink pod={e.pod} /> <span class="quiet cut" title={e.says}>{e.says}</span>
            </span>
          ))}
          <More block of={all.length} shown={shownChanges} to="/decisions" />
        </div>
      }
      head={[t("time"), t("pod"), t("state"), t("why")]}
      rows={() => all.map((e) => [clock(new Date(e.time)), <PodLink pod={e.pod} />, e.what, e.says])}
    />
  );
}
