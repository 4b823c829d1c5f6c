import type { List, ModeOfNode, Reservation } from "../view";
import { now } from "../store";
import { t } from "../text";
import { A, age, amount, duration, Facts, Figure, Head, NodeLink, number, parts, Parts, PodList, Topic } from "../ui";

export const reservationTopics = () => (nameOfPath() ? ["reservations"] : ["reservations", "modes"]);

const nameOfPath = () => parts()[1] ?? "";
const path = (name: string) => "/reservations/" + encodeURIComponent(name);

// Which room is kept and who uses it; and whose CPU assignments hold on each node, during a take-over too.
export function ReservationPage() {
  const name = nameOfPath();
  return (
    <>
      <Head title={name || t("reservations")} mono={!!name} guide="reservations"
        commands={[["tenon", "reservation", ...(name ? [name] : [])], ...(name ? [] : [["tenon", "topology"]])]} />
      <Topic<List<Reservation>> of="reservations">{({ items }) => {
        const one = items.find((r) => r.name === name);
        return one ? <One reservation={one} />
          : name ? <p class="problem">{t("noSuchReservation", name)}</p>
          : <Reservations all={items} />;
      }}</Topic>
      {!name && (
        <>
          <Topic<List<ModeOfNode>> of="modes">{({ items }) => <Modes nodes={items} />}</Topic>
        </>
      )}
    </>
  );
}

const amounts = (a: Record<string, string> | null) => Object.entries(a ?? {}).map(([name, n]) => `${name} ${amount(name, n)}`).join(", ");
const devices = (r: Reservation) =>
  Object.entries(r.devices ?? {}).map(([type, all]) => `${type} ${all.map((d) => d.minor).join(",")}`).join("; ");
const expiry = (r: Reservation) => r.expires ? t("inTime", duration((Date.parse(r.expires) - now.value) / 1000)) : (r.ttl && r.ttl !== "0s" ? t("afterTTL", r.ttl) : t("never"));

// use draws how much of what is reserved its pods have, by resource.
const use = (r: Reservation) => (
  <div class="rows">
    {Object.entries(r.allocatable).map(([name, all]) => {
      const used = r.allocated[name] ?? "0", text = `${amount(name, used)} / ${amount(name, all)}`;
      return <div class="line mini"><span class="code cut" title={name}>{name}</span><Parts whole={number(all)} parts={[{ n: number(used), kind: "in-lsr", text: `${name} ${text}` }]} /><span>{text}</span></div>;
    })}
  </div>
);

const phases: Record<string, string> = { Available: "is-ok", Pending: "is-warn", Failed: "is-bad" };
const Phase = ({ of }: { of: string }) => <span class={phases[of] ?? "quiet"}>{of === "Available" ? "●" : of === "Failed" ? "▲" : "◐"} {of}</span>;

function Reservations({ all }: { all: Reservation[] }) {
  return (
    <Figure
      id="reservations"
      title={t("reservationsOf", all.filter((r) => r.phase === "Available").length, all.length)}
      picture={all.length ? (
        <ul class="tiles machines">
          {all.map((r) => (
            <li class="tile still" data-row tabIndex={-1}>
              <span class="name"><A to={path(r.name)} title={r.name} class="code cut">{r.name}</A> <Phase of={r.phase} /></span>
              <span class="linked">{r.node ? <NodeLink node={r.node} /> : "–"} <span class="quiet small">{[r.cpuset && `CPU ${r.cpuset}`, devices(r), `${t("ends")}: ${expiry(r)}`].filter(Boolean).join(" · ")}</span></span>
              {use(r)}
              <span class="quiet small">{t("usedBy")}: {r.currentOwners.length ? <PodList pods={r.currentOwners} most={3} /> : "–"}</span>
              {r.message && <span class="is-warn small">{r.message}</span>}
            </li>
          ))}
        </ul>
      ) : <p class="empty">{t("noReservation")}</p>}
      head={[t("reservation"), t("phase"), t("age"), t("node"), t("ends"), t("isLeft"), t("cpus"), t("devices"), t("owners"), t("usedBy"), t("says")]}
      rows={all.map((r) => [
        <A to={path(r.name)}>{r.name}</A>, r.phase, age(r.createTime), r.node ? <NodeLink node={r.node} /> : "–", expiry(r),
        amounts(r.left), r.cpuset ?? "–", devices(r), r.owners.join("; "), <PodList pods={r.currentOwners} />, r.message ?? "",
      ])}
    />
  );
}

function One({ reservation: r }: { reservation: Reservation }) {
  return (
    <>
      {r.message && <div class="cause"><p>{r.message}</p></div>}
      <section class="figure">
      <Facts
        rows={[
          [t("phase"), <Phase of={r.phase} />],
          [t("node"), r.node && <NodeLink node={r.node} />],
          [t("age"), age(r.createTime)],
          [t("ends"), expiry(r)],
          [t("policies"), [r.allocatePolicy, r.allocateOnce && "allocateOnce", r.unschedulable && "unschedulable"].filter(Boolean).join(" · ")],
          [t("owners"), r.owners.join("; ")],
          [t("isLeft"), amounts(r.left)],
          [t("cpus"), r.cpuset],
          [t("devices"), devices(r)],
          [t("usedBy"), <PodList pods={r.currentOwners} />],
        ]}
      />
      </section>
      <Figure id="use" title={t("inUse")} picture={use(r)} head={[t("resource"), t("used"), t("reserved")]}
        rows={Object.entries(r.allocatable).map(([name, n]) => [name, r.allocated[name] ?? "0", n])} />
    </>
  );
}

// steps are those of a take-over: what the agent reports of each node.
const step = (n: ModeOfNode) => (n.takeover ? t("phaseOf", n.takeover.phase) : t("noTakeover"));

const shownNodes = 60;

function Modes({ nodes }: { nodes: ModeOfNode[] }) {
  const groups = [...Map.groupBy(nodes, (n) => `${n.mode} · ${step(n)}`)].sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <Figure
      id="modes"
      title={t("takeover", nodes.filter((n) => n.takeover).length, nodes.length)}
      picture={
        <div class="rows">
          {groups.map(([name, group]) => (
            <div>
              <h3>{name} <span class="quiet">{t("nodesOf", group.length)}</span></h3>
              <ul class="pills chips">
                {group.slice(0, shownNodes).map((n) => (
                  <li class="pill"><NodeLink node={n.node} /> <span class="quiet small">{[n.kubeletPolicy && `kubelet ${n.kubeletPolicy}`, n.takeover && n.takeover.phase > 1 && t("stillPinned", n.takeover.remainingPods)].filter(Boolean).join(" · ")}</span></li>
                ))}
                {group.length > shownNodes && <li class="quiet">{t("more", group.length - shownNodes)}</li>}
              </ul>
            </div>
          ))}
        </div>
      }
      head={[t("node"), t("mode"), "kubelet", t("phase"), t("since"), t("pinned")]}
      rows={nodes.map((n) => [
        <NodeLink node={n.node} />, n.mode + (n.wish ? ` (→ ${n.wish})` : ""), n.kubeletPolicy, step(n), n.takeover?.since ?? "–",
        n.takeover?.remainingPods ?? "–",
      ])}
    />
  );
}
