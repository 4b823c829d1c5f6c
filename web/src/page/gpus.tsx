import type { ComponentChildren } from "preact";
import type { GPULoad, List, Node } from "../view";
import { query, updates, withQuery } from "../store";
import { type Key, t } from "../text";
import { A, Bar, Figure, Head, Marks, NodeLink, sum, Topic } from "../ui";
import { Links, Slot } from "./node";

const gpusOf = (topic: unknown) => ((topic as List<GPULoad> | undefined)?.items ?? []);

// chosen is the node whose links are drawn: that of the address, else the first.
const chosen = () => query("node") || (gpusOf(updates.value.gpus?.answer)[0]?.node ?? "");

// A node with GPUs is drawn with their slots; many of them are drawn with their numbers alone.
const mostDrawn = 16;
const drawnNodes = () => {
  const all = gpusOf(updates.value.gpus?.answer).map((g) => g.node);
  return all.length <= mostDrawn ? all : all.filter((n) => n === chosen());
};

export const gpuTopics = () => ["gpus", ...new Set([...drawnNodes(), ...(chosen() ? [chosen()] : [])].map((n) => "node/" + n))];

// The GPUs of all nodes: what still fits, what is stranded and why, who uses them, and how they are linked.
export function GPUs() {
  const all = gpusOf(updates.value.gpus?.answer), n = (of: (g: GPULoad) => number) => sum(all, of);
  return (
    <>
      <Head title={t("gpus")} guide="devices" commands={[["tenon", "top", "gpu", "-o", "json"], ...(chosen() ? [["tenon", "topology", "node/" + chosen()]] : [])]}
        sub={all.length > 0 && t("gpuSums", n((g) => g.gpus), all.length, n((g) => g.free), n((g) => g.inParts), n((g) => g.gpus - g.free - g.inParts))} />
      <Topic<List<GPULoad>> of="gpus">{(list) => list.items.length ? <Fleet nodes={list.items} /> : <p class="empty">{t("noGPU")}</p>}</Topic>
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
  const models = [...Map.groupBy(nodes, (n) => n.model || "GPU")].sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <>
      <div class="grid">
        {fits(nodes).map(([size, n]) => (
          <div class="figure number s3">
            <span class="label">{t("podsThatFit", size)}</span> <b>{n}</b>
            <span class="foot">{t("onNodes", nodes.filter((x) => (x.fit[size.split(" ")[0]] ?? 0) > 0).length)}</span>
          </div>
        ))}
      </div>
      <Figure
        id="gpus"
        title={t("gpuFit")}
        sub={t("slotsAre")}
        picture={models.map(([model, list]) => (
          <section class="model">
            <h3>{model} <span class="quiet">{t("nodesOf", list.length)}</span></h3>
            {list.slice(0, shownRows).map((n) => <GPUNode node={n} />)}
            {list.length > shownRows && <p class="quiet">{t("more", list.length - shownRows)}</p>}
          </section>
        ))}
        head={[t("node"), t("model"), "GPU", t("used"), t("free"), t("sharedGPUs"), ...sizes.map((s) => "FIT " + s), t("strandedGPUs"), t("byNamespace")]}
        rows={() => nodes.map((n) => [
          <><NodeLink node={n.node} /> <Marks health={n.health} /></>, n.model ?? "–", n.gpus, percent(n.usedPercent), n.free, n.inParts,
          ...sizes.map((size) => n.fit[size] ?? 0),
          n.stranded.map((s) => `${s.gpus} ${s.cause}`).join(", ") || "–",
          (n.namespaces ?? []).map((s) => `${s.namespace || t("notKnown")} ${percent(s.usedPercent)}`).join(", ") || "–",
        ])}
      />
      <div class="grid">
        <div class="s6"><Topic<Node> of={"node/" + chosen()}>{(node) => <Fabric node={node} />}</Topic></div>
        <div class="s6 stack">
          <Bars id="stranded" title={t("stranded", sum(causes, ([, n]) => n), gpus)} name={t("cause")} unit="GPU" rows={causes}
            note={(cause) => (Object.hasOwn(why, cause) ? t(why[cause]) : undefined)} />
          <Bars id="namespaces" title={t("byNamespace")} name={t("namespace")} unit="GPU"
            rows={spaces.map(([name, n]) => [name || t("notKnown"), n / 100])} />
        </div>
      </div>
    </>
  );
}

const shownRows = 60;

// GPUNode is a row of slots, with what still fits and what does not.
function GPUNode({ node: n }: { node: GPULoad }) {
  const devices = (updates.value["node/" + n.node]?.answer as Node | undefined)?.devices?.list.filter((d) => d.type === "gpu");
  const most = sizes.filter((s) => (n.fit[s] ?? 0) > 0).pop();
  const whole = n.gpus - n.free - n.inParts;
  return (
    <div class="gpunode" data-row tabIndex={-1}>
      <span class="who">
        <A to={withQuery({ node: n.node })} replace current={n.node === chosen()} title={n.node}>{n.node}</A> <Marks health={n.health} />
      </span>
      {devices
        ? <div class="slots">{devices.map((d) => <Slot device={d} />)}</div>
        : <span class="dots gpudots" role="img" aria-label={t("freeOf", n.free, n.gpus)}>{Array.from({ length: n.gpus }, (_, i) => (
          <i class={i < whole ? "is-reserved" : i < whole + n.inParts ? "half" : ""} />
        ))}</span>}
      <span class="verdict">
        <b>{n.health?.closed ? t("closedNode") : most ? t("podOfFits", most) : t("nothingFits")}</b>
        <span class="quiet small">{sizes.map((s) => `${n.fit[s] ?? 0} × ${s}`).join(" · ")}</span>
        {n.stranded.map((s) => (
          <span class="is-warn small" title={Object.hasOwn(why, s.cause) ? t(why[s.cause]) : undefined}>▲ {t("strandedBy", s.gpus, s.cause)}</span>
        ))}
      </span>
    </div>
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
  return devices && linked.length > 1 ? <Links devices={devices} linked={linked} of={node.node} /> : <p class="figure empty"><NodeLink node={node.node} />: {t("noLinks")}</p>;
}
