// What the scheduler decided, over time: lanes of events, a slider, the nodes at that moment, and why. The journal of the
// scheduler has all of it; without one, only its last decisions and the evictions of the past are known.
import type { Decision, Evicted, Gang, List, Load, Past, PastPod } from "../view";
import { go, now, query, updates, withQuery } from "../store";
import { isKey, t } from "../text";
import { A, clock, cores, duration, Figure, Head, More, nodePath, NodeLink, number, Parts, percent, PodLink, sum, Topic } from "../ui";

const pastTopic = () => (query("file") ? "past/" + query("file") : "past");
export const timeTopics = () => [pastTopic(), "decisions", "evicted", "gangs", "nodes"];

const lanes = ["bound", "gang", "refused", "preempted", "moved", "ended"] as const;
type LaneName = (typeof lanes)[number];
const laneText = { bound: "laneBound", gang: "laneGang", refused: "laneRefused", preempted: "lanePreempted", moved: "laneMoved", ended: "laneEnded" } as const;

interface Happened {
  at: number;
  lane: LaneName;
  pod: string;
  node?: string; // that it came to, or that it left
  left?: boolean;
  milli: number;
  says: string;
}

const items = <T,>(topic: string) => (updates.value[topic]?.answer as List<T> | undefined)?.items ?? [];
const byWhom = (e: Evicted) => {
  const key = "by_" + e.by;
  return [isKey(key) ? t(key) : e.by, e.why].filter(Boolean).join(": ");
};

// remembered is what is known without a journal, in the form of one.
function remembered(): Past {
  const gangOf = new Map(items<Gang>("gangs").flatMap((g) => g.children.map((c) => [c, g.name] as const)));
  const all = items<Decision>("decisions").map((d): PastPod => ({
    pod: d.pod, node: d.node, gang: gangOf.get(d.pod), milliCPU: 0, from: d.time, feasible: d.feasible, of: d.of,
  }));
  const times = [...all.map((p) => p.from), ...items<Evicted>("evicted").map((e) => e.time)].sort();
  for (const e of items<Evicted>("evicted")) {
    const placed = all.find((p) => p.pod === e.pod && p.from <= e.time && !p.to) ?? { pod: e.pod, node: "", milliCPU: 0, from: times[0] };
    placed.to = e.time;
    placed.why = e.by === "preemption" ? preempting : e.by;
    all.includes(placed) || all.push(placed);
  }
  const nodes = items<Load>("nodes").map((n) => ({ node: n.node, milliCPU: 1000 * number(n.allocatable), from: times[0] }));
  return { file: "", from: times[0], to: times.at(-1), nodes, pods: all, refused: [] };
}

const preempting = "PreemptionByScheduler";
const nearby = 120_000;

// events are what a past contains, oldest first. Evictions say by whom, where the cluster still says it.
function events(p: Past): Happened[] {
  const evicted = new Map(items<Evicted>("evicted").map((e) => [e.pod, e]));
  const why = (x: PastPod) => {
    const e = evicted.get(x.pod);
    return e && Math.abs(Date.parse(e.time) - Date.parse(x.to!)) < nearby ? byWhom(e) : x.why ?? "";
  };
  const all: Happened[] = [];
  for (const x of p.pods) {
    const known = { pod: x.pod, node: x.node || undefined, milli: x.milliCPU };
    if (x.node && (x.from !== p.from || !p.file)) {
      all.push({ ...known, at: Date.parse(x.from), lane: x.gang ? "gang" : "bound", says: x.of ? t("feasible", x.feasible ?? 0, x.of) : "" });
    }
    if (x.to) {
      all.push({ ...known, at: Date.parse(x.to), left: true, lane: !x.why ? "ended" : x.why === preempting ? "preempted" : "moved", says: why(x) });
    }
  }
  p.refused.forEach((r) => all.push({ at: Date.parse(r.time), lane: "refused", pod: r.pod, milli: 0, says: r.why + (r.nominated ? ` → ${r.nominated}` : "") }));
  return all.sort((a, b) => a.at - b.at);
}

interface Then {
  node: string;
  pods: number;
  asked: number;
  whole: number;
}

// fleetAt is what was on each node at a moment, as Past.FleetAt of internal/view has it.
function fleetAt(p: Past, at: number): Map<string, Then> {
  const exists = ({ from, to }: { from: string; to?: string }) => Date.parse(from) <= at && !(to && Date.parse(to) <= at);
  const all = new Map(p.nodes.filter((n) => !p.file || exists(n)).map((n) => [n.node, { node: n.node, pods: 0, asked: 0, whole: n.milliCPU }]));
  for (const x of p.pods) {
    const n = all.get(x.node);
    if (n && exists(x)) {
      n.pods++;
      n.asked += x.milliCPU;
    }
  }
  return all;
}

const bins = 120;

export function Time() {
  return (
    <Topic<Past> of={pastTopic()}>{(past) => (past.file ? <Course past={past} /> : <Topic of="decisions">{() => <Course past={remembered()} />}</Topic>)}</Topic>
  );
}

function Course({ past }: { past: Past }) {
  const all = events(past), earlier = !!query("file");
  const begin = Date.parse(past.from ?? "") || now.value - 60_000, last = all.at(-1)?.at ?? begin;
  // The axis ends soon after the last event, so that a quiet hour does not push all others to one side.
  const recorded = Date.parse(past.to ?? "") || last, end = Math.min(earlier ? recorded : now.value, last + Math.max(10_000, (last - begin) / 8));
  const asked = Date.parse(query("at")), live = Number.isNaN(asked) && !earlier, at = Number.isNaN(asked) ? end : Math.max(begin, Math.min(end, asked));
  const to = (time: number) => go(withQuery({ at: time >= end ? "" : new Date(time).toISOString() }), true);
  const before = all.filter((e) => e.at <= at);
  // The slider steps over events.
  const step = (n: number) => {
    const next = n > 0 ? all.find((e) => e.at > at) : before.filter((e) => e.at < at).pop();
    to(next ? next.at : n > 0 ? end : begin);
  };
  const replay = ["tenon", "replay", past.file, "--fleet", ...(live ? [] : ["--until", new Date(at).toISOString()])];
  return (
    <>
      <Head title={t("time")} guide="replay" commands={[["tenon", "evictions", "--past"], past.file ? replay : ["tenon", "replay", "--help"]]}
        sub={<span class={live ? "is-ok" : "is-warn"}>{live ? "● " + t("atNow") : "◐ " + t("replayAt", clock(new Date(at)), duration((now.value - at) / 1000))}</span>} />
      {all.length === 0 && !past.file ? <p class="figure empty">{t("noDecision")}</p> : (
        <>
          <section class="figure">
            <div class="lanes" onClick={(e) => {
              const box = (e.currentTarget as HTMLElement).querySelector(".strip")!.getBoundingClientRect();
              e.clientX >= box.left && to(begin + ((e.clientX - box.left) / box.width) * (end - begin));
            }}>
              {lanes.map((lane) => (past.file || (lane !== "refused" && lane !== "ended")) && (
                <Lane name={lane} all={all.filter((e) => e.lane === lane)} begin={begin} end={end} at={at} />
              ))}
            </div>
            <p class="slider">
              <span>
                <button type="button" onClick={() => step(-1)} aria-label={t("stepBack")} title={t("stepBack")}>◂</button>{" "}
                <button type="button" onClick={() => step(1)} aria-label={t("stepOn")} title={t("stepOn")}>▸</button>{" "}
                <button type="button" disabled={live} onClick={() => go(withQuery({ at: "", file: "" }), true)}>{t("atNow")}</button>
              </span>
              <input type="range" aria-label={t("moment")} min={begin} max={end} step={Math.max(1, Math.round((end - begin) / 2000))} value={at}
                aria-valuetext={clock(new Date(at))} onInput={(e) => to(Number(e.currentTarget.value))} />
            </p>
            <span class="axis quiet small">{[0, 0.25, 0.5, 0.75, 1].map((p) => <span>{clock(new Date(begin + p * (end - begin)))}</span>)}</span>
            <p class="quiet small linked files">
              {past.file ? t("recordedFrom", clock(new Date(begin)), clock(new Date(recorded)), past.file) : t("timeIs")}{" "}
              {past.earlier && <A to={withQuery({ file: past.earlier, at: "" })}>{t("earlierFile")}</A>}
            </p>
          </section>
          <div class="grid">
            <div class={past.nodes.length > mostCards ? "s7" : ""}><Fleet past={past} at={at} last={before.at(-1)} /></div>
            <div class={past.nodes.length > mostCards ? "s5" : ""}><Earlier past={past} before={before} at={at} /></div>
          </div>
        </>
      )}
    </>
  );
}

// Lane is how many events there were, over time; what is after the chosen moment is pale.
function Lane({ name, all, begin, end, at }: { name: LaneName; all: Happened[]; begin: number; end: number; at: number }) {
  const counts = Array<number>(bins).fill(0);
  all.forEach((e) => counts[Math.max(0, Math.min(bins - 1, Math.floor((bins * (e.at - begin)) / (end - begin))))]++);
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

const shownNodes = 1000;
const mostCards = 24;

// Fleet is what was on each node at the moment. The nodes of the last events are lit.
function Fleet({ past, at, last }: { past: Past; at: number; last?: Happened }) {
  const then = fleetAt(past, at), names = [...then.keys()].sort(), shown = names.slice(0, shownNodes), cards = names.length <= mostCards;
  const most = Math.max(1, ...[...then.values()].map((n) => n.pods));
  const part = (n: Then) => (past.file ? n.asked / n.whole : n.pods / most);
  const amount = (n: Then) => (past.file ? `${cores(n.asked / 1000)} / ${cores(n.whole / 1000)} CPU` : "");
  const level = (n: Then) => Math.max(0, Math.min(5, Math.floor(6 * part(n)))) || 0;
  const lit = (n: Then) => n.node === last?.node;
  const pods = sum([...then.values()], (n) => n.pods);
  return (
    <Figure
      id="then"
      title={t("fleetAt", clock(new Date(at)))}
      sub={past.file ? t("podsOnNodes", pods, names.length) : t("boundByThen", pods)}
      picture={
        <>
          <ul class={"moments" + (cards ? "" : " many")}>
            {shown.map((name) => {
              const n = then.get(name)!, says = [name, amount(n), t("podsThen", n.pods)].filter(Boolean).join(", ");
              return (
                <li>
                  <A to={nodePath(name)} class={"moment" + (cards ? "" : " heat-" + level(n)) + (lit(n) ? " lit-now" : "")} title={says} label={cards ? undefined : says}>
                    {cards && (
                      <>
                        <span class="code cut">{name}</span> <b>{past.file ? percent(part(n)) : n.pods}</b>
                        <Parts whole={past.file ? n.whole : most} parts={[{ n: past.file ? n.asked : n.pods, kind: "in-lsr", text: says }]} />
                        <span class="quiet small">{[amount(n), t("podsThen", n.pods)].filter(Boolean).join(" · ")}</span>
                      </>
                    )}
                  </A>
                </li>
              );
            })}
          </ul>
          <More of={names.length} shown={shown.length} to="/fleet" block />
        </>
      }
      head={[t("node"), t("pods"), t("requested"), t("allocatable")]}
      rows={() => names.map((name) => {
        const n = then.get(name)!;
        return [<NodeLink node={name} />, n.pods, past.file ? +(n.asked / 1000).toFixed(3) : "–", +(n.whole / 1000).toFixed(3)];
      })}
    />
  );
}

const shownEvents = 12;
const signs: Partial<Record<LaneName, string>> = { refused: "◐ ", preempted: "▲ ", moved: "▲ " };

// Earlier are the events before the moment, latest first, with the way to why. Of the last one it shows what it changed.
function Earlier({ past, before, at }: { past: Past; before: Happened[]; at: number }) {
  const last = before.slice(-shownEvents).reverse();
  const what = (e: Happened) => (
    e.lane === "refused" ? <span class="is-warn">{signs.refused + t("laneRefused")}</span>
    : <span class={"linked " + (e.left ? (e.lane === "ended" ? "quiet" : "is-bad") : "is-ok")}>
        {e.left ? (signs[e.lane] ?? "") + t(e.lane === "ended" ? "leftNode" : "wasEvicted") + " ← " : "→ "}{e.node ? <NodeLink node={e.node} /> : "–"}
      </span>
  );
  return (
    <Figure
      id="earlier"
      title={t("decisionsBefore", clock(new Date(at)))}
      picture={
        <div class="rows pairs">
          {!last.length && <p class="empty">{t("nothing")}</p>}
          {last.map((e, i) => (
            <div class={"earlier" + (i === 0 ? " first" : "")}>
              <time class="quiet code" title={new Date(e.at).toISOString()}>{clock(new Date(e.at))}</time> <span><PodLink pod={e.pod} /></span>
              {what(e)}
              <span class="quiet small linked says" title={e.says}>
                <span class={e.lane === "refused" ? "twolines" : ""}>{e.says}</span>{!e.left && e.node && <> {e.says && "· "}<A to={"/decisions?" + new URLSearchParams({ pod: e.pod })}>{t("whyThere")}</A></>}
                {e.lane === "refused" && <> <A to={"/pending?" + new URLSearchParams({ pod: e.pod })}>{t("whyWaits")}</A></>}
              </span>
              {i === 0 && past.file && e.node && <Changed past={past} e={e} />}
            </div>
          ))}
        </div>
      }
      head={[t("time"), t("pod"), t("node"), t("why")]}
      rows={() => [...before].reverse().slice(0, shownNodes).map((e) => [clock(new Date(e.at)), <PodLink pod={e.pod} />, what(e), e.says])}
    />
  );
}

// Changed is a node before and after an event.
function Changed({ past, e }: { past: Past; e: Happened }) {
  const after = fleetAt(past, e.at).get(e.node!);
  if (!after) {
    return null;
  }
  const was = Math.max(0, after.asked + (e.left ? e.milli : -e.milli));
  const bar = (title: string, asked: number) => (
    <div class="line mini"><span>{title}</span>
      <Parts whole={after.whole} parts={[
        { n: Math.min(was, asked), kind: "in-lsr", text: cores(Math.min(was, asked) / 1000) + " CPU" }, { n: asked - Math.min(was, asked), kind: "in-lse", text: `${e.pod}: ${cores(e.milli / 1000)} CPU` },
      ]} /><span>{cores(asked / 1000)}</span></div>
  );
  return <div class="changed">{bar(t("beforeThat"), was)}{bar(t("after"), after.asked)}</div>;
}
