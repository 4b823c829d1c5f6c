import { useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Cgroups, CPU, DeviceOnNode, List, Node, NodeDevices, NodeUse, NUMA, Pod } from "../view";
import { updates, query, withQuery } from "../store";
import { t } from "../text";
import {
  A, bytes, cpus, Facts, Figure, Head, HolderLink, Marks, number, type Part, Parts, parts, percent, podPath, PodLink, sum, Table, Topic,
} from "../ui";

const nodeOfPath = () => parts()[1] ?? "";
const podName = (p: { namespace: string; name: string }) => `${p.namespace}/${p.name}`;
const pinned = (node: Node) => node.pods.filter((p) => p.cpuset);

// shownActual is for how many pods of a node the page asks what the kernel has.
const shownActual = 8;
const compared = () => {
  const node = updates.value["node/" + nodeOfPath()]?.answer as Node | undefined;
  return node ? pinned(node).slice(0, shownActual).map((p) => "pod/" + podName(p)) : [];
};

export const nodeTopics = () => ["node/" + nodeOfPath(), "use", ...compared()];

// One machine: sockets, NUMA nodes, cores, threads, devices and their links; and what the kernel has of it.
export function NodePage() {
  const name = nodeOfPath(), node = updates.value["node/" + name]?.answer as Node | undefined;
  const use = (updates.value.use?.answer as List<NodeUse> | undefined)?.items.find((u) => u.node === name);
  const gpus = node?.devices?.list.filter((d) => d.type === "gpu") ?? [];
  return (
    <>
      <Head title={name} mono guide="cpu" commands={[["tenon", "topology", "node/" + name]]}
        sub={node && [
          `${node.cpus} CPU`, `${node.numaNodes} NUMA`, use?.memory.allocatable && bytes(number(use.memory.allocatable)),
          gpus.length > 0 && `${gpus.length} × ${gpus[0].model ?? "GPU"}`, use && use.cpu.usedPercent >= 0 && t("liveUse", use.cpu.usedPercent + "%"),
          use && use.reportSeconds >= 0 && t("reportAge", use.reportSeconds + " s"),
        ].filter(Boolean).join(" · ")}>
        {node && (node.health?.findings ? <Marks health={node.health} /> : <span class="is-ok">● Ready</span>)}
      </Head>
      {node?.health?.closed && <p class="note">{t("closed")}</p>}
      <Topic<Node> of={"node/" + name}>{(node) => <><Machine node={node} /><Compared node={node} /></>}</Topic>
    </>
  );
}

// hueOf gives each pod with CPUs of its own a colour, and the pattern of its class.
function hues(node: Node): Map<string, string> {
  return new Map(pinned(node).map((p, i) => [podName(p), `hue-${i % 8} of-${p.qos.toLowerCase()}`]));
}

export function Machine({ node, marked = new Set() }: { node: Node; marked?: Set<number> }) {
  const hue = hues(node), root = useRef<HTMLDivElement>(null);
  // A pod under the pointer fades what others have. The cells are not drawn again.
  const light = (e: Event) => {
    const pod = (e.target as Element).closest?.<HTMLElement>("[data-pods]")?.dataset.pods?.split(" ")[0];
    root.current?.querySelectorAll<HTMLElement>("[data-pods], [data-cpu]").forEach((cell) => (
      cell.classList.toggle("faded", !!pod && !(cell.dataset.pods ?? "").split(" ").includes(pod))
    ));
  };
  return (
    <div ref={root} onMouseOver={light} onMouseLeave={light} onFocusIn={light}>
      {node.fault && <p class="problem">{node.fault}</p>}
      {node.problems.map((p) => <p class="problem">{p.pod} {p.text}</p>)}
      <Chips node={node} hue={hue} marked={marked} />
      {node.sockets.length > 0 && (
        <Figure
          id="threads"
          class="machine"
          title={t("threads")}
          picture={
            <div class="sockets">
              {node.sockets.map((s) => (
                <section class="socket" aria-label={`socket ${s.socket}`}>
                  <h3>{t("socketOf", s.socket)}</h3>
                  <div class="numas">
                    {s.numaNodes.map((n) => <NUMANode node={n} of={node} hue={hue} marked={marked} />)}
                  </div>
                </section>
              ))}
            </div>
          }
          head={["socket", "NUMA", "L3", "core", "CPU", t("state"), t("busy"), t("pod")]}
          rows={() => node.sockets.flatMap((s) => s.numaNodes.flatMap((n) => n.cores.flatMap((c) => c.cpus.map((cpu) => [
            s.socket, n.node, c.l3, c.core, cpu.cpu, cpu.state, cpu.usedPercent === undefined ? "–" : cpu.usedPercent + "%", cpu.pods?.map((p) => <PodLink pod={p} />) ?? "–",
          ]))))}
        />
      )}
      {node.devices && <Devices devices={node.devices} hue={hue} />}
    </div>
  );
}

// Chips are who has CPUs of their own, and what is left.
function Chips({ node, hue, marked }: { node: Node } & Drawn) {
  const free = sum(node.sockets, (s) => sum(s.numaNodes, (n) => n.free));
  return (
    <ul class="pills chips">
      {pinned(node).map((p) => {
        const name = podName(p), at = query("pod") === name;
        return (
          <li>
            <A to={withQuery({ pod: at ? "" : name })} replace class={"pill" + (at ? " chosen" : "")}>
              <span data-pods={name} class="chip"><i class={"swatch " + hue.get(name)} /> <span class="code">{name}</span> <span class="quiet">{p.qos} · {cpus(p.cpuset).size} CPU</span></span>
            </A>
          </li>
        );
      })}
      {marked.size > 0 && <li class="pill"><i class="swatch marked" /> {t("wouldGet")} {marked.size} CPU</li>}
      <li class="pill"><i class="swatch" /> {t("freeCPUs", free)}</li>
      <li class="pill"><span class="quiet">{t("inPools", node.sharedPods, node.bePods)}{node.sharedMemory ? " · " + bytes(number(node.sharedMemory)) : ""}</span></li>
    </ul>
  );
}

type Drawn = { hue: Map<string, string>; marked: Set<number> };

function NUMANode({ node: n, of, hue, marked }: { node: NUMA; of: Node } & Drawn) {
  const groups = [...Map.groupBy(n.cores, (c) => c.l3)], busy = new Map(n.l3Use?.map((u) => [u.l3, u.usedPercent]));
  const all = number(n.memoryAllocatable), free = number(n.memoryFree);
  const held = (n.memoryBy ?? []).map((h) => ({
    kind: "in-used", n: number(h.memory), text: t("podHolds", h.pod, bytes(number(h.memory))), label: h.pod.slice(h.pod.indexOf("/") + 1), to: podPath(h.pod),
  }));
  const others = Math.max(0, all - free - sum(held, (h) => h.n));
  const devices = of.devices?.list.filter((d) => d.numaNode === n.node) ?? [];
  return (
    <section class="numa" aria-label={`NUMA ${n.node}`}>
      <h4>
        NUMA {n.node} <span class="quiet small" title={`${t("distance")} ${n.distances.join(" ")}`}>{t("freeCPUs", n.free)}</span>
      </h4>
      <div class="caches">
        {groups.map(([l3, cores]) => (
          <div class="l3">
            <span class="quiet small">L3 {l3}{busy.has(l3) && " · " + t("busyIs", busy.get(l3)!)}</span>
            <div class="cores">
              {cores.map((c) => (
                <span class="core" title={`core ${c.core}${c.kind ? " " + c.kind : ""}`}>
                  {c.cpus.map((cpu) => <Thread cpu={cpu} hue={hue} marked={marked} />)}
                </span>
              ))}
            </div>
          </div>
        ))}
      </div>
      {n.memoryAllocatable && (
        <div class="memory">
          <span class="quiet small">{t("memoryName")}, {bytes(all)}</span>
          <Parts whole={all} parts={[
            ...held,
            { kind: "in-used", n: others, text: t("heldBytes", bytes(others)), label: bytes(others) },
            { kind: "in-free", n: free, text: t("memory", bytes(free), bytes(all)), label: `${t("freeNow")} ${bytes(free)}` },
          ]} />
        </div>
      )}
      {devices.length > 0 && <Cards devices={devices} hue={hue} />}
      <p class="quiet pools small">LS {n.sharedPool || "–"} · BE {n.beSharedPool || "–"}</p>
    </section>
  );
}

function Thread({ cpu, hue, marked }: { cpu: CPU } & Drawn) {
  const isMarked = marked.has(cpu.cpu), pod = cpu.pods?.[0];
  const kind = isMarked ? "marked" : (pod && hue.get(pod)) ?? "cpu-" + cpu.state, used = cpu.usedPercent;
  const title = [`CPU ${cpu.cpu}: ${isMarked ? t("wouldGet") : cpu.state} ${cpu.pods?.join(", ") ?? ""}`, used !== undefined && t("busyIs", used)];
  return (
    <i class={"thread " + kind} data-cpu={cpu.cpu} data-pods={cpu.pods?.join(" ")} title={title.filter(Boolean).join(" · ")}>
      {cpu.cpu}{used !== undefined && <b style={{ width: used + "%" }} />}
    </i>
  );
}

// share is the part of a device that a holder has.
function share(d: DeviceOnNode, resources: Record<string, string>): number {
  const parts = Object.entries(resources).map(([name, n]) => number(n) / (number(d.total[name]) || NaN)).filter(Number.isFinite);
  return parts.length ? Math.min(1, Math.max(...parts)) : 1;
}

// holderParts are the shares of a device by holder.
export function holderParts(d: DeviceOnNode, hue?: Map<string, string>): Part[] {
  return d.holders.map((h, i) => ({
    n: share(d, h.resources), kind: hue?.get(h.pod) ?? (share(d, h.resources) < 1 ? "in-ls share-" + (i % 3) : "in-lsr"),
    text: `${h.claim ? t("claimOf", h.pod) : h.pod} ${percent(share(d, h.resources))}`, label: h.pod.split("/").pop(), to: h.claim ? undefined : podPath(h.pod),
  }));
}

// Slot is a device that fills from below with the shares of its holders.
export function Slot({ device: d, hue, best }: { device: DeviceOnNode; hue?: Map<string, string>; best?: boolean }) {
  const parts = holderParts(d, hue), bad = !d.healthy ? t("unhealthy") : d.degraded ? t("degraded") : "";
  return (
    <div class={"slot" + (d.type === "gpu" ? "" : " nic") + (bad ? " bad" : "") + (best ? " best" : "")} data-pods={d.holders.map((h) => h.pod).join(" ") || undefined}
      title={[`${d.type} ${d.minor}`, d.model, d.busID, bad, ...parts.map((p) => p.text)].filter(Boolean).join(" · ")}>
      <div class="tank">
        {parts.map((p) => {
          const text = <span class="cut">{p.n < 1 ? percent(p.n) + " " : ""}{p.label}</span>, props = { class: p.kind, style: { height: 100 * p.n + "%" }, title: p.text };
          return p.to ? <A {...props} to={p.to}>{text}</A> : <span {...props}>{text}</span>;
        })}
      </div>
      <span class="name">{bad ? "▲ " : ""}{d.type} {d.minor}</span>
    </div>
  );
}

// Cards are the devices of a NUMA node below their PCIe switches.
function Cards({ devices, hue }: { devices: DeviceOnNode[]; hue: Map<string, string> }) {
  return (
    <div class="switches">
      {[...Map.groupBy(devices, (d) => d.pcie ?? "")].map(([pcie, list]) => (
        <div class="pcie">
          <span class="quiet small cut" title={pcie}>{pcie || "PCIe"}</span>
          <div class="slots">{list.map((d) => <Slot device={d} hue={hue} />)}</div>
        </div>
      ))}
    </div>
  );
}

function Devices({ devices, hue }: { devices: NodeDevices; hue: Map<string, string> }) {
  const linked = devices.list.filter((d) => devices.links.some((l) => l.ids.includes(d.id)));
  return (
    <div class="grid">
      {linked.length > 1 && <div class="s6"><Links devices={devices} linked={linked} /></div>}
      <section class={"figure " + (linked.length > 1 ? "s6" : "")}>
        <h2>{t("devices")}</h2>
        {devices.unknownHolders ? <p class="note">{t("unknownHolders", devices.unknownHolders)}</p> : null}
        <Table
          label={t("devices")}
          head={[t("device"), t("model"), "NUMA", "PCIe", t("used"), t("freePart"), t("pods")]}
          rows={devices.list.map((d) => [
            <span class="code nowrap">{d.type} {d.minor}</span>, d.model ?? d.id, d.numaNode, d.pcie ?? "–", d.usedPercent + "%",
            Object.entries(d.free).map(([k, v]) => `${k.replace("koordinator.sh/", "")} ${/memory$/.test(k) ? bytes(number(v)) : v}`).join(", ") || "–",
            d.holders.length ? d.holders.map((h) => (
              <div><HolderLink holder={h} /> <span class="quiet">{percent(share(d, h.resources))}</span></div>
            )) : "–",
          ])}
        />
      </section>
    </div>
  );
}

// Links draws an arc for each direct link between devices; the pointer on a device lights its own.
export function Links({ devices, linked, of = "" }: { devices: NodeDevices; linked: DeviceOnNode[]; of?: string }) {
  const root = useRef<SVGSVGElement>(null);
  const step = 72, width = step * linked.length, base = Math.ceil(0.275 * step * (linked.length - 1)) + 6;
  const at = new Map(linked.map((d, i) => [d.id, step * (i + 0.5)]));
  const most = Math.max(...devices.links.map((l) => l.lanes));
  const name = (id: string) => {
    const d = linked.find((x) => x.id === id);
    return d ? `${d.type} ${d.minor}` : id;
  };
  const light = (id?: string) => root.current?.querySelectorAll<SVGElement>("[data-ids]").forEach((arc) => (
    arc.classList.toggle("faded", !!id && !arc.dataset.ids!.split(" ").includes(id))
  ));
  const kind = devices.linkKind ?? "";
  const alike = devices.links.length === (linked.length * (linked.length - 1)) / 2 && devices.links.every((l) => l.lanes === most);
  return (
    <Figure
      id="links"
      title={[t("links"), kind, of].filter(Boolean).join(" · ")}
      sub={alike ? t("allLinked", linked.length, most) : t("linksOf", devices.links.length, linked.length)}
      picture={
        <svg class="arcs" ref={root} viewBox={`0 0 ${width} ${base + 40}`} role="img" aria-label={t("linksOf", devices.links.length, linked.length)} onMouseLeave={() => light()}>
          {devices.links.map((l) => {
            const [a, b] = [at.get(l.ids[0])!, at.get(l.ids[1])!].sort((x, y) => x - y), half = (b - a) / 2;
            return (
              <path data-ids={l.ids.join(" ")} d={`M${a} ${base} A${half} ${half * 0.55} 0 0 1 ${b} ${base}`} stroke-width={0.8 + (1.6 * l.lanes) / most}>
                <title>{`${name(l.ids[0])} – ${name(l.ids[1])}: ${l.lanes} ${kind}`}</title>
              </path>
            );
          })}
          {linked.map((d) => {
            const x = at.get(d.id)! - 26;
            return (
              <g onMouseEnter={() => light(d.id)}>
                <rect class="device" x={x} y={base} width={52} height={34} rx={6} />
                <rect class="share" x={x} y={base + 34 - 0.34 * d.usedPercent} width={52} height={0.34 * d.usedPercent} rx={d.usedPercent > 90 ? 6 : 2} />
                <text class={d.usedPercent > 45 ? "over" : ""} x={x + 26} y={base + 15}>{d.type} {d.minor}</text>
                <text class={"percent" + (d.usedPercent > 20 ? " over" : "")} x={x + 26} y={base + 28}>{d.usedPercent}%</text>
                <title>{`${name(d.id)}: ${d.usedPercent}% ${d.holders.map((h) => h.pod).join(", ")}`}</title>
              </g>
            );
          })}
        </svg>
      }
      head={[t("device"), t("device"), kind || t("links")]}
      rows={devices.links.map((l) => [name(l.ids[0]), name(l.ids[1]), l.lanes])}
    />
  );
}

type Compare = Pod & { actual?: Cgroups };

// Compared is what the scheduler decided about pods, and what the kernel has.
function Compared({ node }: { node: Node }) {
  const managers = (["cpuManager", "memoryManager", "topologyManager"] as const).map((m) => `${m} ${node.kubelet[m].policy}`).join(" · ");
  const first = query("pod"), pods = [...pinned(node)].sort((a, b) => Number(podName(b) === first) - Number(podName(a) === first));
  const rows = pods.map((p): ComponentChildren[] => {
    const name = podName(p), answer = updates.value["pod/" + name]?.answer as Compare | undefined;
    const values = answer?.actual?.groups.flatMap((g) => (g.values ?? []).map((v) => [g, v] as const)) ?? [];
    const sets = values.filter(([, v]) => v.file === "cpuset.cpus"), differs = values.filter(([, v]) => v.state === "differs" || v.state === "unreadable");
    const got = [...new Set(sets.map(([, v]) => v.got || v.effective || "–"))].join("; ");
    return [
      <PodLink pod={name} />, p.qos, <span class="code">{p.cpuset}</span>, <span class="code">{got || "–"}</span>,
      !values.length ? <span class="quiet">{t("notKnown")}</span>
      : differs.length ? <span class="is-bad">▲ {t("differsIn", [...new Set(differs.map(([, v]) => v.file))].join(", "))}</span>
      : <span class="is-ok">● {t("same")}</span>,
    ];
  });
  return (
    <div class="grid">
      <section class="figure s7">
        <h2>{t("decidedActual")} <span class="quiet small">cpuset.cpus</span></h2>
        {rows.length ? <Table label={t("decidedActual")} head={[t("pod"), t("class"), t("decided"), t("got"), t("state")]} rows={rows} /> : <p class="empty">{t("nonePinned")}</p>}
      </section>
      <section class="figure s5">
        <h2>{t("howDecided")}</h2>
        <Facts
          rows={[
            [t("machine"), [t("machineIs", node.cores, node.threadsPerCore, node.sockets.length), node.arch].filter(Boolean).join(" · ")],
            [t("mode"), `${node.mode.mode} (${node.mode.from.source})`],
            ["kubelet", `${node.kubelet.version ?? ""} · ${managers}`],
            [t("policies"), Object.entries(node.policies).filter(([k, v]) => k !== "from" && v)
              .map(([k, v]) => `${k} ${v} (${node.policies.from?.[k]?.source ?? "default"})`).join(" · ")],
          ]}
        />
      </section>
    </div>
  );
}
