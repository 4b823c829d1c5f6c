import type { ComponentChildren } from "preact";
import type { GPULoad, List, Node } from "../view";
import { query, updates, withQuery } from "../store";
import { type Key, t } from "../text";
import { A, Bar, Command, Facts, Figure, Marks, NodeLink, sum, Topic } from "../ui";
import { Links } from "./node";

const gpusOf = (topic: unknown) => ((topic as List<GPULoad> | undefined)?.items ?? []);

// chosen is the node whose links are drawn: that of the address, else the first.
const chosen = () => query("node") || (gpusOf(updates.value.gpus?.answer)[0]?.node ?? "");

export const gpuTopics = () => ["gpus", ...(chosen() ? ["node/" + chosen()] : [])];

// The GPUs of all nodes: what still fits, what is stranded and why, who uses them, and how they are linked.
export function GPUs() {
  return (
    <>
      <h1>{t("gpus")}</h1>
      <Topic<List<GPULoad>> of="gpus">{(list) => list.items.length ? <Fleet nodes={list.items} /> : <p class="quiet">{t("noGPU")}</p>}</Topic>
      {chosen() && <Topic<Node> of={"node/" + chosen()}>{(node) => <Fabric node={node} />}</Topic>}
      <Command words={["tenon", "top", "gpu", "-o", "json"]} />
      {chosen() && <Command words={["tenon", "topology", "node/" + chosen()]} />}
    </>
  );
}

const percent = (n: number) => String(n / 100);

// byName adds numbers up by name; the largest come first.
function byName(parts: [string, number][]): [string, number][] {
  const all = new Map<string, number>();
  for (const [name, n] of parts) {
    all.set(name, (all.get(name) ?? 0) + n);
  }
  return [...all].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
}

export const sizes = ["1", "2", "4", "8"];

export const fits = (nodes: GPULoad[]) => sizes.map((size): [string, number] => [size + " GPU", sum(nodes, (n) => n.fit[size] ?? 0)]);

const why: Record<string, Key> = {
  unhealthy: "whyUnhealthy", kubelet: "whyKubelet", cordon: "whyCordon", cpu: "whyCPU", memory: "whyMemory",
  partition: "whyPartition", share: "whyShare", notReady: "whyNotReady", pressure: "whyPressure", agent: "whyAgent", pods: "whyPods",
  numa: "whyNUMA",
};

function Fleet({ nodes }: { nodes: GPULoad[] }) {
  const causes = byName(nodes.flatMap((n) => n.stranded.map((s): [string, number] => [s.cause, s.gpus])));
  const spaces = byName(nodes.flatMap((n) => (n.namespaces ?? []).map((s): [string, number] => [s.namespace, s.usedPercent])));
  const gpus = sum(nodes, (n) => n.gpus);
  return (
    <>
      <Facts
        rows={[
          ["GPU", gpus],
          [t("used"), percent(sum(nodes, (n) => n.usedPercent))],
          [t("free"), sum(nodes, (n) => n.free)],
          [t("sharedGPUs"), sum(nodes, (n) => n.inParts)],
          [t("degraded"), sum(nodes, (n) => n.degraded ?? 0)],
        ]}
      />
      <div class="cards">
        <Bars id="fit" title={t("gpuFit")} name="GPU" unit={t("pods")} rows={fits(nodes)} />
        <Bars id="stranded" title={t("stranded", sum(causes, ([, n]) => n), gpus)} name={t("cause")} unit="GPU" rows={causes}
          note={(cause) => (Object.hasOwn(why, cause) ? t(why[cause]) : undefined)} />
        <Bars id="namespaces" title={t("byNamespace")} name={t("namespace")} unit="GPU"
          rows={spaces.map(([name, n]) => [name || t("notKnown"), n / 100])} />
      </div>
      <Figure
        id="gpus"
        title={t("nodes")}
        picture={
          <ul class="gpus">
            {nodes.map((n) => (
              <li>
                <A to={withQuery({ node: n.node })} replace current={n.node === chosen()}>
                  <span>{n.node} <Marks health={n.health} /></span>
                  <Bar part={n.usedPercent / 100} whole={n.gpus} label={t("usesOf", percent(n.usedPercent), n.gpus + " GPU")} />
                  <span class="fit">
                    {sizes.map((size) => <span title={`${size} GPU: ${n.fit[size] ?? 0}`}><b>{size}</b> {n.fit[size] ?? 0}</span>)}
                  </span>
                  <span class="message">{n.stranded.map((s) => `${s.gpus} ${s.cause}`).join(", ")}</span>
                </A>
              </li>
            ))}
          </ul>
        }
        head={[t("node"), t("model"), "GPU", t("used"), t("free"), t("sharedGPUs"), ...sizes.map((s) => "FIT " + s), t("strandedGPUs"), t("byNamespace")]}
        rows={nodes.map((n) => [
          <><NodeLink node={n.node} /> <Marks health={n.health} /></>, n.model ?? "–", n.gpus, percent(n.usedPercent), n.free, n.inParts,
          ...sizes.map((size) => n.fit[size] ?? 0),
          n.stranded.map((s) => `${s.gpus} ${s.cause}`).join(", ") || "–",
          (n.namespaces ?? []).map((s) => `${s.namespace || t("notKnown")} ${percent(s.usedPercent)}`).join(", ") || "–",
        ])}
      />
    </>
  );
}

interface BarsProps {
  id: string;
  title: string;
  name: string;
  unit: string;
  rows: [string, number][];
  note?: (name: string) => string | undefined;
  children?: ComponentChildren;
}

// Bars are named numbers.
export function Bars({ id, title, name, unit, rows, note, children }: BarsProps) {
  const most = Math.max(1, ...rows.map(([, n]) => n));
  const shown = rows.slice(0, 12);
  return (
    <Figure
      id={id}
      title={title}
      picture={
        <>
          {children}
          <ul class="causes small">
            {shown.map(([label, n]) => (
              <li>
                <span class="code">{label}</span>
                <Bar part={n} whole={most} label={`${label}: ${n}`} />
                <span class="count">{n}</span>
                {note?.(label) && <span class="message wide">{note(label)}</span>}
              </li>
            ))}
            {rows.length > shown.length && <li class="quiet">{t("more", rows.length - shown.length)}</li>}
            {!rows.length && <li class="quiet">{t("nothing")}</li>}
          </ul>
        </>
      }
      head={[name, unit, ...(note ? [t("why")] : [])]}
      rows={rows.map(([label, n]) => [label, n, ...(note ? [note(label)] : [])])}
    />
  );
}

// Fabric draws the links between the GPUs of a node.
function Fabric({ node }: { node: Node }) {
  const devices = node.devices;
  const linked = devices?.list.filter((d) => devices.links.some((l) => l.ids.includes(d.id))) ?? [];
  return (
    <>
      <h2 class="part"><NodeLink node={node.node} /></h2>
      {devices && linked.length > 1 ? <Links devices={devices} linked={linked} /> : <p class="quiet">{t("noLinks")}</p>}
    </>
  );
}
