import type { CPU, DeviceOnNode, Node, NUMA } from "../view";
import { t } from "../text";
import { Bar, Command, Facts, Figure, HolderLink, Marks, number, parts, PodLink, Table, Topic } from "../ui";

const nodeOfPath = () => parts()[1] ?? "";

export const nodeTopics = () => ["node/" + nodeOfPath()];

// One machine: sockets, NUMA nodes, cores, threads, devices and their links.
export function NodePage() {
  const name = nodeOfPath();
  return (
    <>
      <h1>{name}</h1>
      <Topic<Node> of={"node/" + name}>{(node) => <Machine node={node} />}</Topic>
      <Command words={["tenon", "topology", "node/" + name]} />
    </>
  );
}

// letters are the signs of pods on threads, in the order of their names, as on the command line.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function Machine({ node, marked = new Set() }: { node: Node; marked?: Set<number> }) {
  const signs = new Map(
    node.pods.filter((p) => p.cpuset).map((p, i) => [`${p.namespace}/${p.name}`, letters[i % letters.length]]),
  );
  const managers = (["cpuManager", "memoryManager", "topologyManager"] as const)
    .map((m) => `${m} ${node.kubelet[m].policy}`).join(" · ");
  return (
    <>
      {node.health?.findings && <p><Marks health={node.health} /> {node.health.closed && t("closed")}</p>}
      {node.fault && <p class="problem">{node.fault}</p>}
      {node.problems.map((p) => <p class="problem">{p.pod} {p.text}</p>)}
      <Facts
        rows={[
          [t("machine"), `${node.cpus} CPU · ${node.cores} cores · ${node.numaNodes} NUMA · ${node.sockets.length} sockets · ${node.arch ?? ""}`],
          [t("mode"), `${node.mode.mode} (${node.mode.from.source})`],
          ["kubelet", `${node.kubelet.version ?? ""} · ${managers}`],
          [t("policies"), Object.entries(node.policies).filter(([k, v]) => k !== "from" && v)
            .map(([k, v]) => `${k} ${v} (${node.policies.from?.[k]?.source ?? "default"})`).join(" · ")],
          [t("pools"), t("inPools", node.sharedPods, node.bePods)],
        ]}
      />
      {node.sockets.length > 0 && (
        <Figure
          id="threads"
          title={t("threads")}
          picture={
            <>
              {node.sockets.map((s) => (
                <section class="socket" aria-label={`socket ${s.socket}`}>
                  <h3>socket {s.socket}</h3>
                  <div class="numas">
                    {s.numaNodes.map((n) => <NUMANode node={n} of={node} signs={signs} marked={marked} />)}
                  </div>
                </section>
              ))}
              <Legend node={node} signs={signs} marked={marked} />
            </>
          }
          head={["socket", "NUMA", "L3", "core", "CPU", t("state"), t("pod")]}
          rows={node.sockets.flatMap((s) => s.numaNodes.flatMap((n) => n.cores.flatMap((c) => c.cpus.map((cpu) => [
            s.socket, n.node, c.l3, c.core, cpu.cpu, cpu.state, cpu.pods?.map((p) => <PodLink pod={p} />) ?? "–",
          ]))))}
        />
      )}
      {node.devices && <Devices devices={node.devices} />}
    </>
  );
}

type Drawn = { signs: Map<string, string>; marked: Set<number> };

function NUMANode({ node: n, of, signs, marked }: { node: NUMA; of: Node } & Drawn) {
  const groups = Map.groupBy(n.cores, (c) => c.l3);
  const used = number(n.memoryAllocatable) - number(n.memoryFree);
  const devices = of.devices?.list.filter((d) => d.numaNode === n.node) ?? [];
  return (
    <section class="numa" aria-label={`NUMA ${n.node}`}>
      <h4>
        NUMA {n.node} <span class="quiet">{t("freeCPUs", n.free)} · {t("distance")} {n.distances.join(" ")}</span>
      </h4>
      {n.memoryAllocatable && (
        <p class="memory">
          <Bar part={used} whole={number(n.memoryAllocatable)} label={t("memory", n.memoryFree ?? "?", n.memoryAllocatable)} />
          <span class="quiet">{t("memory", n.memoryFree ?? "?", n.memoryAllocatable)}</span>
        </p>
      )}
      <div class="caches">
        {[...groups.entries()].map(([l3, cores]) => (
          <div class="l3" title={`L3 ${l3}`}>
            {cores.map((c) => (
              <span class="core" title={`core ${c.core}${c.kind ? " " + c.kind : ""}`}>
                {c.cpus.map((cpu) => <Thread cpu={cpu} signs={signs} marked={marked} />)}
              </span>
            ))}
          </div>
        ))}
      </div>
      <p class="quiet pools">LS {n.sharedPool || "–"} · BE {n.beSharedPool || "–"}</p>
      {devices.length > 0 && <ul class="devices">{devices.map((d) => <DeviceRow device={d} />)}</ul>}
    </section>
  );
}

function Thread({ cpu, signs, marked }: { cpu: CPU } & Drawn) {
  const kind = marked.has(cpu.cpu) ? "marked" : cpu.state;
  const sign = marked.has(cpu.cpu) ? "+" : cpu.pods?.length ? (signs.get(cpu.pods[0]) ?? "?") : "";
  return (
    <i class={"cpu cpu-" + kind} title={`CPU ${cpu.cpu}: ${cpu.state} ${cpu.pods?.join(", ") ?? ""}`}>{sign}</i>
  );
}

function Legend({ node, signs, marked }: { node: Node } & Drawn) {
  const states = new Set(node.sockets.flatMap((s) => s.numaNodes.flatMap((n) => n.cores.flatMap((c) => c.cpus.map((x) => x.state)))));
  return (
    <>
      <ul class="inline legend">
        {[...states].sort().map((state) => <li><i class={"cpu cpu-" + state} /> {state}</li>)}
        {marked.size > 0 && <li><i class="cpu cpu-marked">+</i> {t("wouldGet")}</li>}
      </ul>
      <ul class="inline legend">
        {node.pods.filter((p) => p.cpuset).map((p) => (
          <li>
            <i class={"cpu cpu-" + p.qos.toLowerCase()}>{signs.get(`${p.namespace}/${p.name}`)}</i>{" "}
            <PodLink pod={`${p.namespace}/${p.name}`} /> <span class="quiet">{p.qos} {p.cpuset} {p.cpuExclusivePolicy}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function DeviceRow({ device: d }: { device: DeviceOnNode }) {
  const health = d.healthy ? (d.degraded ? "degraded" : "") : "unhealthy";
  return (
    <li>
      <span class="code">{d.type} {d.minor}</span>
      <Bar part={d.usedPercent} whole={100} label={`${d.type} ${d.minor}: ${d.usedPercent}%`} />
      <span>
        {d.holders.length ? d.holders.map((h, i) => <>{i > 0 && ", "}<HolderLink holder={h} /></>) : <span class="quiet">{t("free")}</span>}
        {health && <strong class="problem"> {health}</strong>}
      </span>
    </li>
  );
}

type NodeDevices = NonNullable<Node["devices"]>;

function Devices({ devices }: { devices: NodeDevices }) {
  const linked = devices.list.filter((d) => devices.links.some((l) => l.ids.includes(d.id)));
  return (
    <>
      {devices.unknownHolders ? <p class="problem">{t("unknownHolders", devices.unknownHolders)}</p> : null}
      {linked.length > 1 && <Links devices={devices} linked={linked} />}
      <section class="figure">
        <h2>{t("devices")} <span class="quiet">{devices.mode}</span></h2>
        <Table
          label={t("devices")}
          head={[t("device"), t("model"), "NUMA", "PCIe", t("used"), t("freePart"), t("pods")]}
          rows={devices.list.map((d) => [
            <span class="code">{d.type} {d.minor}</span>, d.model ?? d.id, d.numaNode, d.pcie ?? "–", d.usedPercent + "%",
            Object.entries(d.free).map(([k, v]) => `${k.replace("koordinator.sh/", "")} ${v}`).join(", ") || "–",
            d.holders.length ? d.holders.map((h) => (
              <div><HolderLink holder={h} /> <span class="quiet">{Object.values(h.resources).join(" ")}</span></div>
            )) : "–",
          ])}
        />
      </section>
    </>
  );
}

// Links draws devices on a ring with a line for each direct link.
export function Links({ devices, linked }: { devices: NodeDevices; linked: DeviceOnNode[] }) {
  const size = 320, radius = 120;
  const at = new Map(linked.map((d, i) => {
    const angle = (2 * Math.PI * i) / linked.length - Math.PI / 2;
    return [d.id, [size / 2 + radius * Math.cos(angle), size / 2 + radius * Math.sin(angle)]];
  }));
  const most = Math.max(...devices.links.map((l) => l.lanes));
  const name = (id: string) => {
    const d = linked.find((x) => x.id === id);
    return d ? `${d.type} ${d.minor}` : id;
  };
  const kind = devices.linkKind ?? "";
  return (
    <Figure
      id="links"
      title={`${t("links")} ${kind}`}
      picture={
        <svg class="links" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={t("linksOf", devices.links.length, linked.length)}>
          {devices.links.map((l) => {
            const [a, b] = [at.get(l.ids[0])!, at.get(l.ids[1])!];
            return (
              <line x1={a[0]} y1={a[1]} x2={b[0]} y2={b[1]} stroke-width={0.5 + (2 * l.lanes) / most}>
                <title>{`${name(l.ids[0])} – ${name(l.ids[1])}: ${l.lanes} ${kind}`}</title>
              </line>
            );
          })}
          {linked.map((d) => {
            const [x, y] = at.get(d.id)!;
            const around = 2 * Math.PI * 22;
            return (
              <g>
                <circle class="device" cx={x} cy={y} r={22} />
                <circle class="share" cx={x} cy={y} r={22} stroke-dasharray={`${(around * d.usedPercent) / 100} ${around}`}
                  transform={`rotate(-90 ${x} ${y})`} />
                <text x={x} y={y - 1}>{d.minor}</text>
                <text class="percent" x={x} y={y + 11}>{d.usedPercent}%</text>
                <title>{`${name(d.id)}: ${d.usedPercent}% ${d.holders.map((h) => h.pod).join(", ")}`}</title>
              </g>
            );
          })}
        </svg>
      }
      head={[t("device"), t("device"), kind]}
      rows={devices.links.map((l) => [name(l.ids[0]), name(l.ids[1]), l.lanes])}
    />
  );
}
