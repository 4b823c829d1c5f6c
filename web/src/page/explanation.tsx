// Why a pod is where it is, or nowhere.
import type { Cgroups, HeldBack, Hold, Pod, QuotaShortage } from "../view";
import { t } from "../text";
import { units, A, age, Bar, bytes, cores, Facts, HolderLink, NodeLink, PodLink, Table } from "../ui";
import { gangPath } from "./gangs";
import { quotaPath } from "./quota";
import { questionPath, Try } from "./whatif";

export function Explanation({ pod }: { pod: Pod }) {
  const root = pod.rootCause;
  const obstacles = (pod.obstacles ?? []).filter((o) => o.code !== root?.code);
  return (
    <article>
      <h2>
        <PodLink pod={pod.pod} /> <span class={"badge state-" + pod.state}>{pod.state}</span>
      </h2>
      {root && (
        <>
          <p class="proof">{root.message.replace(/\.$/, "")}{root.example && <> · <NodeLink node={root.example} /></>}{haveOf(root.params) && <> · {haveOf(root.params)}</>}</p>
          <p><span class="code quiet">{root.code} · {[root.class, root.plugin, root.phase].filter(Boolean).join(" · ")}</span></p>
          {root.do && <p><strong>{t("remedy")}:</strong> {root.do}</p>}
          <Fixes pod={pod} />
          <Try pod={pod.pod} nodes={root.example ? [root.example] : []} />
        </>
      )}
      <Facts
        rows={[
          [t("asked"), pod.asked && units(pod.asked)],
          ["QoS", pod.qos],
          [t("expectedStart"), pod.expected && expectedText(pod.expected)],
          [t("holdsNodes"), pod.hold && holdText(pod.hold)],
          [t("heldBackBy"), pod.heldBack && heldBackText(pod.heldBack)],
          [t("since"), pod.since && age(pod.since)],
          [t("gang"), pod.gang && <><A to={gangPath(pod.gang.name)}>{pod.gang.name}</A> <span class="quiet">{t("byRule")} {pod.gang.rule}</span></>],
          [t("queue"), pod.queue && <Queue queue={pod.queue} />],
          ["scheduler", pod.scheduler],
        ]}
      />
      {obstacles.length > 0 && (
        <section>
          <h3>{t("otherObstacles")}</h3>
          <ul class="obstacles">
            {obstacles.map((o) => <li><span class="code">{o.code}</span> <span class="quiet">{t("nodesOf", o.nodes ?? 0)}</span> {o.message}. <span class="quiet">{o.do}</span></li>)}
          </ul>
        </section>
      )}
      {pod.quota?.shortages.map((s) => <Holders quota={pod.quota!.quota} shortage={s} />)}
      <Candidates pod={pod} />
      <Placement pod={pod} />
      <Actual actual={(pod as Pod & { actual?: Cgroups }).actual} />
      {pod.rejection && <p class="problem">{pod.rejection.node}: {pod.rejection.reason} {pod.rejection.message}</p>}
      {pod.notes?.map((note) => <p class="note">{note}</p>)}
    </article>
  );
}

// haveOf says what there is and what is asked for, where the reason has both.
function haveOf(params: Record<string, unknown> | undefined): string {
  const { asked, free, unit } = params ?? {};
  const text = (n: number) => (unit === "bytes" ? bytes(n) : unit === "milli" ? cores(n / 1000) : String(n));
  return typeof asked === "number" && typeof free === "number" ? t("haveNeedOf", text(free), text(asked)) : "";
}

const at = (time?: string) => (time ? new Date(time).toLocaleString() : "");

// holdText names the nodes that are kept, until when, and who may use them.
export function holdText(h: Hold): string {
  return [h.nodes.join(", "), h.start && t("heldUntil", at(h.start)), h.users].filter(Boolean).join(" · ");
}

function heldBackText(h: HeldBack): string {
  return [t("heldFor", h.node, h.for ?? t("anotherPod")), h.until && t("heldUntil", at(h.until)), h.ends ? t("wouldEnd", at(h.ends)) : t("noRunTime")].filter(Boolean).join(" · ");
}

export function expectedText(e: NonNullable<Pod["expected"]>): string {
  return [e.state, [at(e.earliest), at(e.latest)].filter(Boolean).join(" – "), e.after?.length ? t("afterPods", e.after.join(", ")) : ""].filter(Boolean).join(" · ");
}

// Fixes are changes that the scheduler tried in a copy of the cluster, each with the question that shows it.
function Fixes({ pod }: { pod: Pod }) {
  const { fixes = [], search } = pod;
  if (!search && !fixes.length) {
    return null;
  }
  return (
    <section>
      <h3>{t("fixes")}</h3>
      {(search?.note || !fixes.length) && <p class="empty">{search?.note ?? t("noFix", search?.runs ?? 0)}</p>}
      <ul class="fixes">
        {fixes.map((f) => (
          <li>
            <span class="grow">
              {f.message}
              {f.moves?.map((m) => <div class="quiet">{m.pod}: {m.node} → {m.target}</div>)}
              <span class="beforeafter small"><span class="is-warn">◐ {t("waitsNow")}</span> → <span class="is-ok">● {f.node ? f.node : t("wouldRun")}</span></span>
            </span>
            {f.changes?.length ? <A class="button" to={questionPath(f.changes, pod.pod)}>{t("try")}</A> : null}
          </li>
        ))}
      </ul>
    </section>
  );
}

// HaveNeed draws what a node has of what is asked for.
function HaveNeed({ text }: { text?: string }) {
  const [, have, need] = /^([\d.]+)\/([\d.]+)/.exec(text ?? "") ?? [];
  return need ? <span class="haveneed"><Bar part={Number(have)} whole={Number(need)} label={text!} /> <span>{text}</span></span> : <span>{text ?? "–"}</span>;
}

function Queue({ queue }: { queue: NonNullable<Pod["queue"]> }) {
  return (
    <>
      {[queue.place, t("attempts", queue.attempts)].filter(Boolean).join(" · ")}
      {queue.wakesOn?.length ? " · " + t("wakesOn") + " " + queue.wakesOn.join(", ") : ""}
    </>
  );
}

function Holders({ quota, shortage: s }: { quota: string; shortage: QuotaShortage }) {
  const rows = (s.borrowers ?? []).map((b) => [
    <A to={quotaPath(b.quota)}>{b.quota}</A>, `${t("borrows")} ${b.borrowed}`, b.used, b.min,
  ]);
  const outside = Object.entries(s.outside ?? {}).map(([name, used]) => [name, t("outside"), used, "–"]);
  return (
    <section>
      <h3>{t("heldBy")}: {s.dimension}</h3>
      <p>
        <A to={quotaPath(quota)}>{quota}</A>: {t("uses")} {s.used} / {s.limit}, + {s.request}
      </p>
      {rows.length + outside.length > 0 && (
        <Table label={t("heldBy")} head={[t("quota"), t("why"), "USED", "MIN"]} rows={[...rows, ...outside]} />
      )}
      {s.borrowersHidden ? <p class="note">{t("hidden", s.borrowersHidden)}</p> : null}
    </section>
  );
}

function Candidates({ pod }: { pod: Pod }) {
  const candidates = pod.candidates ?? [];
  if (!candidates.length) {
    return null;
  }
  return (
    <section>
      <h3>{t("candidates")}</h3>
      <Table
        label={t("candidates")}
        head={[t("node"), t("cause"), t("haveNeed"), t("says"), t("heldBy")]}
        rows={candidates.slice(0, 50).map((c) => [
          <span class="linked">{c.count > 1 && t("likeIt", c.count, "")}<span class="nowrap"><NodeLink node={c.node} /></span></span>,
          <>{c.reasons.map((r) => <div class="code nowrap">{r.code}</div>)}</>,
          <>{c.reasons.map((r) => <div><HaveNeed text={r.haveNeed} /></div>)}</>,
          <>
            {c.reasons.map((r) => <div>{r.message}</div>)}
            {c.devices?.miss && <div>{t("lacks")} {c.devices.miss}</div>}
          </>,
          c.devices?.holders?.length ? (
            <ul class="inline">
              {c.devices.holders.slice(0, 20).map((h) => <li><HolderLink holder={h} /> ({h.devices})</li>)}
              {c.devices.holdersElsewhere ? <li>{t("hidden", c.devices.holdersElsewhere)}</li> : null}
            </ul>
          ) : "–",
        ])}
      />
      {pod.minimalSets?.length ? (
        <>
          <h3>{t("minimal")}</h3>
          <Table
            label={t("minimal")}
            head={[t("cause"), t("nodes"), t("missing")]}
            rows={pod.minimalSets.map((s) => [
              <span class="code">{s.codes.join(" + ")}</span>, s.nodes,
              Object.entries(s.missing ?? {}).map(([name, n]) => `${name} ${n}`).join(", ") || "–",
            ])}
          />
        </>
      ) : null}
    </section>
  );
}

// Actual is what the agent of the node reads of the pod's cgroups.
function Actual({ actual }: { actual?: Cgroups }) {
  if (!actual?.groups?.length) {
    return null;
  }
  const marks: Record<string, string> = { matches: "●", differs: "▲", unreadable: "▲" };
  const rows = actual.groups.flatMap((g) => g.gone
    ? [[g.container ?? "–", g.path, "–", t("gone"), "–"]]
    : (g.values ?? []).map((v) => [
      g.container ?? "–", <span title={g.path}>{v.file}</span>, v.want ?? "–", v.error || v.got || v.effective || "–",
      <span class={v.state === "differs" || v.state === "unreadable" ? "problem" : v.state === "matches" ? "is-ok" : "quiet"} title={v.cause}>{marks[v.state] ?? "○"} {v.state}</span>,
    ]));
  return (
    <section>
      <h3>{t("actual")}</h3>
      <Table label={t("actual")} head={[t("container"), t("file"), t("wanted"), t("got"), t("state")]} rows={rows} />
    </section>
  );
}

function Placement({ pod }: { pod: Pod }) {
  const p = pod.placement;
  if (!p) {
    return null;
  }
  const d = pod.decision;
  const plugins = d?.scores?.[0]?.plugins.map((s) => s.name) ?? [];
  return (
    <section>
      <Facts
        rows={[
          [t("placedOn"), <NodeLink node={p.node} />],
          [t("cpus"), p.cpuset],
          [t("pool"), p.pool && `${p.pool} ${p.poolCPUs ?? ""}`],
          [t("numa"), (p.numa ?? []).map((n) => `${n.node}: ${n.cpuset}`).join(" · ")],
          [t("devices"), Object.entries(p.devices ?? {}).map(([kind, list]) =>
            `${kind} ${list.map((x) => (x.minor >= 0 ? x.minor : x.id)).join(",")}`).join("; ")],
        ]}
      />
      {p.overcommitted?.map((text) => <p class="problem">{text}</p>)}
      {d && <p class="quiet">{t("feasible", d.feasible, d.of)} · {at(d.time)}</p>}
      {d?.scores?.length ? (
        <>
          <h3><A to={"/decisions?" + new URLSearchParams({ pod: pod.pod })}>{t("scores")}</A></h3>
          <Table
            label={t("scores")}
            head={[t("node"), t("total"), ...plugins]}
            rows={d.scores.slice(0, 20).map((s) => [
              <NodeLink node={s.node} />, s.total,
              ...plugins.map((name) => s.plugins.find((x) => x.name === name)?.score ?? 0),
            ])}
          />
        </>
      ) : null}
    </section>
  );
}

