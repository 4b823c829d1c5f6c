import type { List, ModeOfNode, Reservation } from "../view";
import { t } from "../text";
import { A, age, Bar, Facts, Figure, Head, NodeLink, number, parts, PodList, Topic } from "../ui";

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

const amounts = (a: Record<string, string> | null) => Object.entries(a ?? {}).map(([name, n]) => `${name} ${n}`).join(", ");
const devices = (r: Reservation) =>
  Object.entries(r.devices ?? {}).map(([type, all]) => `${type} ${all.map((d) => d.minor).join(",")}`).join("; ");
const expiry = (r: Reservation) => r.expires ?? (r.ttl && r.ttl !== "0s" ? t("afterTTL", r.ttl) : t("never"));

// use draws how much of what is reserved its pods have, by resource.
const use = (r: Reservation) => (
  <ul class="causes small">
    {Object.entries(r.allocatable).map(([name, all]) => (
      <li>
        <span class="code">{name}</span>
        <Bar part={number(r.allocated[name])} whole={number(all)} label={`${name}: ${r.allocated[name] ?? 0} / ${all}`} />
        <span class="count">{r.allocated[name] ?? 0}/{all}</span>
      </li>
    ))}
  </ul>
);

function Reservations({ all }: { all: Reservation[] }) {
  return (
    <Figure
      id="reservations"
      title={t("reservationsOf", all.filter((r) => r.phase === "Available").length, all.length)}
      picture={all.length ? (
        <ul class="quotas">
          {all.map((r) => (
            <li>
              <span><A to={path(r.name)}>{r.name}</A> <span class="badge">{r.phase}</span></span>
              {use(r)}
              <span>{r.node ? <NodeLink node={r.node} /> : "–"}</span>
              <span class="quiet">{r.message}</span>
            </li>
          ))}
        </ul>
      ) : <p class="quiet">{t("noReservation")}</p>}
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
      <Facts
        rows={[
          [t("phase"), r.phase],
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
      <Figure id="use" title={t("inUse")} picture={use(r)} head={[t("resource"), t("used"), t("reserved")]}
        rows={Object.entries(r.allocatable).map(([name, n]) => [name, r.allocated[name] ?? "0", n])} />
    </>
  );
}

// steps are those of a take-over: what the agent reports of each node.
const step = (n: ModeOfNode) => (n.takeover ? t("phaseOf", n.takeover.phase) : t("noTakeover"));

function Modes({ nodes }: { nodes: ModeOfNode[] }) {
  const groups = [...Map.groupBy(nodes, (n) => `${n.mode} · ${step(n)}`)].sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <Figure
      id="modes"
      title={t("takeover", nodes.filter((n) => n.takeover).length, nodes.length)}
      picture={
        <ul class="checks">
          {groups.map(([name, group]) => (
            <li>
              <span>{name}: {group.length}</span>
              <ul class="inline">
                {group.slice(0, 20).map((n) => (
                  <li><NodeLink node={n.node} /> {n.takeover && n.takeover.phase > 1 && t("stillPinned", n.takeover.remainingPods)}</li>
                ))}
                {group.length > 20 && <li class="quiet">{t("more", group.length - 20)}</li>}
              </ul>
            </li>
          ))}
        </ul>
      }
      head={[t("node"), t("mode"), "kubelet", t("phase"), t("since"), t("pinned")]}
      rows={nodes.map((n) => [
        <NodeLink node={n.node} />, n.mode + (n.wish ? ` (→ ${n.wish})` : ""), n.kubeletPolicy, step(n), n.takeover?.since ?? "–",
        n.takeover?.remainingPods ?? "–",
      ])}
    />
  );
}
