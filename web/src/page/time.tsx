// What the scheduler decided, over time: lanes of events, a slider, the nodes at that moment, and why.
import type { Decision, Evicted, Gang, List, Load } from "../view";
import { go, now, query, updates, withQuery } from "../store";
import { isKey, t } from "../text";
import { A, clock, duration, Figure, Head, nodePath, NodeLink, PodLink, sum, Topic } from "../ui";

export const timeTopics = () => ["decisions", "evicted", "gangs", "nodes"];

interface Happened {
  at: number;
  lane: "bound" | "gang" | "preempted" | "moved";
  pod: string;
  node?: string;
  says: string;
}

const lanes = ["bound", "gang", "preempted", "moved"] as const;
const laneText = { bound: "laneBound", gang: "laneGang", preempted: "lanePreempted", moved: "laneMoved" } as const;
const items = <T,>(topic: string) => (updates.value[topic]?.answer as List<T> | undefined)?.items ?? [];

// events are what is known of the past, oldest first. A member of a gang that was bound stands in the lane of gangs.
function events(): Happened[] {
  const members = new Set(items<Gang>("gangs").flatMap((g) => g.children));
  const by = (e: Evicted) => {
    const key = "by_" + e.by;
    return [isKey(key) ? t(key) : e.by, e.why].filter(Boolean).join(": ");
  };
  return [
    ...items<Decision>("decisions").map((d): Happened => ({
      at: Date.parse(d.time), lane: members.has(d.pod) ? "gang" : "bound", pod: d.pod, node: d.node, says: t("feasible", d.feasible, d.of),
    })),
    ...items<Evicted>("evicted").map((e): Happened => ({ at: Date.parse(e.time), lane: e.by === "preemption" ? "preempted" : "moved", pod: e.pod, says: by(e) })),
  ].sort((a, b) => a.at - b.at);
}

const bins = 120;

export function Time() {
  const all = events();
  const end = Math.max(now.value, ...all.slice(-1).map((e) => e.at)), begin = Math.min(all[0]?.at ?? end, end - 60_000);
  const asked = Date.parse(query("at")), live = Number.isNaN(asked), at = live ? end : Math.max(begin, Math.min(end, asked));
  const to = (time: number) => go(withQuery({ at: time >= end ? "" : new Date(time).toISOString() }), true);
  const before = all.filter((e) => e.at <= at);
  // The slider steps over events.
  const step = (n: number) => {
    const next = n > 0 ? all.find((e) => e.at > at) : before.filter((e) => e.at < at).pop();
    to(next ? next.at : n > 0 ? end : begin);
  };
  return (
    <>
      <Head title={t("time")} guide="replay" commands={[["tenon", "evictions", "--past"], ["tenon", "replay", "--help"]]}
        sub={<span class={live ? "is-ok" : "is-warn"}>{live ? "● " + t("atNow") : "◐ " + t("replayAt", clock(new Date(at)), duration((end - at) / 1000))}</span>} />
      <Topic<List<Decision>> of="decisions">{() => all.length === 0 ? <p class="figure empty">{t("noDecision")}</p> : (
        <>
          <section class="figure">
            <div class="lanes" onClick={(e) => {
              const box = (e.currentTarget as HTMLElement).querySelector(".strip")!.getBoundingClientRect();
              e.clientX >= box.left && to(begin + ((e.clientX - box.left) / box.width) * (end - begin));
            }}>
              {lanes.map((lane) => <Lane name={lane} all={all.filter((e) => e.lane === lane)} begin={begin} end={end} at={at} />)}
            </div>
            <p class="slider">
              <span>
                <button type="button" onClick={() => step(-1)} aria-label={t("stepBack")} title={t("stepBack")}>◂</button>{" "}
                <button type="button" onClick={() => step(1)} aria-label={t("stepOn")} title={t("stepOn")}>▸</button>{" "}
                <button type="button" disabled={live} onClick={() => to(end)}>{t("atNow")}</button>
              </span>
              <input type="range" aria-label={t("moment")} min={begin} max={end} step={1000} value={at} aria-valuetext={clock(new Date(at))} onInput={(e) => to(Number(e.currentTarget.value))} />
            </p>
            <span class="axis quiet small">{[0, 0.25, 0.5, 0.75, 1].map((p) => <span>{clock(new Date(begin + p * (end - begin)))}</span>)}</span>
          </section>
          <div class="grid">
            <div class="s7"><Then all={all} at={at} /></div>
            <div class="s5"><Earlier before={before} at={at} /></div>
          </div>
          <p class="note">{t("timeIs")}</p>
        </>
      )}</Topic>
    </>
  );
}

// Lane is how many events there were, over time; what is after the chosen moment is pale.
function Lane({ name, all, begin, end, at }: { name: Happened["lane"]; all: Happened[]; begin: number; end: number; at: number }) {
  const counts = Array<number>(bins).fill(0);
  all.forEach((e) => counts[Math.min(bins - 1, Math.floor((bins * (e.at - begin)) / (end - begin)))]++);
  const most = Math.max(1, ...counts), place = (100 * (at - begin)) / (end - begin);
  const passed = all.filter((e) => e.at <= at).length;
  return (
    <div class={"lanerow lane-" + name}>
      <span>{t(laneText[name])} <b>{passed}</b></span>
      <svg class="strip" viewBox={`0 0 ${bins} 24`} preserveAspectRatio="none" role="img" aria-label={`${t(laneText[name])}: ${passed} / ${all.length}`}>
        {counts.map((n, i) => n > 0 && <rect x={i + 0.1} width={0.8} y={24 - 4 - (20 * n) / most} height={4 + (20 * n) / most} class={(100 * i) / bins > place ? "later" : ""} />)}
        <line x1={(bins * place) / 100} x2={(bins * place) / 100} y1={0} y2={24} />
      </svg>
    </div>
  );
}

const shownNodes = 400;

// Then is what the known decisions had put on each node by that moment. Nodes that the last events touched are lit.
function Then({ all, at }: { all: Happened[]; at: number }) {
  const nodes = items<Load>("nodes").map((n) => n.node);
  const lastOf = new Map<string, string>(), counts = new Map<string, number>(), later = new Map<string, number>();
  for (const e of all) {
    const node = e.node ?? lastOf.get(e.pod);
    if (!node) {
      continue;
    }
    const to = e.at <= at ? counts : later;
    to.set(node, (to.get(node) ?? 0) + (e.node ? 1 : -1));
    e.node ? lastOf.set(e.pod, e.node) : lastOf.delete(e.pod);
  }
  const lit = new Set(all.filter((e) => e.at <= at && e.node).slice(-3).map((e) => e.node));
  const names = [...new Set([...nodes, ...counts.keys()])], most = Math.max(1, ...[...counts.values()], ...[...counts].map(([n, c]) => c + (later.get(n) ?? 0)));
  const known = names.filter((n) => counts.get(n) || later.get(n)), shown = (names.length > shownNodes ? known : names).slice(0, shownNodes);
  const level = (n: string) => Math.min(5, Math.ceil((5 * Math.max(0, counts.get(n) ?? 0)) / most));
  return (
    <Figure
      id="then"
      title={t("fleetAt", clock(new Date(at)))}
      sub={t("boundByThen", sum([...counts.values()], (n) => n))}
      picture={
        <ul class={"moments" + (shown.length > 24 ? " many" : "")}>
          {shown.map((n) => (
            <li>
              <A to={nodePath(n)} class={"moment heat-" + level(n) + (lit.has(n) ? " lit-now" : "")} title={`${n}: ${counts.get(n) ?? 0} (${t("laterMore", later.get(n) ?? 0)})`} label={`${n}: ${counts.get(n) ?? 0}`}>
                {shown.length <= 24 && <><span class="code cut">{n}</span> <b>{counts.get(n) ?? 0}</b>{later.get(n) ? <span class="small">{(later.get(n)! > 0 ? "+" : "") + later.get(n)}</span> : null}</>}
              </A>
            </li>
          ))}
        </ul>
      }
      head={[t("node"), t("pods"), t("afterwards")]}
      rows={() => names.filter((n) => counts.get(n) || later.get(n)).map((n) => [<NodeLink node={n} />, counts.get(n) ?? 0, later.get(n) ?? 0])}
    />
  );
}

const shownEvents = 12;

// Earlier are the events before the moment, latest first, with the way to why.
function Earlier({ before, at }: { before: Happened[]; at: number }) {
  const last = before.slice(-shownEvents).reverse();
  return (
    <Figure
      id="earlier"
      title={t("decisionsBefore", clock(new Date(at)))}
      picture={
        <div class="rows">
          {!last.length && <p class="empty">{t("nothing")}</p>}
          {last.map((e, i) => (
            <div class={"earlier" + (i === 0 ? " first" : "")}>
              <time class="quiet code">{clock(new Date(e.at))}</time> <span><PodLink pod={e.pod} /></span>
              <span class={e.node ? "is-ok" : "is-bad"}>{e.node ? <>→ <NodeLink node={e.node} /></> : "▲ " + t("wasEvicted")}</span>
              <span class="quiet small cut linked" title={e.says}>{e.says}{e.node && <> · <A to={"/decisions?" + new URLSearchParams({ pod: e.pod })}>{t("whyThere")}</A></>}</span>
            </div>
          ))}
        </div>
      }
      head={[t("time"), t("pod"), t("node"), t("why")]}
      rows={() => [...before].reverse().map((e) => [clock(new Date(e.at)), <PodLink pod={e.pod} />, e.node ? <NodeLink node={e.node} /> : "–", e.says])}
    />
  );
}
