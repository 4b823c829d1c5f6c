import type { Status } from "../view";
import { t } from "../text";
import { Bar, Command, Figure, Topic } from "../ui";

export const systemTopics = () => ["status"];

// What is installed, and what is wrong with it.
export function System() {
  return (
    <>
      <h1>{t("system")}</h1>
      <Topic<Status> of="status">{(status) => <Installation status={status} />}</Topic>
      <Command words={["tenon", "status"]} />
      <Command words={["tenon", "sysdump"]} title={t("bugReport")} />
    </>
  );
}

function Installation({ status: s }: { status: Status }) {
  const bad = s.findings.filter((f) => f.status !== "ok").length;
  return (
    <>
      {s.components.length > 0 && (
        <Figure
          id="components"
          title={t("components")}
          picture={
            <ul class="causes small">
              {s.components.map((c) => (
                <li>
                  <span>{c.name}</span>
                  <Bar part={c.ready} whole={c.desired} label={`${c.name}: ${c.ready} / ${c.desired}`} />
                  <span class="count">{c.ready}/{c.desired}</span>
                </li>
              ))}
            </ul>
          }
          head={[t("component"), t("ready"), t("wanted"), t("versions"), t("leader"), t("says")]}
          rows={s.components.map((c) => [c.name, c.ready, c.desired, c.versions.join(", "), c.leader ?? "–", c.stuck ?? ""])}
        />
      )}
      <Figure
        id="checks"
        title={`${s.subject}: ${bad ? t("checksFail", bad, s.findings.length) : t("checksPass", s.findings.length)}`}
        picture={
          <ul class="checks">
            {s.findings.map((f) => (
              <li class={"check-" + f.status}>
                <span><span class="badge">{f.status}</span> {f.check}</span>
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
    </>
  );
}
