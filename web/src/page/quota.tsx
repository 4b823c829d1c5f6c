import type { List, Quota } from "../view";
import { go, query, withQuery } from "../store";
import { t } from "../text";
import { A, Command, Figure, number, parts, sum, Topic } from "../ui";

export const quotaTopics = () => ["quotas"];

export const quotaPath = (name: string) => "/quota/" + encodeURIComponent(name);

// What quotas may use, use, lend and borrow, of one resource.
export function QuotaPage() {
  const name = parts()[1] ?? "";
  return (
    <>
      <h1>{name || t("quotas")}</h1>
      <Topic<List<Quota>> of="quotas">{(list) => <Quotas quotas={list.items} name={name} />}</Topic>
      <Command words={name ? ["tenon", "quota", name] : ["tenon", "quota", "--rounds"]} />
    </>
  );
}

// inOrder lists quotas below their parents, with their depth.
function inOrder(quotas: Quota[]): [Quota, number][] {
  const names = new Set(quotas.map((q) => q.name));
  const below = (parent: string | undefined, depth: number): [Quota, number][] =>
    quotas
      .filter((q) => (parent === undefined ? !names.has(q.parentName) || q.parentName === q.name : q.parentName === parent && q.name !== parent))
      .flatMap((q): [Quota, number][] => [[q, depth], ...below(q.name, depth + 1)]);
  return below(undefined, 0);
}

function Quotas({ quotas, name }: { quotas: Quota[]; name: string }) {
  const limited = quotas.filter((q) => Object.keys(q.max).length);
  if (!limited.length) {
    return <p class="quiet">{t("noQuota")}</p>;
  }
  // What quotas below the tops of trees divide comes first.
  const resources = [...new Set([...limited.filter((q) => q.parentName), ...limited].flatMap((q) => Object.keys(q.max)))];
  const named = limited.find((q) => q.name === name);
  const resource = resources.includes(query("resource")) ? query("resource") : resources[0];
  const shown = inOrder(limited.filter((q) => resource in q.max));
  const parent = named && limited.some((q) => q.parentName === named.name) ? named.name : named?.parentName;
  const divided = [...new Set(shown.map(([q]) => q.parentName))].filter(
    (p) => p && (!parent || p === parent) && limited.some((q) => q.parentName === p && q.trace?.[resource]),
  );
  return (
    <>
      <p class="form">
        <label>
          {t("resource")}{" "}
          <select value={resource} onChange={(e) => go(withQuery({ resource: e.currentTarget.value, round: "" }), true)}>
            {resources.map((r) => <option value={r}>{r}</option>)}
          </select>
        </label>
        {name && <A to="/quota">{t("allQuotas")}</A>}
      </p>
      {name && !named && <p class="problem">{t("noSuchQuota", name)}</p>}
      {limited.flatMap((q) => (q.problems ?? []).map((text) => <p class="problem">{q.name}: {text}</p>))}
      <Figure
        id="quotas"
        title={resource}
        picture={
          <>
            <ul class="quotas">
              {shown.map(([q, depth]) => <Row quota={q} depth={depth} resource={resource} among={limited} current={q.name === name} />)}
            </ul>
            <p class="legend quiet">
              <i class="key used" /> {t("used")} <i class="key runtime" /> {t("runtime")} <i class="key min" /> min{" "}
              <i class="key request" /> {t("request")}
            </p>
          </>
        }
        head={[t("quota"), "MIN", "MAX", "RUNTIME", "REQUEST", "USED", "LENT", "BORROWED"]}
        rows={shown.map(([q, depth]) => [
          <span style={{ paddingLeft: depth * 16 + "px" }}><A to={quotaPath(q.name)}>{q.name}</A></span>,
          ...[q.min, q.max, q.runtime, q.request, q.used, q.lent, q.borrowed].map((a) => a[resource] ?? "–"),
        ])}
      />
      {divided.map((p) => <Division parent={p} quotas={limited.filter((q) => q.parentName === p)} resource={resource} />)}
    </>
  );
}

interface RowProps {
  quota: Quota;
  depth: number;
  resource: string;
  among: Quota[];
  current: boolean;
}

function Row({ quota: q, depth, resource, among, current }: RowProps) {
  const amounts = { used: q.used, runtime: q.runtime, min: q.min, request: q.request };
  // The tops of trees differ too much for one scale.
  const siblings = depth === 0 ? [q] : among.filter((s) => s.parentName === q.parentName);
  const whole = Math.max(...siblings.flatMap((s) => [s.min, s.runtime, s.request, s.used].map((a) => number(a[resource]))));
  const at = (a: Record<string, string>) => (whole ? Math.min(100, (100 * number(a[resource])) / whole) : 0) + "%";
  const state = number(q.borrowed[resource]) > 0 ? t("borrowsOf", q.borrowed[resource]) : number(q.lent[resource]) > 0 ? t("lends", q.lent[resource]) : "";
  const label = Object.entries(amounts).map(([key, a]) => `${key} ${a[resource] ?? 0}`).join(", ");
  return (
    <li class={current ? "current" : ""}>
      <span style={{ paddingLeft: depth * 14 + "px" }}><A to={quotaPath(q.name)}>{q.name}</A></span>
      <span class="track" role="img" aria-label={label} title={label}>
        <span class="runtime" style={{ width: at(q.runtime) }} />
        <span class="used" style={{ width: at(q.used) }} />
        <span class="min" style={{ left: at(q.min) }} />
        <span class="request" style={{ left: at(q.request) }} />
      </span>
      <span>{t("usesOf", q.used[resource] ?? "0", q.runtime[resource] ?? "0")}</span>
      <span class="quiet">{state}</span>
    </li>
  );
}

// Division shows how siblings divide what their parent has, round by round.
function Division({ parent, quotas, resource }: { parent: string; quotas: Quota[]; resource: string }) {
  const divided = quotas.filter((q) => q.trace?.[resource]);
  const unit = resource === "cpu" ? 1e-3 : 1;
  const text = (n: number) => (resource === "cpu" ? n + "m" : String(n));
  const trace = (q: Quota) => q.trace![resource];
  const last = Math.max(...divided.map((q) => trace(q).rounds.length));
  const wanted = query("round");
  const round = wanted === "" ? last : Math.min(last, Number(wanted) || 0);
  const after = (q: Quota) => trace(q).rounds.slice(0, round).reduce((n, r) => n + r.got - r.returned, trace(q).base);
  const whole = Math.max(1, ...divided.map((q) => Math.max(trace(q).limited, number(q.runtime[resource]) / unit)));
  const pool = trace(divided[0]).pool;
  const left = round === last ? 0 : (divided.map((q) => trace(q).rounds[round]?.pool).find((n) => n !== undefined) ?? pool);
  return (
    <>
      <Figure
        id={"rounds-" + parent}
        title={t("divide", parent, text(trace(divided[0]).total))}
        picture={
          <>
            <p class="form">
              <label>
                {round === 0 ? t("bases") : t("afterRound", round, last)}{" "}
                <input type="range" min={0} max={last} value={round} onInput={(e) => go(withQuery({ round: e.currentTarget.value }), true)} />
              </label>
              <span class="quiet">{t("left", text(left))}</span>
            </p>
            <ul class="quotas">
              {divided.map((q) => {
                const n = after(q), share = trace(q).rounds[round - 1];
                return (
                  <li>
                    <span><A to={quotaPath(q.name)}>{q.name}</A></span>
                    <span class="track" role="img" aria-label={`${q.name} ${text(n)}`}>
                      <span class="used" style={{ width: (100 * n) / whole + "%" }} />
                      <span class="request" style={{ left: (100 * trace(q).limited) / whole + "%" }} />
                    </span>
                    <span>{text(n)}</span>
                    <span class="quiet">
                      {round > 0 && share ? `+${text(share.got)}${share.returned ? ` −${text(share.returned)}` : ""}` : ""}
                    </span>
                  </li>
                );
              })}
            </ul>
          </>
        }
        head={[t("quota"), t("weight"), "MIN", "REQUEST", "BASE", ...Array.from({ length: last }, (_, i) => t("roundN", i + 1)), "RUNTIME"]}
        rows={divided.map((q) => [
          q.name, q.sharedWeight[resource] ?? "–", q.min[resource] ?? "–", text(trace(q).limited), text(trace(q).base),
          ...Array.from({ length: last }, (_, i) => {
            const r = trace(q).rounds[i];
            return r ? `+${text(r.got)}${r.returned ? ` −${text(r.returned)}` : ""}` : "–";
          }),
          q.runtime[resource] ?? "–",
        ])}
      />
      <Lending parent={parent} quotas={quotas} resource={resource} />
    </>
  );
}

// Lending draws what lenders leave to the pool and borrowers take from it. Both sides have the same sum: the pool also
// has what is in no quota's min, and what no quota borrows is left in it.
function Lending({ parent, quotas, resource }: { parent: string; quotas: Quota[]; resource: string }) {
  const sides = [
    quotas.filter((q) => number(q.lent[resource]) > 0).map((q): [string, string] => [q.name, q.lent[resource]]),
    quotas.filter((q) => number(q.borrowed[resource]) > 0).map((q): [string, string] => [q.name, q.borrowed[resource]]),
  ];
  if (!sides[0].length || !sides[1].length) {
    return null;
  }
  const unit = resource === "cpu" ? 1e-3 : 1; // sums are exact in whole units
  const total = (side: [string, string][]) => sum(side, ([, n]) => Math.round(number(n) / unit));
  const amount = (n: number) => (resource === "cpu" ? n + "m" : String(n));
  const [lent, borrowed] = sides.map(total);
  if (lent < borrowed) {
    sides[0].push([t("noMin"), amount(borrowed - lent)]);
  } else if (lent > borrowed) {
    sides[1].push([t("isLeft"), amount(lent - borrowed)]);
  }
  const pool = amount(Math.max(lent, borrowed));
  const rows = Math.max(sides[0].length, sides[1].length);
  const height = 46 * rows, middle = height / 2;
  const most = Math.max(...sides.flat().map(([, n]) => number(n)));
  const y = (side: [string, string][], i: number) => (height * (i + 0.5)) / side.length;
  const arrow = ([name, n]: [string, string], i: number, side: number) => {
    const at = y(sides[side], i);
    const path = side === 0 ? `M170 ${at} C 230 ${at} 220 ${middle} 274 ${middle}` : `M366 ${middle} C 420 ${middle} 410 ${at} 462 ${at}`;
    return (
      <g>
        <path d={path} stroke-width={1.5 + (10 * number(n)) / most} marker-end="url(#tip)" />
        <text x={side === 0 ? 160 : 480} y={at + 4} text-anchor={side === 0 ? "end" : "start"}>{name} {n}</text>
      </g>
    );
  };
  return (
    <Figure
      id={"lending-" + parent}
      title={t("lending", parent)}
      picture={
        <svg class="lending" viewBox={`0 0 640 ${height}`} role="img"
          aria-label={[...sides[0].map(([name, n]) => `${name} ${t("lends", n)}`), ...sides[1].map(([name, n]) => `${name} ${t("borrowsOf", n)}`)].join(", ")}>
          <defs>
            <marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 0 L8 4 L0 8 z" />
            </marker>
          </defs>
          {sides.map((side, s) => side.map((q, i) => arrow(q, i, s)))}
          <rect x={282} y={middle - 16} width={78} height={32} rx={6} />
          <text x={321} y={middle + 4} text-anchor="middle">{t("sharedPool")} {pool}</text>
        </svg>
      }
      head={[t("quota"), "LENT", "BORROWED"]}
      rows={[...sides[0].map(([name, n]) => [name, n, "–"]), ...sides[1].map(([name, n]) => [name, "–", n])]}
    />
  );
}
