import type { Gang, List } from "../view";
import { namespace } from "../store";
import { t } from "../text";
import { A, age, Command, Facts, Figure, Namespace, parts, PodLink, Topic } from "../ui";

// A gang is read with those of its namespace.
const gangsTopic = () => {
  const one = parts()[1] || namespace();
  return one ? "gangs/" + one : "gangs";
};
// isName: the path names no gang, or one in a namespace.
const isName = (name: string) => name === "" || name.includes("/");
export const gangTopics = () => (isName(gangOfPath()) ? [gangsTopic()] : []);

const gangOfPath = () => parts().slice(1, 3).join("/");
export const gangPath = (gang: string) => "/gangs/" + gang.split("/").map(encodeURIComponent).join("/");

// All gangs, or one with its members.
export function GangPage() {
  const name = gangOfPath();
  return (
    <>
      <h1>{name || t("gangs")}</h1>
      {!name && <Namespace />}
      {isName(name)
        ? <Topic<List<Gang>> of={gangsTopic()}>{(list) => <Gangs gangs={list.items} name={name} />}</Topic>
        : <p class="problem" role="alert">{t("wantsGang", name)}</p>}
      <Command words={["tenon", "gang", ...(name && isName(name) ? [name] : namespace() ? ["-n", namespace()] : ["-A"])]} />
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

// shownMembers is how many members are drawn of a gang in the list.
const shownMembers = 64;

function Gangs({ gangs, name }: { gangs: Gang[]; name: string }) {
  const one = gangs.find((g) => g.name === name);
  if (name) {
    return one ? <One gang={one} /> : <p class="problem">{t("noSuchGang", name)}</p>;
  }
  if (!gangs.length) {
    return <p class="quiet">{t("noGang")}</p>;
  }
  return (
    <Figure
      id="gangs"
      title={t("membersOf")}
      picture={
        <>
          <ul class="quotas gangs">
            {gangs.map((g) => (
              <li>
                <span><A to={gangPath(g.name)}>{g.name}</A> <span class={"badge gang-" + g.state}>{g.state}</span></span>
                <span class="members">
                  {members(g).slice(0, shownMembers).map(([pod, state]) => (
                    <i class={"member is-" + state} title={`${pod} ${word(state)}`} />
                  ))}
                </span>
                <span>{t("boundOf", g.boundChildren.length, g.minRequiredNumber)}</span>
                <span class="quiet">{g.message}</span>
              </li>
            ))}
          </ul>
          <p class="legend quiet">
            {Object.keys(words).map((state) => <><i class={"member is-" + state} /> {word(state)} </>)}
          </p>
        </>
      }
      head={[t("gang"), t("state"), "MIN", t("members"), t("isBound"), t("isReserved"), t("isPending"), t("says")]}
      rows={gangs.map((g) => [
        <A to={gangPath(g.name)}>{g.name}</A>, g.state, g.minRequiredNumber, g.children.length, g.boundChildren.length,
        g.waitingForBindChildren.length, g.pendingChildren.length, g.message ?? "",
      ])}
    />
  );
}

function One({ gang: g }: { gang: Gang }) {
  const plan = g.lastPlan;
  return (
    <>
      {g.reason && (
        <div class="cause">
          <p class="code">{g.reason}</p>
          <p>{g.message}</p>
          {g.rootCausePod && <p>{t("blockedBy")} <PodLink pod={g.rootCausePod} /></p>}
        </div>
      )}
      <Facts
        rows={[
          [t("state"), g.state + (g.degraded ? " (degraded)" : "")],
          [t("mustStart"), g.minRequiredNumber],
          [t("mode"), `${g.mode} · ${g.gangMatchPolicy}`],
          [t("rounds"), g.scheduleCycle],
          [t("lastPlan"), plan && `${plan.placed} / ${plan.needed} · ${age(plan.at)}`],
          [t("group"), g.gangGroup.length > 1 && (
            <ul class="inline">{g.gangGroup.map((other) => <li><A to={gangPath(other)}>{other}</A></li>)}</ul>
          )],
          [t("network"), g.network?.join("; ")],
        ]}
      />
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
