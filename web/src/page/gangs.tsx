import type { Decision, Gang, List, Past, Pod } from "../view";
import { namespace, now, updates, withQuery } from "../store";
import { t } from "../text";
import { A, age, clock, drawnRows, Facts, Figure, Head, More, Namespace, parts, PodLink, Topic } from "../ui";
import { expectedText, holdText } from "./explanation";

// A gang is read with those of its namespace.
const gangsTopic = () => {
  const one = parts()[1] || namespace();
  return one ? "gangs/" + one : "gangs";
};
// isName: the path names no gang, or one in a namespace.
const isName = (name: string) => name === "" || name.includes("/");
export const gangTopics = () => (isName(gangOfPath()) ? [gangsTopic(), "decisions", ...(gangOfPath() ? ["past", ...waiting()] : [])] : []);

// waiting is the topic of a member that waits: when its gang is expected to start is said of each of them.
function waiting(): string[] {
  const g = (updates.value[gangsTopic()]?.answer as List<Gang> | undefined)?.items.find((g) => g.name === gangOfPath());
  return (g?.pendingChildren ?? []).slice(0, 1).map((p) => "pod/" + p);
}

const gangOfPath = () => parts().slice(1, 3).join("/");
export const gangPath = (gang: string) => "/gangs/" + gang.split("/").map(encodeURIComponent).join("/");

// All gangs, or one with its members.
export function GangPage() {
  const name = gangOfPath(), list = (updates.value[gangsTopic()]?.answer as List<Gang> | undefined)?.items;
  return (
    <>
      <Head title={name || t("gangs")} mono={!!name} guide="gang" sub={!name && list && t("running", list.filter((g) => g.state === "Bound").length, list.length)}
        commands={[["tenon", "gang", ...(name && isName(name) ? [name] : namespace() ? ["-n", namespace()] : ["-A"])]]}>
        {!name && <Namespace />}
      </Head>
      {isName(name)
        ? <Topic<List<Gang>> of={gangsTopic()}>{(list) => <Gangs gangs={list.items} name={name} />}</Topic>
        : <p class="problem" role="alert">{t("wantsGang", name)}</p>}
    </>
  );
}

// members are the pods of a gang with their states, and those that must exist and do not.
function members(g: Gang): [string, string][] {
  return [
    ...g.boundChildren.map((p): [string, string] => [p, "bound"]),
    ...g.waitingForBindChildren.map((p): [string, string] => [p, "reserved"]),
    ...g.pendingChildren.map((p): [string, string] => [p, "pending"]),
    ...Array.from({ length: Math.max(0, g.minRequiredNumber - g.children.length) }, (): [string, string] => ["", "missing"]),
  ];
}

const words = { bound: "isBound", reserved: "isReserved", pending: "isPending", missing: "isMissing" } as const;
const word = (state: string) => t(words[state as keyof typeof words]);

// Dots draws a dot for each member of a gang.
export function Dots({ gang, most = 64 }: { gang: Gang; most?: number }) {
  const all = members(gang);
  return (
    <span class="dots" role="img" aria-label={t("boundOf", gang.boundChildren.length, gang.minRequiredNumber)}>
      {all.slice(0, most).map(([pod, state]) => <i class={"is-" + state} title={`${pod} ${word(state)}`} />)}
      {all.length > most && <span class="quiet small">+{all.length - most}</span>}
    </span>
  );
}

// times are when members of a gang were placed, as far as the scheduler remembers or its journal has it.
function times(g: Gang): number[] {
  const of = new Set(g.children);
  const placed = [
    ...((updates.value.decisions?.answer as List<Decision> | undefined)?.items ?? []).map((d) => [d.pod, d.time]),
    ...(past()?.pods ?? []).map((p) => [p.pod, p.from]),
  ];
  return [...new Set(placed.filter(([pod]) => of.has(pod)).map(([, time]) => Date.parse(time)))];
}

const past = () => updates.value.past?.answer as Past | undefined;

// tries are when the scheduler tried a gang and gave it no nodes, as its journal has it: latest last.
function tries(g: Gang) {
  const of = new Set(g.children);
  return (past()?.refused ?? []).filter((r) => of.has(r.pod));
}

const isBound = (g: Gang) => g.state === "Bound";
const failed = (g: Gang) => g.lastPlan && g.lastPlan.placed < g.lastPlan.needed;

// Line draws a gang on the axis of time: from its creation until it was bound, or until now.
function Line({ gang: g, from, to }: { gang: Gang; from: number; to: number }) {
  const at = (time: number) => Math.max(0, Math.min(100, (100 * (time - from)) / Math.max(1, to - from))) + "%";
  const created = Date.parse(g.createTime), placed = times(g), end = isBound(g) ? Math.max(created, ...placed) : to;
  const label = [
    t("createdAt", clock(new Date(created))), placed.length > 0 && t("placedTimes", placed.length), failed(g) && t("planFailed", clock(new Date(g.lastPlan!.at)), g.lastPlan!.placed, g.lastPlan!.needed),
    g.deadline && t("deadlineAt", clock(new Date(g.deadline))),
  ].filter(Boolean).join(", ");
  return (
    <span class="lane" role="img" aria-label={label} title={label}>
      <span class={"span " + (isBound(g) ? "done" : "open")} style={{ left: at(created), width: `max(3px, calc(${at(end)} - ${at(created)}))` }} />
      {placed.map((p) => <i class="tick" style={{ left: at(p) }} />)}
      {tries(g).map((r) => <b class="cross small" style={{ left: at(Date.parse(r.time)) }}>✕</b>)}
      {failed(g) && <b class="cross" style={{ left: at(Date.parse(g.lastPlan!.at)) }}>✕</b>}
    </span>
  );
}

// Axis are the times below lanes.
function Axis({ from, to }: { from: number; to: number }) {
  return <span class="axis quiet small">{[0, 0.25, 0.5, 0.75, 1].map((p) => <span>{clock(new Date(from + p * (to - from))).slice(0, to - from < 600_000 ? 8 : 5)}</span>)}</span>;
}

function Gangs({ gangs, name }: { gangs: Gang[]; name: string }) {
  const one = gangs.find((g) => g.name === name);
  if (name) {
    return one ? <One gang={one} /> : <p class="problem">{t("noSuchGang", name)}</p>;
  }
  if (!gangs.length) {
    return <p class="figure empty">{t("noGang")}</p>;
  }
  const first = [...gangs].sort((a, b) => Number(isBound(a)) - Number(isBound(b)) || (a.createTime < b.createTime ? -1 : 1));
  const to = now.value, from = Math.min(...gangs.map((g) => Date.parse(g.createTime)));
  return (
    <Figure
      id="gangs"
      title={t("membersOf")}
      sub={t("lanesAre")}
      picture={
        <>
          <ul class="ganglist">
            {first.slice(0, drawnRows).map((g) => (
              <li data-row tabIndex={-1}>
                <span class="who">
                  <A to={gangPath(g.name)} title={g.name} class="code cut">{g.name}</A>
                  <span class={isBound(g) ? "is-ok" : g.state === "Failed" ? "is-bad" : "is-warn"}>{isBound(g) ? "● " + t("isBound") : `◐ ${g.state} ${age(g.createTime)}`}</span>
                </span>
                <Dots gang={g} />
                <b class="count">{t("boundOf", g.boundChildren.length, g.minRequiredNumber)}</b>
                <Line gang={g} from={from} to={to} />
                {g.message && <span class="message says">{g.message}{g.rootCausePod && <> · <PodLink pod={g.rootCausePod} /></>}</span>}
              </li>
            ))}
            <More of={first.length} shown={drawnRows} to={withQuery({ table: "gangs" })} />
            <li class="scaleline"><span /><span /><span /><Axis from={from} to={to} /></li>
          </ul>
          <p class="keys dots">
            {Object.keys(words).map((state) => <><i class={"is-" + state} /> {word(state)} </>)}
          </p>
        </>
      }
      head={[t("gang"), t("state"), "MIN", t("members"), t("isBound"), t("isReserved"), t("isPending"), t("age"), t("says")]}
      rows={() => first.map((g) => [
        <A to={gangPath(g.name)}>{g.name}</A>, g.state, g.minRequiredNumber, g.children.length, g.boundChildren.length,
        g.waitingForBindChildren.length, g.pendingChildren.length, age(g.createTime), g.message ?? "",
      ])}
    />
  );
}

const mostTries = 12;

function One({ gang: g }: { gang: Gang }) {
  const plan = g.lastPlan, expected = waiting().map((topic) => (updates.value[topic]?.answer as Pod | undefined)?.expected)[0];
  return (
    <>
      <section class="figure">
        <p class="proof">
          <span class={isBound(g) ? "is-ok" : "is-warn"}>{isBound(g) ? "● " + t("isBound") : "◐ " + g.state + " " + age(g.createTime)}</span>{" "}
          {g.message}{g.rootCausePod && <> · {t("blockedBy")} <PodLink pod={g.rootCausePod} /></>}
        </p>
        {g.reason && <p class="code quiet">{g.reason}</p>}
        <div class="gangtop"><Dots gang={g} most={512} /><span><Line gang={g} from={Date.parse(g.createTime)} to={now.value} /><Axis from={Date.parse(g.createTime)} to={now.value} /></span></div>
      </section>
      <section class="figure">
      <Facts
        rows={[
          [t("state"), g.state + (g.degraded ? ` (${t("degraded")})` : "")],
          [t("mustStart"), g.minRequiredNumber],
          [t("mode"), `${g.mode} · ${g.gangMatchPolicy}`],
          [t("byRule"), g.rule],
          [t("rounds"), g.scheduleCycle],
          [t("lastPlan"), plan && `${plan.placed} / ${plan.needed} · ${age(plan.at)}`],
          [t("group"), g.gangGroup.length > 1 && (
            <ul class="inline">{g.gangGroup.map((other) => <li><A to={gangPath(other)}>{other}</A></li>)}</ul>
          )],
          [t("network"), g.network?.join("; ")],
          [t("expectedStart"), expected && expectedText(expected)],
          [t("holdsNodes"), g.hold && holdText(g.hold)],
        ]}
      />
      </section>
      {tries(g).length > 0 && (
        <Figure
          id="tries"
          title={t("triesOf")}
          picture={<div class="rows">{tries(g).slice(-mostTries).reverse().map((r) => (
            <div class="earlier"><time class="quiet code">{clock(new Date(r.time))}</time> <PodLink pod={r.pod} /> <span class="is-warn">✕ {t("laneRefused")}</span><span class="quiet small">{r.why}</span></div>
          ))}</div>}
          head={[t("time"), t("pod"), t("why")]}
          rows={tries(g).reverse().map((r) => [clock(new Date(r.time)), <PodLink pod={r.pod} />, r.why])}
        />
      )}
      <Figure
        id="members"
        title={t("members")}
        picture={
          <ul class="inline">
            {members(g).map(([pod, state]) => (
              <li><i class={"member is-" + state} /> {pod ? <PodLink pod={pod} /> : ""} <span class="quiet">{word(state)}</span></li>
            ))}
          </ul>
        }
        head={[t("pod"), t("state")]}
        rows={members(g).map(([pod, state]) => [pod ? <PodLink pod={pod} /> : "–", word(state)])}
      />
    </>
  );
}
