// Why a pod is where it is, or nowhere.
import type { Cgroups, Pod, QuotaShortage } from "../view";
import { t } from "../text";
import { A, age, Facts, HolderLink, NodeLink, PodLink, Table } from "../ui";
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
        <div class="cause">
          <p class="code">
            {root.code} <span class="quiet">{[root.class, root.plugin, root.phase].filter(Boolean).join(" · ")}</span>
          </p>
          <p>{root.message}</p>
          {root.do && <p><strong>{t("remedy")}:</strong> {root.do}</p>}
          {obstacles.length > 0 && (
            <ul>
              {obstacles.map((o) => (
                <li><span class="code">{o.code}</span> ({o.nodes ?? 0}) {o.message}. {o.do}</li>
              ))}
            </ul>
          )}
          <Fixes pod={pod} />
          <Try pod={pod.pod} nodes={root.example ? [root.example] : []} />
        </div>
      )}
      <Facts
        rows={[
          [t("asked"), pod.asked],
          ["QoS", pod.qos],
          [t("since"), pod.since && age(pod.since)],
          [t("queue"), pod.queue && <Queue queue={pod.queue} />],
          ["scheduler", pod.scheduler],
        ]}
      />
      {pod.quota?.shortages.map((s) => <Holders quota={pod.quota!.quota} shortage={s} />)}
      <Candidates pod={pod} />
      <Placement pod={pod} />
      <Actual actual={(pod as Pod & { actual?: Cgroups }).actual} />
      {pod.rejection && <p class="problem">{pod.rejection.node}: {pod.rejection.reason} {pod.rejection.message}</p>}
      {pod.notes?.map((note) => <p class="note">{note}</p>)}
    </article>
  );
}

// Fixes are changes that the scheduler tried in a copy of the cluster, each with the question that shows it.
function Fixes({ pod }: { pod: Pod }) {
  const { fixes = [], search } = pod;
  if (!search && !fixes.length) {
    return null;
  }
  return (
    <>
      <p><strong>{t("fixes")}:</strong> {search?.note ?? (fixes.length ? "" : t("noFix", search?.runs ?? 0))}</p>
      <ul>
        {fixes.map((f) => (
          <li>
            {f.message}{" "}
            {f.changes?.length ? <A class="button" to={questionPath(f.changes, pod.pod)}>{t("try")}</A> : null}
            {f.moves?.map((m) => <div class="quiet">{m.pod}: {m.node} → {m.target}</div>)}
          </li>
        ))}
      </ul>
    </>
  );
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
          c.count > 1 ? <span class="linked">{t("likeIt", c.count, "")}<NodeLink node={c.node} /></span> : <NodeLink node={c.node} />,
          <>{c.reasons.map((r) => <div class="code">{r.code}</div>)}</>,
          <>{c.reasons.map((r) => <div>{r.haveNeed ?? "–"}</div>)}</>,
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
      <span class={v.state === "differs" || v.state === "unreadable" ? "problem" : ""} title={v.cause}>{marks[v.state] ?? "○"} {v.state}</span>,
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
      {d && <p class="quiet">{t("feasible", d.feasible, d.of)} · {d.time}</p>}
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

