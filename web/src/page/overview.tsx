import type { Evicted, Gang, GPULoad, List, Load, PendingGroup, Quota, Status } from "../view";
import { namespace, now, pendingTopic } from "../store";
import { isKey, t } from "../text";
import { A, age, Bar, Command, Figure, kept, Marks, More, Namespace, NodeLink, number, PodLink, sum, Topic } from "../ui";
import { gangPath } from "./gangs";
import { Bars, fits } from "./gpus";
import { quotaPath } from "./quota";
import { Health, Versions } from "./system";

const gangsTopic = () => (namespace() ? "gangs/" + namespace() : "gangs");
export const overviewTopics = () => [pendingTopic(), gangsTopic(), ...(namespace() ? [] : ["nodes", "gpus", "quotas", "status", "evicted"])];

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
            <Topic<List<Load>> of="nodes">{(list) => <><Nodes nodes={list.items} /><Allocated nodes={list.items} /></>}</Topic>
            <Topic<List<GPULoad>> of="gpus">{(list) => <GPUs nodes={list.items} />}</Topic>
            <Topic<List<Quota>> of="quotas">{(list) => <Quotas quotas={list.items} />}</Topic>
            <Topic<Status> of="status">{(status) => <><Health status={status} link /><Versions status={status} /></>}</Topic>
            <Topic<List<Evicted>> of="evicted">{(list) => <LastHour evicted={list.items} />}</Topic>
          </>
        )}
        <Topic<List<Gang>> of={gangsTopic()}>{(list) => <Gangs gangs={list.items} />}</Topic>
      </div>
      <Command words={namespace() ? ["tenon", "explain", "-n", namespace()] : ["tenon", "top"]} />
      {!namespace() && <Command words={["tenon", "status"]} />}
      {!namespace() && <Command words={["tenon", "evictions", "--past"]} />}
    </>
  );
}

// What a card shows of a list. It says how many entries it leaves out.
const shownCauses = 8;
const shown = 20;

// Nodes says how many new pods can use, and what the others have free, by cause.
function Nodes({ nodes }: { nodes: Load[] }) {
  const ailing = nodes.filter((n) => n.health?.findings);
  const closed = nodes.filter((n) => n.health?.closed);
  const causes = [...Map.groupBy(closed, (n) => n.health!.closed!)].sort(([a], [b]) => (a < b ? -1 : 1));
  const all = sum(nodes, (n) => number(n.allocatable));
  const stranded = (of: Load[]) => +sum(of, (n) => number(n.stranded)).toFixed(1);
  return (
    <Figure
      id="health"
      title={t("usable", nodes.length - closed.length, nodes.length)}
      picture={
        <>
          {causes.length > 0 && (
            <ul class="causes small">
              {causes.map(([cause, of]) => (
                <li>
                  <span class="code">{cause}</span>
                  <Bar part={stranded(of)} whole={all} label={`${cause}: ${t("strandedIs", String(stranded(of)))}`} />
                  <span class="count">{stranded(of)}</span>
                  <span class="message wide">{t("strandedOn", stranded(of), of.length)}</span>
                </li>
              ))}
            </ul>
          )}
          <ul class="inline">
            {ailing.slice(0, shown).map((n) => <li><NodeLink node={n.node} /> <Marks health={n.health} /></li>)}
            <More of={ailing.length} shown={shown} to="/fleet?table=nodes" />
          </ul>
        </>
      }
      head={[t("node"), t("health"), t("strandedCPUs")]}
      rows={nodes.map((n) => [<NodeLink node={n.node} />, n.health?.findings ? <Marks health={n.health} /> : "–", n.stranded ?? "–"])}
    />
  );
}

function Waiting({ groups }: { groups: PendingGroup[] }) {
  const rest = sum(groups.slice(shownCauses), (g) => g.count);
  const most = Math.max(1, rest, ...groups.map((g) => g.count));
  const to = (g: PendingGroup) => "/pending?" + new URLSearchParams({ ...(namespace() && { namespace: namespace() }), cause: g.rootCause, pod: g.example });
  return (
    <Figure
      id="waiting"
      title={t("waiting", sum(groups, (g) => g.count))}
      picture={
        <ul class="causes small">
          {groups.slice(0, shownCauses).map((g) => (
            <li>
              <A to={to(g)}>
                <span class="code">{g.rootCause}</span>
                <Bar part={g.count} whole={most} label={`${g.rootCause}: ${g.count}`} kind={"class-" + g.class} />
                <span class="count">{g.count}</span>
              </A>
            </li>
          ))}
          {groups.length > shownCauses && (
            <li>
              <A to={"/pending" + kept()}>
                <span>{t("moreCauses", groups.length - shownCauses)}</span>
                <Bar part={rest} whole={most} label={t("moreCauses", groups.length - shownCauses) + ": " + rest} />
                <span class="count">{rest}</span>
              </A>
            </li>
          )}
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

// LastHour is who was evicted within an hour, by whom and why.
function LastHour({ evicted }: { evicted: Evicted[] }) {
  const since = now.value - 3_600_000;
  const recent = evicted.filter((e) => Date.parse(e.time) > since);
  const by = (e: Evicted) => {
    const key = "by_" + e.by;
    return isKey(key) ? t(key) : e.by;
  };
  const causes = [...Map.groupBy(recent, by)].sort(([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1));
  return (
    <Figure
      id="evicted"
      title={t("evicted", recent.length)}
      picture={
        <>
          <p><A to="/evictions">{t("descheduling")}</A></p>
          <ul class="causes small">
            {causes.map(([cause, of]) => (
              <li>
                <span class="code">{cause}</span>
                <Bar part={of.length} whole={recent.length} label={`${cause}: ${of.length}`} />
                <span class="count">{of.length}</span>
                {of[0].why && <span class="message wide">{of[0].why}</span>}
              </li>
            ))}
          </ul>
        </>
      }
      head={[t("age"), t("pod"), t("evictedBy"), t("why")]}
      rows={recent.map((e) => [age(e.time), <PodLink pod={e.pod} />, by(e), e.why ?? "–"])}
    />
  );
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
        {borrowing.slice(0, shown).map((q) => <li><A to={quotaPath(q.name)}>{q.name}</A></li>)}
        <More of={borrowing.length} shown={shown} to="/quota" />
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
        {gangs.slice(0, shown).map((g) => <li><A to={gangPath(g.name)}>{g.name}</A>: {g.state}</li>)}
        <More of={gangs.length} shown={shown} to={"/gangs" + kept()} />
      </ul>
    </section>
  );
}
