import type { List, PendingGroup, Pod } from "../view";
import type { ComponentChildren } from "preact";
import { namespace, pendingTopic, query, updates, wide, withQuery } from "../store";
import { causeText, t } from "../text";
import { A, age, Beside, Command, Figure, Head, More, Namespace, Parts, parts, sum, Topic } from "../ui";
import { Explanation } from "./explanation";

const chosen = () => query("pod");

export const pendingTopics = () => [pendingTopic(), ...(chosen() ? ["pod/" + chosen()] : [])];

// What pods wait for: a cause opens who waits for it, a pod its proof beside the list.
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
  const groups = (updates.value[pendingTopic()]?.answer as List<PendingGroup> | undefined)?.items;
  return (
    <>
      <Head title={groups ? t("waiting", sum(groups, (g) => g.count)) : t("pending")} sub={t("byCause")} guide="explain"
        commands={[["tenon", "explain", ...(namespace() ? ["-n", namespace()] : ["-A"])], ["tenon", "queue"]]}>
        <Namespace />
      </Head>
      <Topic<List<PendingGroup>> of={pendingTopic()}>{(list) => (
        <Beside answer={wide.value || !open(list.items) ? answer || (list.items.length > 0 && <p class="empty hint">{t("chooseCause")}</p>) : undefined}>
          <Groups groups={list.items} below={wide.value ? undefined : answer} />
        </Beside>
      )}</Topic>
    </>
  );
}

function Groups({ groups, below }: { groups: PendingGroup[]; below?: ComponentChildren }) {
  if (!groups.length) {
    return <p class="figure empty">● {t("nonePending")} <A to={"/whatif"}>{t("whatIf")}</A></p>;
  }
  const open = groups.find((g) => g.rootCause === query("cause"));
  return (
    <>
      <Figure
        id="causes"
        title={t("cause")}
        picture={
          <>
            <Parts whole={sum(groups, (g) => g.count)} parts={groups.map((g, i) => ({
              n: g.count, kind: "of-cause c" + (i % 8), text: `${causeText(g.rootCause)}: ${g.count}`, label: String(g.count), to: withQuery({ cause: g.rootCause, pod: g.example }),
            }))} />
            <ul class="causes cards-of">
              {groups.map((g, i) => (
                <li>
                  <A to={withQuery({ cause: g.rootCause, pod: g.example })} current={g === open} row>
                    <i class={"dot c" + (i % 8)} /> <span class="grow"><b>{causeText(g.rootCause)}</b> <span class="code quiet small">{g.rootCause}</span></span>
                    <span class="quiet small">{age(g.oldest)}</span> <b class="count">{g.count}</b>
                    <span class="message cut" title={g.message}>{g.message}</span>
                  </A>
                  {g === open && <Members of={g} />}
                  {g === open && below}
                </li>
              ))}
            </ul>
          </>
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

// ownerOf is what a pod is named after: its workload, or the pod itself.
const ownerOf = (pod: string) => pod.replace(/(-[a-z0-9]{6,10})?-([a-z0-9]{5}|\d+)$/, "-*");

// Members are the pods of a cause by owner, to choose one.
function Members({ of }: { of: PendingGroup }) {
  const owners = [...Map.groupBy(of.pods, ownerOf)].sort(([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1));
  const open = owners.find(([, pods]) => pods.includes(chosen()));
  return (
    <nav class="owners" aria-label={t("choose")}>
      <ul>
        {owners.slice(0, shownOwners).map(([owner, pods]) => (
          <li>
            <A to={withQuery({ pod: pods[0] })} current={pods === open?.[1]} row>
              <span class="code cut" title={owner}>{pods.length === 1 ? pods[0] : owner}</span> <span class="count">{pods.length}</span>
            </A>
            {pods === open?.[1] && pods.length > 1 && (
              <ul class="inline linked">
                {pods.slice(0, shown).map((p) => <li><A to={withQuery({ pod: p })} current={p === chosen()} title={p}>{p.slice(p.indexOf("/") + 1)}</A></li>)}
                <More of={pods.length} shown={shown} />
              </ul>
            )}
          </li>
        ))}
        <More of={owners.length} shown={shownOwners} />
      </ul>
    </nav>
  );
}

// shown is how many pods of an owner are listed, shownOwners how many owners of a cause.
const shown = 200;
const shownOwners = 60;

export function PodCommand({ pod }: { pod: string }) {
  const [namespace, name] = pod.split("/");
  return name ? <Command words={["tenon", "explain", "pod/" + name, "-n", namespace]} /> : null;
}

const podOfPath = () => parts().slice(1, 3).join("/");

export const podTopics = () => ["pod/" + podOfPath()];

// One pod.
export function PodPage() {
  const pod = podOfPath(), [namespace, name] = pod.split("/");
  return (
    <>
      <Head title={pod} mono guide="explain" commands={name ? [["tenon", "explain", "pod/" + name, "-n", namespace]] : []} />
      <section class="figure"><Topic<Pod> of={"pod/" + pod}>{(answer) => <Explanation pod={answer} />}</Topic></section>
    </>
  );
}
