import type { Evictions, KeptPod } from "../view";
import { query, withQuery } from "../store";
import { t } from "../text";
import { A, age, Bar, Head, Figure, NodeLink, PodLink, Topic } from "../ui";

export const evictionTopics = () => ["evictions"];

// Which pods are moved, how much of the limits is used, and why the others are not moved.
export function EvictionPage() {
  return (
    <>
      <Head title={t("descheduling")} guide="from-descheduler" commands={[["tenon", "evictions"], ["tenon", "evictions", "--past"]]} />
      <Topic<Evictions> of="evictions">{(answer) => (
        <>
          <div class="grid"><div class="s7"><Jobs jobs={answer.jobs} /></div><div class="s5"><Limits limits={answer.limits} /></div></div>
          {answer.round && (
            <Reasons id="round" kept={answer.round.refused.map((m) => ({ ...m, says: `${m.plugin}: ${m.wish}` }))}
              title={t("roundOf", age(answer.round.time), answer.round.accepted, answer.round.refused.length)} />
          )}
          <Reasons id="kept" kept={answer.kept} title={t("keptPods", answer.kept.length, answer.kept.length + answer.movable)} />
        </>
      )}</Topic>
    </>
  );
}

function Jobs({ jobs }: { jobs: Evictions["jobs"] }) {
  const latest = [...jobs].reverse();
  const at = (node?: string) => (node ? <NodeLink node={node} /> : "–");
  return (
    <Figure
      id="jobs"
      title={t("jobs", jobs.length)}
      picture={jobs.length ? (
        <ol class="timeline">
          {latest.slice(0, shown).map((j) => (
            <li class={j.phase === "Failed" ? "changed" : "placed"}>
              <span>{age(j.createTime)}</span>
              <span><PodLink pod={j.pod} /> <span class="badge">{j.phase}</span></span>
              <span>{at(j.from)} → {at(j.to)} {j.successor && <PodLink pod={j.successor} />}</span>
              <span class="quiet">{j.reason}</span>
            </li>
          ))}
          {jobs.length > shown && <li class="quiet">{t("more", jobs.length - shown)}</li>}
        </ol>
      ) : <p class="quiet">{t("noJob")}</p>}
      head={[t("job"), t("phase"), t("age"), t("pod"), t("from"), t("to"), t("successor"), t("plugin"), t("why")]}
      rows={latest.map((j) => [
        j.name, j.phase, age(j.createTime), <PodLink pod={j.pod} />, at(j.from), at(j.to),
        j.successor ? <PodLink pod={j.successor} /> : "–", j.plugin ?? "–", j.reason ?? "–",
      ])}
    />
  );
}

function Limits({ limits }: { limits: Evictions["limits"] }) {
  return (
    <Figure
      id="limits"
      title={t("limits")}
      picture={limits.length ? (
        <ul class="causes small">
          {limits.map((l) => (
            <li>
              <span><span class="code">{l.code}</span> {l.subject}</span>
              <Bar part={l.have} whole={l.limit} label={`${l.code} ${l.subject}: ${l.have} / ${l.limit}`} />
              <span class="count">{l.have}/{l.limit}</span>
            </li>
          ))}
        </ul>
      ) : <p class="quiet">{t("noLimit")}</p>}
      head={[t("code"), t("subject"), t("used"), t("limit"), t("window")]}
      rows={limits.map((l) => [l.code, l.subject, l.have, l.limit, l.window ?? "–"])}
    />
  );
}

const shown = 200;

// Reasons draws pods that are not moved by the first code that keeps them; a code opens its pods.
function Reasons({ id, title, kept }: { id: string; title: string; kept: (KeptPod & { says?: string })[] }) {
  const codes = [...Map.groupBy(kept, (k) => k.reasons[0]?.code ?? "")].sort(([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1));
  const open = codes.find(([code]) => code === query(id));
  return (
    <Figure
      id={id}
      title={title}
      picture={
        <>
          <ul class="causes">
            {codes.map(([code, pods]) => (
              <li>
                <A to={withQuery({ [id]: code })} current={code === query(id)}>
                  <span class="code">{code}</span>
                  <Bar part={pods.length} whole={kept.length} label={`${code}: ${pods.length}`} />
                  <span class="count">{pods.length}</span>
                  <span />
                  <span class="message">{pods[0].reasons[0]?.message}</span>
                </A>
              </li>
            ))}
          </ul>
          {open && (
            <ul class="keptpods">
              {open[1].slice(0, shown).map((k) => (
                <li>
                  <span><PodLink pod={k.pod} /></span> <span><NodeLink node={k.node} /></span>
                  <span class="message">{k.says} {k.reasons.map((r) => r.message).join("; ")}</span>
                </li>
              ))}
              {open[1].length > shown && <li class="quiet">{t("more", open[1].length - shown)}</li>}
            </ul>
          )}
        </>
      }
      head={[t("pod"), t("node"), t("why"), t("mayPass")]}
      rows={kept.map((k) => [
        <PodLink pod={k.pod} />, <NodeLink node={k.node} />, [k.says, ...k.reasons.map((r) => r.message)].filter(Boolean).join("; "),
        k.reasons.some((r) => r.final) ? t("no") : t("yes"),
      ])}
    />
  );
}
