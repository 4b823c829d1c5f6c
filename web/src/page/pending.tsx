import type { List, PendingGroup, Pod } from "../view";
import { namespace, pendingTopic, query, withQuery } from "../store";
import { t } from "../text";
import { A, age, Bar, Command, Figure, Namespace, parts, Topic } from "../ui";
import { Explanation } from "./explanation";

const chosen = () => query("pod");

export const pendingTopics = () => [pendingTopic(), ...(chosen() ? ["pod/" + chosen()] : [])];

// The list of causes; a cause opens its pods, a pod its explanation.
export function Pending() {
  const pod = chosen();
  return (
    <>
      <h1>{t("pending")}</h1>
      <Namespace />
      <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => <Groups groups={list.items} />}</Topic>
      {pod && (
        <section class="detail">
          <Topic<Pod> of={"pod/" + pod}>{(answer) => <Explanation pod={answer} />}</Topic>
          <PodCommand pod={pod} />
        </section>
      )}
      <Command words={["tenon", "explain", ...(namespace() ? ["-n", namespace()] : ["-A"])]} />
    </>
  );
}

function Groups({ groups }: { groups: PendingGroup[] }) {
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
      {open && (
        <nav aria-label={t("choose")}>
          <h2>{open.rootCause}: {t("choose")}</h2>
          <ul class="inline">
            {open.pods.slice(0, shown).map((p) => (
              <li><A to={withQuery({ pod: p })} current={p === chosen()}>{p}</A></li>
            ))}
            {open.pods.length > shown && <li class="quiet">{t("more", open.pods.length - shown)}</li>}
          </ul>
        </nav>
      )}
    </>
  );
}

// shown is how many pods of a cause are listed.
const shown = 200;

export function PodCommand({ pod }: { pod: string }) {
  const [namespace, name] = pod.split("/");
  return <Command words={["tenon", "explain", "pod/" + name, "-n", namespace]} />;
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
