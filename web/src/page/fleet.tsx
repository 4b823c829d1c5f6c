import type { GPULoad, List, Load } from "../view";
import { go, query, withQuery } from "../store";
import { type Key, t } from "../text";
import { A, Command, Figure, NodeLink, nodePath, number, Topic } from "../ui";

export const fleetTopics = () => ["nodes", "gpus"];

// measures are what the colour of a tile says: a part of 1.
const measures: Record<string, { title: Key; of: (n: Load, gpu?: GPULoad) => number }> = {
  requested: { title: "requested", of: (n) => number(n.requested) / number(n.allocatable) },
  exclusive: { title: "exclusive", of: (n) => (n.lse + n.lsr + n.kubelet) / number(n.allocatable) },
  gpu: { title: "gpuUsed", of: (_, gpu) => (gpu ? gpu.usedPercent / 100 / gpu.gpus : NaN) },
};

// A tile for each node.
export function Fleet() {
  return (
    <>
      <h1>{t("fleet")}</h1>
      <Topic<List<Load>> of="nodes">{(list) => (
        <Topic<List<GPULoad>> of="gpus">{(gpus) => <Tiles nodes={list.items} gpus={gpus.items} />}</Topic>
      )}</Topic>
      <Command words={["tenon", "top"]} />
    </>
  );
}

function Tiles({ nodes, gpus }: { nodes: Load[]; gpus: GPULoad[] }) {
  const chosen = measures[query("by")] ? query("by") : "requested";
  const filter = query("name");
  const gpuOf = new Map(gpus.map((g) => [g.node, g]));
  const shown = nodes.filter((n) => n.node.includes(filter));
  const value = (n: Load) => measures[chosen].of(n, gpuOf.get(n.node));
  const percent = (n: Load) => (Number.isNaN(value(n)) ? "–" : Math.round(100 * value(n)) + "%");
  return (
    <>
      <p class="form">
        <label>
          {t("colourBy")}{" "}
          <select value={chosen} onChange={(e) => go(withQuery({ by: e.currentTarget.value }), true)}>
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
        title={t(measures[chosen].title)}
        picture={
          <ul class="tiles">
            {shown.map((n) => (
              <li>
                <A to={nodePath(n.node)} class={"tile level-" + (Number.isNaN(value(n)) ? "none" : Math.min(5, Math.floor(6 * value(n))))}
                  title={t("fits", n.largestFit, n.largestOnOneNUMANode)}>
                  <span>{n.node}</span> <strong>{percent(n)}</strong>
                </A>
              </li>
            ))}
          </ul>
        }
        head={[t("node"), t(measures[chosen].title), t("pods"), "CPU", "REQ", "LSE", "LSR", "LS", "BE", t("free"), "FIT", "FIT/NUMA", "GPU", t("free") + " GPU"]}
        rows={shown.map((n) => {
          const gpu = gpuOf.get(n.node);
          return [
            <NodeLink node={n.node} />, percent(n), n.pods, n.allocatable, n.requested, n.lse, n.lsr, n.ls, n.be, n.free,
            n.largestFit, n.largestOnOneNUMANode, gpu?.gpus ?? "–", gpu?.free ?? "–",
          ];
        })}
      />
    </>
  );
}
