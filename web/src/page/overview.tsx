import type { Gang, GPULoad, List, Load, PendingGroup, Quota } from "../view";
import { namespace, pendingTopic } from "../store";
import { t } from "../text";
import { A, Bar, Command, Figure, Namespace, number, sum, Topic } from "../ui";
import { gangPath } from "./gangs";
import { Bars, fits } from "./gpus";
import { quotaPath } from "./quota";

const gangsTopic = () => (namespace() ? "gangs/" + namespace() : "gangs");
export const overviewTopics = () => [pendingTopic(), gangsTopic(), ...(namespace() ? [] : ["nodes", "gpus", "quotas"])];

// The cluster at a glance. Each part leads to its page.
export function Overview() {
  return (
    <>
      <h1>{t("overview")}</h1>
      <Namespace />
      {namespace() && <p class="note">{t("ofOneNamespace", namespace())}</p>}
      <div class="cards">
        <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => <Waiting groups={list.items} />}</Topic>
        {!namespace() && (
          <>
            <Topic<List<Load>> of="nodes">{(list) => <Allocated nodes={list.items} />}</Topic>
            <Topic<List<GPULoad>> of="gpus">{(list) => <GPUs nodes={list.items} />}</Topic>
            <Topic<List<Quota>> of="quotas">{(list) => <Quotas quotas={list.items} />}</Topic>
          </>
        )}
        <Topic<List<Gang>> of={gangsTopic()}>{(list) => <Gangs gangs={list.items} />}</Topic>
      </div>
      <Command words={namespace() ? ["tenon", "explain", "-n", namespace()] : ["tenon", "top"]} />
    </>
  );
}

function Waiting({ groups }: { groups: PendingGroup[] }) {
  const most = Math.max(1, ...groups.map((g) => g.count));
  const to = (g: PendingGroup) => "/pending?" + new URLSearchParams({ ...(namespace() && { namespace: namespace() }), cause: g.rootCause, pod: g.example });
  return (
    <Figure
      id="waiting"
      title={t("waiting", sum(groups, (g) => g.count))}
      picture={
        <ul class="causes small">
          {groups.slice(0, 8).map((g) => (
            <li>
              <A to={to(g)}>
                <span class="code">{g.rootCause}</span>
                <Bar part={g.count} whole={most} label={`${g.rootCause}: ${g.count}`} kind={"class-" + g.class} />
                <span class="count">{g.count}</span>
              </A>
            </li>
          ))}
        </ul>
      }
      head={[t("cause"), t("pods")]}
      rows={groups.map((g) => [<A to={to(g)}>{g.rootCause}</A>, g.count])}
    />
  );
}

function Allocated({ nodes }: { nodes: Load[] }) {
  const all = sum(nodes, (n) => number(n.allocatable));
  const kinds: [string, string, number][] = [
    ["lse", "LSE", sum(nodes, (n) => n.lse)],
    ["lsr", "LSR", sum(nodes, (n) => n.lsr)],
    ["kubelet", "kubelet", sum(nodes, (n) => n.kubelet)],
    ["ls", "LS", sum(nodes, (n) => number(n.ls))],
  ];
  return (
    <Figure
      id="allocated"
      title={t("allocated")}
      picture={
        <>
          <p>{t("ofCPUs", +sum(nodes, (n) => number(n.requested)).toFixed(1), all, nodes.length)}</p>
          <ul class="causes small">
            {kinds.filter(([, , n]) => n > 0).map(([kind, name, n]) => (
              <li>
                <span class="code">{name}</span>
                <Bar part={n} whole={all} label={`${name}: ${n}`} kind={"cpu-" + kind} />
                <span class="count">{+n.toFixed(1)}</span>
              </li>
            ))}
          </ul>
        </>
      }
      head={[t("class"), t("cpus")]}
      rows={kinds.map(([, name, n]) => [name, +n.toFixed(1)])}
    />
  );
}

function GPUs({ nodes }: { nodes: GPULoad[] }) {
  return nodes.length ? (
    <Bars id="gpus" title={t("gpusFree", sum(nodes, (n) => n.free), sum(nodes, (n) => n.gpus))} name="GPU" unit={t("pods")}
      rows={fits(nodes)}>
      <p><A to="/gpus">{t("gpuFit")}</A></p>
    </Bars>
  ) : null;
}

function Quotas({ quotas }: { quotas: Quota[] }) {
  const limited = quotas.filter((q) => Object.keys(q.max).length && q.parentName);
  const borrowing = limited.filter((q) => Object.values(q.borrowed).some((n) => number(n) > 0));
  if (!limited.length) {
    return null;
  }
  return (
    <section class="figure">
      <h2>{t("borrowing", borrowing.length, limited.length)}</h2>
      <ul class="inline">
        {borrowing.slice(0, 20).map((q) => <li><A to={quotaPath(q.name)}>{q.name}</A></li>)}
      </ul>
    </section>
  );
}

function Gangs({ gangs }: { gangs: Gang[] }) {
  if (!gangs.length) {
    return null;
  }
  return (
    <section class="figure">
      <h2>{t("running", gangs.filter((g) => g.state === "Bound").length, gangs.length)}</h2>
      <ul class="inline">
        {gangs.slice(0, 20).map((g) => <li><A to={gangPath(g.name)}>{g.name}</A>: {g.state}</li>)}
      </ul>
    </section>
  );
}
