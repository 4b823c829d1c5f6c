import type { List, PendingGroup, Pod } from "../view";
import type { ComponentChildren } from "preact";
import { namespace, pendingTopic, query, wide, withQuery } from "../store";
import { t } from "../text";
import { A, age, Bar, Beside, Command, Figure, More, Namespace, parts, Topic } from "../ui";
import { Explanation } from "./explanation";

const chosen = () => query("pod");

export const pendingTopics = () => [pendingTopic(), ...(chosen() ? ["pod/" + chosen()] : [])];

// The list of causes; a cause opens its pods, a pod its explanation.
export function Pending() {
  const pod = chosen();
  const answer = pod && (
    <section class="detail">
      <Topic<Pod> of={"pod/" + pod}>{(answer) => <Explanation pod={answer} />}</Topic>
      <PodCommand pod={pod} />
    </section>
  );
  const asTable = query("table").split(" ").includes("causes");
  const open = (groups: PendingGroup[]) => !asTable && groups.some((g) => g.rootCause === query("cause"));
  return (
    <>
      <h1>{t("pending")}</h1>
      <Namespace />
      <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => (
        <Beside answer={wide.value || !open(list.items) ? answer : undefined}>
          <Groups groups={list.items} below={wide.value ? undefined : answer} />
        </Beside>
      )}</Topic>
      <Command words={["tenon", "explain", ...(namespace() ? ["-n", namespace()] : ["-A"])]} />
    </>
  );
}

function Groups({ groups, below }: { groups: PendingGroup[]; below?: ComponentChildren }) {
  if (!groups.length) {
    return <p class="quiet">{t("nonePending")}</p>;
  }
  const most = Math.max(...groups.map((g) => g.count));
  const open = groups.find((g) => g.rootCause === query("cause"));
  return (
    <>
      <Figure
        id="causes"
        title={t("cause")}
        picture={
          <ul class="causes">
            {groups.map((g) => (
              <li>
                <A to={withQuery({ cause: g.rootCause, pod: g.example })} current={g === open}>
                  <span class="code">{g.rootCause}</span>
                  <Bar part={g.count} whole={most} label={`${g.rootCause}: ${g.count}`} kind={"class-" + g.class} />
                  <span class="count">{g.count}</span>
                  <span class="quiet">{age(g.oldest)}</span>
                  <span class="message">{g.message}</span>
                </A>
                {g === open && <Members of={g} />}
                {g === open && below}
              </li>
            ))}
          </ul>
        }
        head={[t("cause"), t("class"), t("pods"), t("oldest"), t("pod"), t("says")]}
        rows={groups.map((g) => [
          <A to={withQuery({ cause: g.rootCause, pod: g.example })}>{g.rootCause}</A>, g.class, g.count, age(g.oldest),
          g.example, g.message,
        ])}
      />
      {open && query("table").split(" ").includes("causes") && <Members of={open} />}
    </>
  );
}

// Members are the pods of a cause, to choose one.
function Members({ of }: { of: PendingGroup }) {
  return (
    <nav class="linked" aria-label={t("choose")}>
      <ul class="inline">
        {of.pods.slice(0, shown).map((p) => (
          <li><A to={withQuery({ pod: p })} current={p === chosen()}>{p}</A></li>
        ))}
        <More of={of.pods.length} shown={shown} />
      </ul>
    </nav>
  );
}

// shown is how many pods of a cause are listed.
const shown = 200;

export function PodCommand({ pod }: { pod: string }) {
  const [namespace, name] = pod.split("/");
  return name ? <Command words={["tenon", "explain", "pod/" + name, "-n", namespace]} /> : null;
}

const podOfPath = () => parts().slice(1, 3).join("/");

export const podTopics = () => ["pod/" + podOfPath()];

// One pod.
export function PodPage() {
  const pod = podOfPath();
  return (
    <>
      <h1>{pod}</h1>
      <Topic<Pod> of={"pod/" + pod}>{(answer) => <Explanation pod={answer} />}</Topic>
      <PodCommand pod={pod} />
    </>
  );
}
