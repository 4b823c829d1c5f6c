import type { ComponentChildren } from "preact";
import type { Configuration, Status } from "../view";
import { updates } from "../store";
import { t } from "../text";
import { age, Bar, Figure, Head, NodeLink, sum, Topic } from "../ui";

export const systemTopics = () => ["status", "configuration"];

// What is installed, and what is wrong with it.
export function System() {
  return (
    <>
      <Head title={t("system")} guide="status" commands={[["tenon", "status"], ["tenon", "sysdump"]]}>
        <button type="button" onClick={download}>{t("download")}</button>
      </Head>
      <Topic<Status> of="status">{(status) => <Installation status={status} />}</Topic>
      <Topic<Configuration> of="configuration">{(found) => <Running configuration={found} />}</Topic>
      <Topic<Status> of="status">{(status) => <Endpoints paths={status.endpoints} />}</Topic>
    </>
  );
}

// Health is which components are ready, who leads and since when, and of how many nodes agents have reported.
function Health({ status: s }: { status: Status }) {
  return (
    <Figure
      id="components"
      title={t("components")}
      picture={
        <>
          <ul class="causes small">
            {s.components.map((c) => (
              <li>
                <span>{c.name}</span>
                <Bar part={c.ready} whole={c.desired} label={`${c.name}: ${c.ready} / ${c.desired}`} />
                <span class="count">{c.ready}/{c.desired}</span>
                {c.leader && <span class="message wide">{t("leads", c.leader, age(c.leaderSince))}</span>}
                {c.stuck && <span class="message wide">{c.stuck}</span>}
              </li>
            ))}
            {s.reports.map((r) => (
              <li>
                <span>{reportsOf(r.kind)}</span>
                <Bar part={r.nodes} whole={r.of} label={`${reportsOf(r.kind)}: ${r.nodes} / ${r.of}`} />
                <span class="count">{r.nodes}/{r.of}</span>
                {r.oldestNode && <span class="message wide">{t("oldestReport", age(r.oldest), r.oldestNode)}</span>}
              </li>
            ))}
          </ul>
        </>
      }
      head={[t("component"), t("ready"), t("wanted"), t("versions"), t("leader"), t("since"), t("says")]}
      rows={[
        ...s.components.map((c) => [c.name, c.ready, c.desired, c.versions.join(", "), c.leader ?? "–", age(c.leaderSince), c.stuck ?? ""]),
        ...s.reports.map((r) => [
          reportsOf(r.kind), r.nodes, r.of, "–", "–", age(r.oldest), r.oldestNode ? <NodeLink node={r.oldestNode} /> : "",
        ]),
      ]}
    />
  );
}

const reportsOf = (kind: string) => t(kind === "topology" ? "topologyReports" : "deviceReports");

function verdict(s: Status): string {
  const bad = s.findings.filter((f) => f.status !== "ok").length;
  return bad ? t("checksFail", bad, s.findings.length) : t("checksPass", s.findings.length);
}

// Versions are those of the pods of components, against that of the scheduler that leads.
function Versions({ status: s }: { status: Status }) {
  const rows = s.components.flatMap((c) => Object.entries(c.pods ?? {}).map(([version, pods]) => (
    { name: c.name, version, pods, differs: !!s.schedulerVersion && version !== s.schedulerVersion }
  )));
  if (!rows.length) {
    return null;
  }
  const all = sum(rows, (r) => r.pods);
  const title = s.schedulerVersion
    ? t("skew", sum(rows.filter((r) => r.differs), (r) => r.pods), all, s.schedulerVersion)
    : t("skewUnknown");
  return (
    <Figure
      id="versions"
      title={title}
      picture={
        <ul class="causes small">
          {rows.map((r) => (
            <li>
              <span>{r.name} <span class="code">{r.version}</span></span>
              <Bar part={r.pods} whole={sum(rows.filter((o) => o.name === r.name), (o) => o.pods)}
                label={`${r.name} ${r.version}: ${r.pods}`} kind={r.differs ? "differs" : ""} />
              <span class="count">{r.pods}</span>
              {r.differs && <span class="problem wide">{t("differs")}</span>}
            </li>
          ))}
        </ul>
      }
      head={[t("component"), t("version"), t("pods"), t("differs")]}
      rows={rows.map((r) => [r.name, r.version, r.pods, s.schedulerVersion ? t(r.differs ? "yes" : "no") : "–"])}
    />
  );
}

const marks: Record<string, [string, string]> = { ok: ["is-ok", "●"], warn: ["is-warn", "◐"], fail: ["is-bad", "▲"] };

function Installation({ status: s }: { status: Status }) {
  const versions = Versions({ status: s });
  return (
    <>
      <Figure
        id="checks"
        title={`${s.subject}: ${verdict(s)}`}
        picture={
          <ul class="checks">
            {s.findings.map((f) => (
              <li class={"check-" + f.status}>
                <span><b class={marks[f.status]?.[0] ?? "is-bad"}>{marks[f.status]?.[1] ?? "▲"} {f.status}</b> {f.check}</span>
                <span>
                  {f.found} {f.where && <span class="quiet">({f.where})</span>}
                  {f.why && <span class="message"> {f.why}. {t("remedy")}: {f.remedy}</span>}
                </span>
              </li>
            ))}
          </ul>
        }
        head={[t("check"), t("state"), t("found"), t("where"), t("why"), t("remedy")]}
        rows={s.findings.map((f) => [f.check, f.status, f.found, f.where ?? "", f.why ?? "", f.remedy ?? ""])}
      />
      <div class="grid"><div class={versions ? "s6" : ""}><Health status={s} /></div>{versions && <div class="s6">{versions}</div>}</div>
    </>
  );
}

// download saves the last answers that the page received, with the times at which it was read and what could not be read.
function download() {
  const known = updates.peek();
  const text = JSON.stringify(Object.fromEntries(systemTopics().map((topic) => [topic, known[topic] ?? null])), null, 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "tenon-system-" + new Date().toISOString().slice(0, 19).replace(/\D/g, "") + ".json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Lines is a list of names, each with what is said of it.
function Lines({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <ul class="checks">
      {rows.map(([name, said]) => <li><span class="code">{name}</span><span>{said}</span></li>)}
    </ul>
  );
}

// What the scheduler runs with, and where each value comes from.
function Running({ configuration: { settings, gates } }: { configuration: Configuration }) {
  const set = settings.filter((s) => s.origin !== "default");
  const onOff = (is: boolean) => t(is ? "on" : "off");
  return (
    <>
      <Figure
        id="configuration"
        title={t("configuration", set.length, settings.length)}
        picture={
          set.length
            ? <Lines rows={set.map((s) => [s.field, <>{s.value} <span class="quiet">({s.origin})</span></>])} />
            : <p class="quiet">{t("allDefaults")}</p>
        }
        head={[t("setting"), t("value"), t("origin")]}
        rows={settings.map((s) => [s.field, s.value, s.origin])}
      />
      <Figure
        id="gates"
        title={t("gates", gates.length)}
        picture={<Lines rows={gates.map((g) => [g.name, <>{onOff(g.enabled)} <span class="quiet">({g.origin})</span></>])} />}
        head={[t("gate"), t("value"), t("byDefault"), t("stage"), t("origin")]}
        rows={gates.map((g) => [g.name, onOff(g.enabled), onOff(g.default), g.stage, g.origin])}
      />
    </>
  );
}

// The paths that the scheduler's diagnostics serve; nothing where it does not answer, which is one of the checks.
function Endpoints({ paths = {} }: { paths?: Record<string, string[]> }) {
  const rows = Object.entries(paths).flatMap(([method, all]) => all.map((path) => [path, method] as [string, string]));
  if (!rows.length) {
    return null;
  }
  return (
    <Figure id="endpoints" title={t("endpoints", rows.length)} picture={<Lines rows={rows} />}
      head={[t("path"), t("method")]} rows={rows} />
  );
}
