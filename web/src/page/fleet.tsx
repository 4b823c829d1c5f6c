import type { GPULoad, List, Load, NodeUse } from "../view";
import { go, query, updates, withQuery } from "../store";
import { type Key, t } from "../text";
import { A, Command, Figure, Marks, NodeLink, nodePath, number, sum, Topic } from "../ui";

interface Known {
  load: Load;
  gpu?: GPULoad;
  use?: NodeUse;
}

// A Measure is what the colour of a tile says: a part of 1, NaN where it is not known; or who has most of the node, by
// what each has of whole.
interface Measure {
  title: Key;
  note?: Key;
  command: string[]; // after tenon top
  part?: (n: Known) => number;
  owners?: (n: Load) => Record<string, number>;
  whole?: (n: Load) => number;
}

const cpus = (n: Load) => number(n.allocatable);
const percentOf = (n: number | undefined) => (n === undefined || n < 0 ? NaN : n / 100);

const measures: Record<string, Measure> = {
  requested: { title: "requested", command: [], part: ({ load }) => number(load.requested) / cpus(load) },
  exclusive: { title: "exclusive", command: [], part: ({ load: n }) => (n.lse + n.lsr + n.kubelet) / cpus(n) },
  load: { title: "load", command: ["nodes"], part: ({ use }) => percentOf(use?.cpu.usedPercent) },
  fragmentation: {
    title: "fragmentation", note: "fragmentationIs", command: ["-o", "wide"], part: ({ load }) => percentOf(load.fragmentedPercent),
  },
  qos: {
    title: "qos", command: [], whole: cpus,
    owners: (n) => ({ LSE: n.lse, LSR: n.lsr, kubelet: n.kubelet, LS: number(n.ls), BE: number(n.be) }),
  },
  quota: {
    title: "byQuota", command: ["-o", "wide"], whole: cpus,
    owners: (n) => Object.fromEntries(Object.entries(n.quotas ?? {}).map(([name, amount]) => [name, number(amount)])),
  },
  gang: { title: "byGang", command: ["-o", "wide"], whole: (n) => n.pods, owners: (n) => n.gangs ?? {} },
  gpu: { title: "gpuUsed", command: ["gpu"], part: ({ gpu }) => (gpu ? gpu.usedPercent / 100 / gpu.gpus : NaN) },
  stranded: { title: "gpuStranded", command: ["gpu"], part: ({ gpu }) => (gpu ? sum(gpu.stranded, (s) => s.gpus) / gpu.gpus : NaN) },
};

const chosen = () => (Object.hasOwn(measures, query("by")) ? query("by") : "requested");

export const fleetTopics = () => ["nodes", "gpus", ...(chosen() === "load" ? ["use"] : [])];

// A tile for each node.
export function Fleet() {
  return (
    <>
      <h1>{t("fleet")}</h1>
      {chosen() === "load" && <Topic of="use">{() => null}</Topic>}
      <Topic<List<Load>> of="nodes">{(list) => (
        <Topic<List<GPULoad>> of="gpus">{(gpus) => <Tiles nodes={list.items} gpus={gpus.items} />}</Topic>
      )}</Topic>
      <Command words={["tenon", "top", ...measures[chosen()].command]} />
    </>
  );
}

const level = (part: number) => "level-" + (Number.isNaN(part) ? "none" : Math.max(0, Math.min(5, Math.floor(6 * part))));
const percent = (part: number) => (Number.isNaN(part) ? "–" : Math.round(100 * part) + "%");

// sorted are owners with something, who has most first.
const sorted = (owners: Record<string, number>) =>
  Object.entries(owners).filter(([, n]) => n > 0).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));

// A Sign is the colour of an owner, with a letter: colour is never the only sign.
interface Sign {
  kind: string;
  letter: string;
}

const others: Sign = { kind: "owner owner-other", letter: "" };
const most = 7;

// signsOf gives those with most of the fleet a colour each, in the order of their names: it changes only with who they
// are. The others share one.
function signsOf(by: string, fleet: [string, number][]): Map<string, Sign> {
  if (by === "qos") {
    return new Map(fleet.map(([name]) => [name, { kind: "cpu-" + name.toLowerCase(), letter: "" }]));
  }
  const names = fleet.slice(0, most).map(([name]) => name).sort();
  return new Map(names.map((name, i) => [name, { kind: "owner owner-" + i, letter: "ABCDEFG"[i] }]));
}

function Tiles({ nodes, gpus }: { nodes: Load[]; gpus: GPULoad[] }) {
  const by = chosen(), measure = measures[by], filter = query("name"), one = measure.owners ? query("of") : "";
  const gpuOf = new Map(gpus.map((g) => [g.node, g]));
  const useOf = new Map(((updates.value.use?.answer as List<NodeUse> | undefined)?.items ?? []).map((u) => [u.node, u]));
  const shown = nodes.filter((n) => n.node.includes(filter)).map((load) => {
    const owners = measure.owners?.(load) ?? {};
    const part = one ? (owners[one] ?? 0) / (measure.whole?.(load) || NaN)
      : measure.part?.({ load, gpu: gpuOf.get(load.node), use: useOf.get(load.node) }) ?? NaN;
    return { load, part, owners: sorted(owners) };
  });
  const fleet = new Map<string, number>(), nodesOf = new Map<string, number>();
  for (const { owners } of shown) {
    owners.forEach(([name, n]) => fleet.set(name, (fleet.get(name) ?? 0) + n));
    nodesOf.set(owners[0]?.[0] ?? "", (nodesOf.get(owners[0]?.[0] ?? "") ?? 0) + 1);
  }
  const all = sorted(Object.fromEntries(fleet)), signs = signsOf(by, all), coloured = !!measure.owners && !one;
  const title = one ? t("partOf", one) : t(measure.title);
  const text = ({ part, owners }: (typeof shown)[0]) => (
    coloured ? owners.map(([name, n]) => `${name} ${+n.toFixed(3)}`).join(", ") || "–" : percent(part)
  );
  return (
    <>
      <p class="form">
        <label>
          {t("colourBy")}{" "}
          <select value={by} onChange={(e) => go(withQuery({ by: e.currentTarget.value, of: "" }), true)}>
            {Object.entries(measures).map(([key, m]) => <option value={key}>{t(m.title)}</option>)}
          </select>
        </label>
        <label>
          {t("filter")} <input value={filter} onInput={(e) => go(withQuery({ name: e.currentTarget.value }), true)} />
        </label>
        <span class="quiet">{t("shown", shown.length, nodes.length)}</span>
      </p>
      <Figure
        id="nodes"
        title={title}
        picture={
          <>
            {measure.note && <p class="note">{t(measure.note)}</p>}
            {measure.owners && (
              <ul class="inline legend" aria-label={t("legend")}>
                {all.filter(([name]) => signs.has(name) || name === one).map(([name]) => (
                  <li>
                    <Owner sign={signs.get(name) ?? others} />{" "}
                    <A to={withQuery({ of: name === one ? "" : name })} replace current={name === one}>{name}</A>{" "}
                    <span class="quiet">{t("nodesOf", nodesOf.get(name) ?? 0)}</span>
                  </li>
                ))}
                {all.length > signs.size && <li><Owner sign={others} /> {t("otherOwners", all.length - signs.size)}</li>}
                {!all.length && <li class="quiet">{t("nothing")}</li>}
              </ul>
            )}
            {!coloured && (
              <ul class="inline legend" aria-label={t("legend")}>
                {[0, 1, 2, 3, 4, 5].map((i) => (
                  <li><i class={"cpu edged level-" + i} /> {percent(i / 6)}–{percent((i + 1) / 6)}</li>
                ))}
                <li><i class="cpu edged level-none" /> – {t("notKnown")}</li>
              </ul>
            )}
            <ul class="tiles">
              {shown.map((n) => {
                const sign = coloured && n.owners.length ? (signs.get(n.owners[0][0]) ?? others) : undefined;
                return (
                  <li>
                    <A to={nodePath(n.load.node)} class={"tile " + (sign ? "owned " + sign.kind : level(n.part))}
                      title={n.load.stranded ? t("strandedIs", n.load.stranded) : coloured ? text(n) : t("fits", n.load.largestFit, n.load.largestOnOneNUMANode)}>
                      {sign && <Owner sign={sign} />}
                      <span>{n.load.node} <Marks health={n.load.health} /></span> <strong>{coloured ? (n.owners[0]?.[0] ?? "–") : percent(n.part)}</strong>
                    </A>
                  </li>
                );
              })}
            </ul>
          </>
        }
        head={[t("node"), title, t("pods"), "CPU", "REQ", "LSE", "LSR", "LS", "BE", t("free"), "FIT", "FIT/NUMA", "GPU", t("free") + " GPU", t("health"), t("strandedCPUs")]}
        rows={() => shown.map((known) => {
          const n = known.load, gpu = gpuOf.get(n.node);
          return [
            <NodeLink node={n.node} />, text(known), n.pods, n.allocatable, n.requested, n.lse, n.lsr, n.ls, n.be, n.free,
            n.largestFit, n.largestOnOneNUMANode, gpu?.gpus ?? "–", gpu?.free ?? "–",
            n.health?.findings ? <Marks health={n.health} /> : "–", n.stranded ?? "–",
          ];
        })}
      />
    </>
  );
}

const Owner = ({ sign }: { sign: Sign }) => <i class={"cpu " + sign.kind} aria-hidden="true">{sign.letter}</i>;
