import { effect, signal } from "@preact/signals";
import type { Decision, List, PendingGroup, Score } from "../view";
import type { ComponentChildren } from "preact";
import { go, namespace, pendingTopic, query, updates, wide, withQuery } from "../store";
import { t } from "../text";
import { A, Beside, clock, Copy, drawnRows, Figure, Head, More, Namespace, NodeLink, PodLink, Topic } from "../ui";

export const decisionTopics = () => ["decisions", pendingTopic()];

// Moved is a pod whose root cause became another one while this tab was open.
interface Moved {
  pod: string;
  at: number;
  from: string;
  to: string; // "" once the pod no longer waits
}

const mostMoved = 500;
const moved = signal<Moved[]>([]);
let known: Map<string, string> | undefined;
let knownOf = ""; // the topic

effect(() => {
  const topic = pendingTopic();
  const pending = updates.value[topic];
  if (!pending?.answer || pending.error) {
    return;
  }
  const causes = new Map((pending.answer as List<PendingGroup>).items.flatMap((g) => g.pods.map((p) => [p, g.rootCause] as const)));
  const before = topic === knownOf ? known : undefined;
  knownOf = topic;
  known = causes;
  if (before) {
    const at = Date.parse(pending.read);
    const changed = [...new Set([...before.keys(), ...causes.keys()])]
      .filter((p) => before.get(p) !== causes.get(p))
      .map((pod): Moved => ({ pod, at, from: before.get(pod) ?? "", to: causes.get(pod) ?? "" }));
    if (changed.length) {
      moved.value = [...changed, ...moved.peek()].slice(0, mostMoved);
    }
  }
});

// What the scheduler decided last, the root causes that changed, and by which scores a node was chosen.
export function Decisions() {
  const pod = query("pod");
  return (
    <>
      <Head title={t("decisions")} sub={t("decisionsAre")} guide="explain"
        commands={pod.includes("/") ? [["tenon", "explain", "pod/" + pod.split("/")[1], "-n", pod.split("/")[0], "--scores", "-o", "wide"]] : []}>
        <Namespace />
        <A to="/time" class="button">{t("time")}</A>
      </Head>
      <Topic of={pendingTopic()}>{() => null}</Topic>
      <Topic<List<Decision>> of="decisions">{(list) => {
        const chosen = pod && <Chosen pod={pod} decision={list.items.find((d) => d.pod === pod)} />;
        const drawn = chosen && list.items.some((d) => d.pod === pod);
        return (
          <Beside answer={wide.value || !drawn ? chosen : undefined}>
            <Timeline decisions={list.items} below={wide.value ? undefined : chosen} />
          </Beside>
        );
      }}</Topic>
    </>
  );
}

const byTotal = (d: Decision) => [...(d.scores ?? [])].sort((a, b) => b.total - a.total || (a.node < b.node ? -1 : 1));

// duel is the score of the chosen node and the best of another one.
function duel(d: Decision): [Score | undefined, Score | undefined] {
  const scores = byTotal(d);
  return [scores.find((s) => s.node === d.node), scores.find((s) => s.node !== d.node)];
}

function Timeline({ decisions, below }: { decisions: Decision[]; below?: ComponentChildren }) {
  const filter = query("name");
  const within = namespace() && namespace() + "/";
  const events = [
    ...decisions.map((d) => ({ at: Date.parse(d.time), pod: d.pod, decision: d, moved: undefined })),
    ...moved.value.map((m) => ({ at: m.at, pod: m.pod, decision: undefined, moved: m })),
  ].filter((e) => e.pod.startsWith(within) && e.pod.includes(filter)).sort((a, b) => b.at - a.at);
  const margin = (d: Decision) => {
    const [first, second] = duel(d);
    return first && second ? t("ahead", first.total, first.total - second.total, second.node) : "";
  };
  const cause = (m: Moved) => `${m.from || t("isNew")} → ${m.to || t("waitsNoMore")}`;
  return (
    <>
      <p class="form">
        <label>{t("filter")} <input value={filter} onInput={(e) => go(withQuery({ name: e.currentTarget.value }), true)} /></label>
      </p>
      <Figure
        id="timeline"
        title={t("timeline")}
        picture={
          <ol class="timeline">
            {events.slice(0, drawnRows).map(({ at, pod, decision: d, moved: m }) => (
              <>
              <li class={d ? "placed" : "changed"}>
                <time dateTime={new Date(at).toISOString()}>{clock(new Date(at))}</time>
                <span>
                  {d ? <A to={withQuery({ pod })} current={pod === query("pod")}>{pod}</A> : <PodLink pod={pod} />}
                </span>
                <span>
                  {d ? <>→ <NodeLink node={d.node} /> <span class="quiet">{t("feasibleOf", d.feasible, d.of)}</span></> : <span class="code">{cause(m!)}</span>}
                </span>
                <span class="quiet">{d && margin(d)}</span>
              </li>
              {d && pod === query("pod") && below && <li class="answer">{below}</li>}
              </>
            ))}
            <More of={events.length} shown={drawnRows} to={withQuery({ table: "timeline" })} />
            {!events.length && <li class="quiet">{t("nothing")}</li>}
          </ol>
        }
        head={[t("time"), t("pod"), t("node"), t("cause"), t("nodes"), t("total")]}
        rows={() => events.map(({ at, pod, decision: d, moved: m }) => [
          clock(new Date(at)), <PodLink pod={pod} />, d ? <NodeLink node={d.node} /> : "–", m ? cause(m) : "–",
          d ? t("feasible", d.feasible, d.of) : "–", d ? margin(d) : "–",
        ])}
      />
      <p class="note">{t("timelineIs")}</p>
    </>
  );
}

function Chosen({ pod, decision: d }: { pod: string; decision?: Decision }) {
  const name = pod.split("/")[1];
  const [first, second] = d ? duel(d) : [];
  return (
    <section class="detail">
      <h2><PodLink pod={pod} /></h2>
      {!d && <p class="note">{t(name ? "forgotten" : "wantsPod", pod)}</p>}
      {d && !first && <p class="note">{t("notScored", d.node)}</p>}
      {d && first && <Scores decision={d} first={first} second={second} />}
    </section>
  );
}

// Scores draws by plugin how far the chosen node is ahead of the best other one.
function Scores({ decision: d, first, second }: { decision: Decision; first: Score; second?: Score }) {
  const scores = byTotal(d);
  const of = (s: Score | undefined, plugin: string) => s?.plugins.find((p) => p.name === plugin);
  const lead = (plugin: string) => (of(first, plugin)?.score ?? 0) - (of(second, plugin)?.score ?? 0);
  const plugins = first.plugins.map((p) => p.name).sort((a, b) => Math.abs(lead(b)) - Math.abs(lead(a)) || (a < b ? -1 : 1));
  const alike = (plugin: string) => new Set(scores.map((s) => of(s, plugin)?.score ?? 0)).size === 1;
  const most = Math.max(1, ...plugins.map((p) => Math.abs(lead(p))));
  const cell = (s: Score, plugin: string) => {
    const p = of(s, plugin);
    return p ? `${p.score} = ${p.weight} × ${p.normalized}${p.raw === undefined ? "" : ` (${p.raw})`}` : "–";
  };
  return (
    <Figure
      id="scores"
      title={second ? t("winner", first.node, first.total, second.node, second.total) : t("onlyOne", first.node, first.total)}
      picture={
        <>
          <ul class="duel">
            {plugins.filter((p) => !alike(p)).map((p) => (
              <li>
                <span class="code">{p}</span>
                <span class="lead" role="img" aria-label={`${p}: ${lead(p)}`}>
                  <span class={lead(p) < 0 ? "behind" : "ahead"} style={{ width: (50 * Math.abs(lead(p))) / most + "%" }} />
                </span>
                <span class="count">{lead(p) > 0 ? "+" : ""}{lead(p)}</span>
                <span class="quiet">{cell(first, p)} · {second ? cell(second, p) : ""}</span>
              </li>
            ))}
          </ul>
          <p class="quiet">{t("noEffect", plugins.filter(alike).join(", ") || t("nothing"))}</p>
          <p class="quiet">{t("scoreIs")}</p>
          <p><Copy text={markdown(scores, plugins)} title={t("copyMarkdown")} /></p>
        </>
      }
      head={[t("node"), t("total"), ...plugins]}
      rows={scores.map((s) => [<NodeLink node={s.node} />, s.total, ...plugins.map((p) => cell(s, p))])}
    />
  );
}

// markdown is a table for a bug report or a chat.
const markdown = (scores: Score[], plugins: string[]) =>
  [
    ["Node", "Score", ...plugins], ["---", "---:", ...plugins.map(() => "---:")],
    ...scores.map((s) => [s.node, s.total, ...plugins.map((name) => s.plugins.find((p) => p.name === name)?.score ?? 0)]),
  ].map((row) => `| ${row.join(" | ")} |`).join("\n");
