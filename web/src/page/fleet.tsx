import type { GPULoad, List, Load, NodeUse } from "../view";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Signal, signal } from "@preact/signals";
import { go, language, query, theme, updates, withQuery } from "../store";
import { type Key, t } from "../text";
import { A, bytes, cores, Figure, Head, Marks, NodeLink, nodePath, number, Parts, percent, sum, Topic } from "../ui";
import { classParts, memoryParts } from "./overview";

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
  health: {
    title: "health", command: [], whole: () => 1, owners: (n) => ({ [n.health?.findings?.[0]?.text ?? "Ready"]: 1 }),
  },
  stranded: { title: "gpuStranded", command: ["gpu"], part: ({ gpu }) => (gpu ? sum(gpu.stranded, (s) => s.gpus) / gpu.gpus : NaN) },
};

const chosen = () => (Object.hasOwn(measures, query("by")) ? query("by") : "requested");

export const fleetTopics = () => ["nodes", "gpus", "use"];

// All nodes: a picture of each where they are few, a cell of a map where they are many.
export function Fleet() {
  return (
    <>
      <Head title={t("fleet")} guide="cpu" commands={[["tenon", "top", ...measures[chosen()].command]]} />
      {chosen() === "load" && <Topic of="use">{() => null}</Topic>}
      <Topic<List<Load>> of="nodes">{(list) => (
        <Topic<List<GPULoad>> of="gpus">{(gpus) => <Tiles nodes={list.items} gpus={gpus.items} />}</Topic>
      )}</Topic>
    </>
  );
}

const level = (part: number) => (Number.isNaN(part) ? "none" : String(Math.max(0, Math.min(5, Math.floor(6 * part)))));

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
  const all = nodes.map((load) => {
    const owners = measure.owners?.(load) ?? {}, gpu = gpuOf.get(load.node), use = useOf.get(load.node);
    const part = one ? (owners[one] ?? 0) / (measure.whole?.(load) || NaN) : measure.part?.({ load, gpu, use }) ?? NaN;
    return { load, part, owners: sorted(owners), gpu, use, match: matches(load, filter) };
  });
  const labels = labelsOf(nodes), group = Object.hasOwn(labels, query("group")) ? query("group") : "";
  const groups = group ? [...Map.groupBy(all, (n) => n.load.labels?.[group] ?? "")].sort(([a], [b]) => (a < b ? -1 : 1)) : [["", all] as const];
  const shown = all.filter((n) => n.match);
  const fleet = new Map<string, number>(), nodesOf = new Map<string, number>();
  for (const { owners } of all) {
    owners.forEach(([name, n]) => fleet.set(name, (fleet.get(name) ?? 0) + n));
    nodesOf.set(owners[0]?.[0] ?? "", (nodesOf.get(owners[0]?.[0] ?? "") ?? 0) + 1);
  }
  const having = sorted(Object.fromEntries(fleet)), signs = signsOf(by, having), coloured = !!measure.owners && !one;
  const title = one ? t("partOf", one) : t(measure.title);
  const text = ({ part, owners }: Cell) => (
    coloured ? owners.map(([name, n]) => `${name} ${+n.toFixed(3)}`).join(", ") || "–" : percent(part)
  );
  const signOf = (n: Cell) => (coloured && n.owners.length ? (signs.get(n.owners[0][0]) ?? others) : undefined);
  return (
    <>
      <p class="form tools">
        <label>
          {t("colourBy")}{" "}
          <select value={by} onChange={(e) => go(withQuery({ by: e.currentTarget.value, of: "" }), true)}>
            {Object.entries(measures).map(([key, m]) => <option value={key}>{t(m.title)}</option>)}
          </select>
        </label>
        <label>
          {t("filter")} <input value={filter} onInput={(e) => go(withQuery({ name: e.currentTarget.value }), true)} />
        </label>
        {Object.keys(labels).length > 0 && (
          <label>
            {t("groupBy")}{" "}
            <select value={group} onChange={(e) => go(withQuery({ group: e.currentTarget.value }), true)}>
              <option value="">–</option>
              {Object.entries(labels).map(([key, n]) => <option value={key}>{key} ({n})</option>)}
            </select>
          </label>
        )}
        <span class="quiet">{t("shown", shown.length, nodes.length)}</span>
        {!coloured && (
          <span class="keys scale" aria-label={t("legend")} role="group">
            0% {[0, 1, 2, 3, 4, 5].map((i) => <i class={"heat-" + i} />)} 100% <i class="heat-none edged" /> {t("notKnown")}
          </span>
        )}
      </p>
      <Figure
        id="nodes"
        title={title}
        sub={measure.note && t(measure.note)}
        picture={
          <>
            {measure.owners && (
              <ul class="inline legend" aria-label={t("legend")}>
                {having.filter(([name]) => signs.has(name) || name === one).map(([name]) => (
                  <li>
                    <Owner sign={signs.get(name) ?? others} />{" "}
                    <A to={withQuery({ of: name === one ? "" : name })} replace current={name === one}>{name}</A>{" "}
                    <span class="quiet">{t("nodesOf", nodesOf.get(name) ?? 0)}</span>
                  </li>
                ))}
                {having.length > signs.size && <li><Owner sign={others} /> {t("otherOwners", having.length - signs.size)}</li>}
                {!having.length && <li class="quiet">{t("nothing")}</li>}
              </ul>
            )}
            {nodes.length === 0 ? <p class="empty">{t("noNode")}</p>
            : groups.map(([value, cells]) => (
              <>
              {group && <h3 class="code">{value || "–"} <span class="quiet">{t("nodesOf", cells.length)}</span></h3>}
              {nodes.length > mostTiles ? <HeatMap cells={cells} of={nodes.length} kind={(n) => { const s = signOf(n); return s ? "cpu " + s.kind : "heat-" + level(n.part); }} letter={(n) => signOf(n)?.letter ?? ""} says={text} />
              : (
              <ul class={"tiles" + (nodes.length <= mostCards ? " machines" : "")}>
                {cells.map((n) => {
                  const sign = signOf(n), { load } = n;
                  return (
                    <li class={n.match ? "" : "faded"}>
                      <A to={nodePath(load.node)} class={"tile " + (sign ? "owned " + sign.kind : "level-" + level(n.part))}
                        title={load.stranded ? t("strandedIs", load.stranded) : coloured ? text(n) : t("fits", load.largestFit, load.largestOnOneNUMANode)}>
                        <span class="name">{sign && <Owner sign={sign} />} <span class="code cut" title={load.node}>{load.node}</span> <Marks health={load.health} /></span>
                        <strong class="cut">{coloured ? (n.owners[0]?.[0] ?? "–") : percent(n.part)}</strong>
                        {nodes.length <= mostCards && <Small node={n} />}
                      </A>
                    </li>
                  );
                })}
              </ul>
              )}
              </>
            ))}
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

// matches reports whether a node has a filter in its name or in one of its labels, written as KEY=VALUE.
const matches = (n: Load, filter: string) =>
  n.node.includes(filter) || (filter.includes("=") && Object.entries(n.labels ?? {}).some(([key, value]) => `${key}=${value}`.includes(filter)));

const mostGroups = 24;

// labelsOf are the labels that divide the nodes into a few groups, with the number of these.
function labelsOf(nodes: Load[]): Record<string, number> {
  const values = new Map<string, Set<string>>();
  for (const { labels = {} } of nodes) {
    for (const [key, value] of Object.entries(labels)) {
      values.set(key, (values.get(key) ?? new Set()).add(value));
    }
  }
  const few = [...values].filter(([, all]) => all.size > 1 && all.size <= mostGroups && all.size < nodes.length);
  return Object.fromEntries(few.map(([key, all]) => [key, all.size] as const).sort(([a], [b]) => (a < b ? -1 : 1)));
}

// Up to mostCards nodes are drawn as small machines, up to mostTiles as tiles, more as cells of a map.
const mostCards = 24;
const mostTiles = 100;

interface Cell {
  load: Load;
  part: number;
  owners: [string, number][];
  gpu?: GPULoad;
  use?: NodeUse;
  match: boolean;
}

// Small is a machine in a few lines: CPUs by class, memory, GPUs.
function Small({ node: { load: n, gpu, use } }: { node: Cell }) {
  const memory = number(use?.memory.allocatable);
  return (
    <span class="small machine-lines">
      <span class="line"><span>CPU</span><Parts whole={number(n.allocatable)} parts={classParts([n])} /><span>{cores(number(n.requested))}/{cores(number(n.allocatable))}</span></span>
      {memory > 0 && (
        <span class="line"><span>{t("memoryName")}</span>
          <Parts whole={memory} parts={memoryParts([use!])} /><span>{bytes(memory)}</span></span>
      )}
      {gpu && (
        <span class="line"><span>GPU</span>
          <span class="dots gpudots">{Array.from({ length: gpu.gpus }, (_, i) => (
            <i class={i < gpu.gpus - gpu.free - gpu.inParts ? "is-reserved" : i < gpu.gpus - gpu.free ? "half" : ""} />
          ))}</span><span>{t("freeOf", gpu.free, gpu.gpus)}</span></span>
      )}
      <span class="quiet">{n.health?.closed ? t("closed") : t("fits", n.largestFit, n.largestOnOneNUMANode)}</span>
    </span>
  );
}

const gap = 2;

interface MapProps {
  cells: Cell[];
  of: number; // nodes in all maps
  kind: (n: Cell) => string;
  letter: (n: Cell) => string;
  says: (n: Cell) => string;
}

// HeatMap draws a cell for each node on a canvas. Only cells that differ from what is drawn are drawn again.
function HeatMap({ cells, of: all, kind, letter, says }: MapProps) {
  const hovered = useMemo(() => signal(-1), []);
  const canvas = useRef<HTMLCanvasElement>(null), probe = useRef<HTMLElement>(null);
  const drawn = useRef<{ keys: string[]; size: number; columns: number; colours: Map<string, string>; of: string }>({ keys: [], size: 0, columns: 1, colours: new Map(), of: "" });
  const draw = () => {
    const c = canvas.current!, d = drawn.current, width = c.parentElement!.clientWidth, scale = devicePixelRatio || 1;
    const size = Math.max(9, Math.min(46, Math.floor(Math.sqrt((width * Math.max(320, innerHeight - 330)) / all))));
    const columns = Math.max(1, Math.floor(width / size)), height = Math.ceil(cells.length / columns) * size;
    const of = [width, size, cells.length, scale, getComputedStyle(document.documentElement).colorScheme, matchMedia("(prefers-color-scheme: dark)").matches].join();
    const pen = c.getContext("2d")!;
    if (d.of !== of) {
      [c.width, c.height] = [width * scale, height * scale];
      c.style.width = width + "px";
      c.style.height = height + "px";
      pen.scale(scale, scale);
      Object.assign(d, { keys: [], size, columns, colours: new Map(), of });
    }
    const colour = (kind: string) => {
      if (!d.colours.has(kind)) {
        probe.current!.className = kind;
        d.colours.set(kind, getComputedStyle(probe.current!)[kind.startsWith("is-") ? "color" : "backgroundColor"]);
      }
      return d.colours.get(kind)!;
    };
    cells.forEach((n, i) => {
      const cause = n.load.health?.findings?.[0]?.cause, lit = i === hovered.peek();
      const key = [kind(n), letter(n), cause, n.match, lit].join();
      if (d.keys[i] === key) {
        return;
      }
      d.keys[i] = key;
      const x = (i % columns) * size, y = Math.floor(i / columns) * size, side = size - gap;
      pen.clearRect(x, y, size, size);
      pen.globalAlpha = n.match ? 1 : 0.15;
      pen.fillStyle = colour(kind(n));
      pen.beginPath();
      pen.roundRect(x, y, side, side, Math.min(3, side / 4));
      pen.fill();
      const sign = cause ? (({ notReady: "▲", cordon: "■" })[cause] ?? "◐") : letter(n);
      if (sign && side >= 9) {
        pen.fillStyle = cause && !letter(n) ? colour(cause === "cordon" || cause === "taint" ? "is-warn" : "is-bad") : colour("sign");
        pen.font = `700 ${Math.min(15, side - 1)}px sans-serif`;
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.fillText(sign, x + side / 2, y + side / 2 + 0.5);
      }
      if (lit) {
        pen.strokeStyle = colour("lit");
        pen.lineWidth = 2;
        pen.stroke();
      }
      pen.globalAlpha = 1;
    });
  };
  useEffect(draw);
  useEffect(() => hovered.subscribe(() => draw()), [cells]);
  useEffect(() => {
    const seen = new ResizeObserver(() => draw());
    seen.observe(canvas.current!.parentElement!);
    return () => seen.disconnect();
  }, [cells]);
  const at = (e: MouseEvent) => {
    const { size, columns } = drawn.current, i = Math.floor(e.offsetY / size) * columns + Math.floor(e.offsetX / size);
    return i < cells.length ? i : -1;
  };
  const press = (e: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: drawn.current.columns, ArrowUp: -drawn.current.columns }[e.key];
    if (step) {
      hovered.value = Math.max(0, Math.min(cells.length - 1, hovered.peek() + step));
      e.preventDefault();
    } else if (e.key === "Enter" && cells[hovered.peek()]) {
      go(nodePath(cells[hovered.peek()].load.node));
    }
  };
  theme.value;
  language.value;
  return (
    <div class="map">
      <i ref={probe} style={{ display: "none" }} />
      <canvas ref={canvas} tabIndex={0} role="img" aria-label={t("mapOf", cells.length)} onMouseMove={(e) => (hovered.value = at(e))}
        onMouseLeave={() => (hovered.value = -1)} onClick={(e) => { const n = cells[at(e)]; n && go(nodePath(n.load.node)); }} onKeyDown={press} />
      <Card cells={cells} hovered={hovered} says={says} size={() => drawn.current} />
    </div>
  );
}

// Card is about the cell under the pointer.
function Card({ cells, hovered, says, size }: { cells: Cell[]; hovered: Signal<number>; says: (n: Cell) => string; size: () => { size: number; columns: number } }) {
  const i = hovered.value, n = cells[i];
  if (!n) {
    return null;
  }
  const { size: side, columns } = size(), x = (i % columns) * side, y = Math.floor(i / columns) * side + side + 4;
  return (
    <div class="mapcard" style={{ top: y + "px", ...(x > (columns * side) / 2 ? { right: (columns - 1 - (i % columns)) * side + "px" } : { left: x + "px" }) }}>
      <span class="name"><b class="code">{n.load.node}</b> <Marks health={n.load.health} /></span> <span>{says(n)}</span>
      <Small node={n} />
    </div>
  );
}

const Owner = ({ sign }: { sign: Sign }) => <i class={"cpu " + sign.kind} aria-hidden="true">{sign.letter}</i>;
