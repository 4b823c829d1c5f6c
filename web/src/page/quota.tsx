import { signal } from "@preact/signals";
import type { List, Quota } from "../view";
import { go, query, withQuery } from "../store";
import { t } from "../text";
import { A, amount, drawnRows, Figure, Head, More, number, parts, percent, sum, Topic } from "../ui";

export const quotaTopics = () => ["quotas"];

export const quotaPath = (name: string) => "/quota/" + encodeURIComponent(name);
const here = (name: string) => quotaPath(name) + (query("resource") ? "?" + new URLSearchParams({ resource: query("resource") }) : "");

// What quotas may use, use, lend and borrow, of one resource.
export function QuotaPage() {
  const name = parts()[1] ?? "";
  return (
    <>
      <Head title={name || t("quotas")} mono={!!name} guide="quota" commands={[name ? ["tenon", "quota", name] : ["tenon", "quota", "--rounds"]]}
        sub={name && <A to={here("").replace("/quota/", "/quota")}>{t("allQuotas")}</A>} />
      <Topic<List<Quota>> of="quotas">{(list) => <Quotas quotas={list.items} name={name} />}</Topic>
    </>
  );
}

// A quota with its depth below the top of its tree, and that top.
interface Placed {
  quota: Quota;
  depth: number;
  top: Quota;
  children: boolean;
}

// inOrder lists quotas below their parents.
function inOrder(quotas: Quota[]): Placed[] {
  const names = new Set(quotas.map((q) => q.name)), byParent = Map.groupBy(quotas, (q) => q.parentName);
  const below = (list: Quota[], depth: number, top?: Quota): Placed[] => list.flatMap((quota) => {
    const children = (byParent.get(quota.name) ?? []).filter((c) => c !== quota);
    return [{ quota, depth, top: top ?? quota, children: children.length > 0 }, ...below(children, depth + 1, top ?? quota)];
  });
  return below(quotas.filter((q) => !names.has(q.parentName) || q.parentName === q.name), 0);
}

// turned are the quotas that the user folded or unfolded; those below the second level are folded at first.
const turned = signal(new Set<string>());
const openDepth = 2;
const isOpen = (p: Placed) => p.depth < openDepth !== turned.value.has(p.quota.name);

function Quotas({ quotas, name }: { quotas: Quota[]; name: string }) {
  const limited = quotas.filter((q) => Object.keys(q.max).length);
  if (!limited.length) {
    return <p class="empty">{t("noQuota")}</p>;
  }
  // What quotas below the tops of trees divide comes first.
  const resources = [...new Set([...limited.filter((q) => q.parentName), ...limited].flatMap((q) => Object.keys(q.max)))];
  const named = limited.find((q) => q.name === name);
  const resource = resources.includes(query("resource")) ? query("resource") : resources[0];
  const all = inOrder(limited.filter((q) => resource in q.max));
  const closed = new Set<string>();
  const shown = all.filter((p) => {
    const hidden = closed.has(p.quota.parentName);
    if (hidden || !isOpen(p)) {
      closed.add(p.quota.name);
    }
    return !hidden;
  });
  // The division that is drawn: that of the named quota, else the one in which most is borrowed.
  const parents = [...new Set(all.map((p) => p.quota.parentName))].filter((p) => p && limited.some((q) => q.parentName === p && q.trace?.[resource]));
  const lent = (parent: string) => sum(limited.filter((q) => q.parentName === parent), (q) => number(q.borrowed[resource]));
  const own = named && (parents.includes(named.name) ? named.name : named.parentName);
  const parent = own || parents.sort((a, b) => lent(b) - lent(a))[0];
  const divided = limited.filter((q) => q.parentName === parent && q.trace?.[resource]);
  const unfold = () => (turned.value = new Set(shown.length < all.length ? all.filter((p) => p.depth >= openDepth).map((p) => p.quota.name) : []));
  return (
    <>
      {name && !named && <p class="problem">{t("noSuchQuota", name)}</p>}
      {limited.flatMap((q) => (q.problems ?? []).map((text) => <p class="problem">{q.name}: {text}</p>))}
      <p class="form tools">
        <label>
          {t("resource")}{" "}
          <select value={resource} onChange={(e) => go(withQuery({ resource: e.currentTarget.value, round: "" }), true)}>
            {resources.map((r) => <option value={r}>{r}</option>)}
          </select>
        </label>
        <span class="quiet">{t("quotasShown", shown.length, all.length)}</span>
        {all.some((p) => p.depth >= openDepth && p.children) && <button type="button" onClick={unfold}>{shown.length < all.length ? t("unfoldAll") : t("foldAll")}</button>}
      </p>
      <div class="grid">
        <div class="s7">
          <Figure
            id="quotas"
            title={t("usedRuntime")}
            sub={`${resource} · ${t("oneScale")}`}
            picture={
              <>
                <ul class="tree">
                  {shown.slice(0, drawnRows).map((p) => <Row placed={p} resource={resource} whole={wholeOf(all, p.top, resource)} current={p.quota.name === name} />)}
                  <More of={shown.length} shown={drawnRows} to={withQuery({ table: "quotas" })} />
                </ul>
                <ul class="keys">
                  <li><i class="in-lsr" /> {t("withinMin")}</li><li><i class="in-lse" /> {t("withBorrowed")}</li>
                  <li><i class="key-runtime" /> {t("runtime")}</li><li><i class="key-min" /> min</li><li><i class="key-request" /> {t("request")}</li>
                </ul>
              </>
            }
            head={[t("quota"), "MIN", "MAX", "RUNTIME", "REQUEST", "USED", "LENT", "BORROWED"]}
            rows={() => all.map(({ quota: q, depth }) => [
              <span style={{ paddingLeft: depth * 16 + "px" }}><A to={here(q.name)}>{q.name}</A></span>,
              ...[q.min, q.max, q.runtime, q.request, q.used, q.lent, q.borrowed].map((a) => (a[resource] ? <span title={a[resource]}>{amount(resource, a[resource])}</span> : "–")),
            ])}
          />
        </div>
        <div class="s5"><Lending parent={parent ?? ""} quotas={divided} resource={resource} /></div>
        {divided.length > 0 && <div class={all.length >= manyQuotas ? "s6" : "s12"}><Division parent={parent} quotas={divided} resource={resource} /></div>}
        {all.length >= manyQuotas && <div class="s6"><Icicle all={all} resource={resource} /></div>}
      </div>
    </>
  );
}

const manyQuotas = 8;

// wholeOf is the scale of a tree: its largest amount that is not the absence of a limit.
const wholeOf = (all: Placed[], top: Quota, resource: string) =>
  Math.max(...all.filter((p) => p.top === top).flatMap(({ quota: q }) => [q.min, q.runtime, q.request, q.used].map((a) => number(a[resource]))));

interface RowProps {
  placed: Placed;
  resource: string;
  whole: number;
  current: boolean;
}

function Row({ placed: p, resource, whole, current }: RowProps) {
  const { quota: q, depth } = p, of = (a: Record<string, string>) => number(a[resource]);
  const at = (n: number) => (whole ? Math.min(100, (100 * n) / whole) : 0) + "%";
  const [used, least] = [of(q.used), of(q.min)], text = (a: Record<string, string>) => amount(resource, a[resource] ?? "0");
  const state = of(q.borrowed) > 0 ? t("borrowsOf", text(q.borrowed)) : of(q.lent) > 0 ? t("lends", text(q.lent)) : "";
  const label = [`${t("used")} ${text(q.used)}`, `${t("runtime")} ${text(q.runtime)}`, `min ${text(q.min)}`, `max ${text(q.max)}`, `${t("request")} ${text(q.request)}`, state].filter(Boolean).join(", ");
  const turn = () => {
    const next = new Set(turned.value);
    next.delete(q.name) || next.add(q.name);
    turned.value = next;
  };
  return (
    <li class={current ? "current" : ""}>
      <span class="cut" title={q.name} style={{ paddingLeft: depth * 14 + "px" }}>
        {p.children
          ? <button type="button" class="fold" aria-expanded={isOpen(p)} aria-label={`${q.name}: ${t(isOpen(p) ? "foldOne" : "unfoldOne")}`} onClick={turn}>{isOpen(p) ? "▾" : "▸"}</button>
          : <span class="fold" />}
        <A to={here(q.name)} title={q.name} class="code">{q.name}</A>
      </span>
      <span class="track" role="img" aria-label={`${q.name}: ${label}`} title={label}>
        <span class="limit" style={{ width: at(of(q.max)) }} />
        <span class="runtime" style={{ width: at(of(q.runtime)) }} />
        <span class="used" style={{ width: at(Math.min(used, least)) }} />
        {used > least && <span class="used over" style={{ left: at(least), width: at(used - least) }} />}
        <span class="min" style={{ left: at(least) }} />
        <span class="request" style={{ left: at(of(q.request)) }} />
      </span>
      <span class="amounts"><b>{text(q.used)}</b> <span class="quiet">/ {text(q.runtime)}</span></span>
      <span class={"small state " + (of(q.borrowed) > 0 ? "borrows" : "quiet")} title={state}>{of(q.borrowed) > 0 ? "+" + text(q.borrowed) : of(q.lent) > 0 ? "−" + text(q.lent) : ""}</span>
    </li>
  );
}

// Division shows how siblings divide what their parent has, round by round.
function Division({ parent, quotas, resource }: { parent: string; quotas: Quota[]; resource: string }) {
  const divided = quotas.filter((q) => q.trace?.[resource]);
  const unit = resource === "cpu" ? 1e-3 : 1;
  const text = (n: number) => amount(resource, n * unit);
  const trace = (q: Quota) => q.trace![resource];
  const last = Math.max(...divided.map((q) => trace(q).rounds.length));
  const wanted = query("round");
  const round = wanted === "" ? last : Math.min(last, Number(wanted) || 0);
  const after = (q: Quota) => trace(q).rounds.slice(0, round).reduce((n, r) => n + r.got - r.returned, trace(q).base);
  const whole = Math.max(1, ...divided.map((q) => Math.max(trace(q).limited, number(q.runtime[resource]) / unit)));
  const pool = trace(divided[0]).pool;
  const left = round === last ? 0 : (divided.map((q) => trace(q).rounds[round]?.pool).find((n) => n !== undefined) ?? pool);
  return (
      <Figure
        id="rounds"
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
            <ul class="rounds">
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
  );
}

// Lending draws what lenders leave to the pool and what borrowers take from it. Both sides have the same sum: the pool
// also has what is in no quota's min, and what no quota borrows is left in it. The pool keeps no account of who lent to
// whom: each borrower is drawn with its part of each lender.
function Lending({ parent, quotas, resource }: { parent: string; quotas: Quota[]; resource: string }) {
  const unit = resource === "cpu" ? 1e-3 : 1; // sums are exact in whole units
  type Side = { name: string; n: number; to?: string }[];
  const side = (of: (q: Quota) => string | undefined): Side =>
    quotas.map((q) => ({ name: q.name, n: Math.round(number(of(q)) / unit), to: here(q.name) })).filter(({ n }) => n > 0).sort((a, b) => b.n - a.n);
  const [left, right] = [side((q) => q.lent[resource]), side((q) => q.borrowed[resource])];
  const lent = sum(left, ({ n }) => n), borrowed = sum(right, ({ n }) => n), all = Math.max(lent, borrowed);
  if (lent < borrowed) {
    left.push({ name: t("noMin"), n: borrowed - lent });
  } else if (lent > borrowed) {
    right.push({ name: t("isLeft"), n: lent - borrowed });
  }
  const text = (n: number) => amount(resource, n * unit);
  const gap = 14, height = Math.max(180, 34 * Math.max(left.length, right.length)), tall = (list: Side) => height - gap * (list.length - 1);
  const stack = (list: Side) => {
    let y = 0;
    return list.map((e) => {
      const size = Math.max(2, (tall(list) * e.n) / all), at = y;
      y += size + gap;
      return { ...e, y: at, size };
    });
  };
  const [from, to] = [stack(left), stack(right)];
  const bands = from.flatMap((l, i) => to.map((r, j) => {
    const part = (l.n * r.n) / all, y1 = l.y + (l.size * sum(right.slice(0, j), (e) => e.n)) / all, y2 = r.y + (r.size * sum(left.slice(0, i), (e) => e.n)) / all;
    const h1 = (l.size * r.n) / all, h2 = (r.size * l.n) / all;
    return { l, r, part, d: `M164 ${y1} C 290 ${y1} 310 ${y2} 436 ${y2} V${y2 + h2} C 310 ${y2 + h2} 290 ${y1 + h1} 164 ${y1 + h1} z` };
  }));
  const short = (name: string) => (name.length > 19 ? name.slice(0, 18) + "…" : name);
  const end = (e: (typeof from)[0], sign: string, x: number, anchor: "end" | "start") => (
    <g>
      <title>{`${e.name} ${sign}${text(e.n)}`}</title>
      <rect class={sign === "−" ? "lender" : "borrower"} x={x} y={e.y} width={8} height={e.size} />
      <text x={anchor === "end" ? x - 8 : x + 16} y={e.y + e.size / 2 + (e.size > 26 ? -3 : 4)} text-anchor={anchor}>{short(e.name)} {e.size > 26 ? "" : sign + text(e.n)}</text>
      {e.size > 26 && <text class="n" x={anchor === "end" ? x - 8 : x + 16} y={e.y + e.size / 2 + 13} text-anchor={anchor}>{sign}{text(e.n)}</text>}
    </g>
  );
  return (
    <Figure
      id="lending"
      title={t("lending", parent)}
      sub={all > 0 && t("lendingSum", text(all), resource)}
      picture={all === 0 ? <p class="empty">{t("noLending")}</p> : (
        <>
          <svg class="lending" viewBox={`0 0 600 ${height + 2}`} role="img"
            aria-label={[...left.map((e) => `${e.name} ${t("lends", text(e.n))}`), ...right.map((e) => `${e.name} ${t("borrowsOf", text(e.n))}`)].join(", ")}>
            {bands.map((b) => <path d={b.d}><title>{`${b.l.name} → ${b.r.name}: ${text(b.part)}`}</title></path>)}
            {from.map((e) => end(e, "−", 156, "end"))}
            {to.map((e) => end(e, "+", 436, "start"))}
          </svg>
          <p class="quiet small">{t("proportional")}</p>
        </>
      )}
      head={[t("quota"), "LENT", "BORROWED"]}
      rows={[...left.map((e) => [e.name, text(e.n), "–"]), ...right.map((e) => [e.name, "–", text(e.n)])]}
    />
  );
}

// Icicle draws the trees: each quota below its parent, as wide as its runtime, filled as far as it is used.
function Icicle({ all, resource }: { all: Placed[]; resource: string }) {
  const rows: { p: Placed; x: number; w: number }[] = [];
  const size = (q: Quota) => Math.max(number(q.runtime[resource]), number(q.min[resource]), 1e-9);
  const place = (list: Placed[], x: number, w: number) => {
    const whole = sum(list, (p) => size(p.quota));
    for (const p of list) {
      const own = (w * size(p.quota)) / whole;
      rows.push({ p, x, w: own });
      place(all.filter((c) => c.depth === p.depth + 1 && c.quota.parentName === p.quota.name && c.top === p.top), x, own);
      x += own;
    }
  };
  const tops = all.filter((p) => p.depth === 0);
  place([tops.reduce((a, b) => (all.filter((p) => p.top === b.top).length > all.filter((p) => p.top === a.top).length ? b : a))], 0, 100);
  const depth = Math.max(...rows.map((r) => r.p.depth));
  const use = (q: Quota) => number(q.used[resource]) / (number(q.runtime[resource]) || NaN);
  return (
    <Figure
      id="icicle"
      title={t("icicle")}
      sub={t("icicleIs")}
      picture={
        <div class="icicle" style={{ height: 44 * (depth + 1) + "px" }}>
          {rows.map(({ p, x, w }) => {
            const q = p.quota, label = `${q.name}: ${amount(resource, q.used[resource] ?? "0")} / ${amount(resource, q.runtime[resource] ?? "0")} ${resource}`;
            return (
              <A to={here(q.name)} title={label} label={w > 7 ? undefined : label} class={number(q.borrowed[resource]) > 0 ? "borrows" : ""} style={{ left: x + "%", width: `calc(${w}% - 2px)`, top: 44 * p.depth + "px" }}>
                <i style={{ width: Math.min(100, 100 * use(q) || 0) + "%" }} />
                {w > 7 && <span>{q.name} {w > 10 && <span class="small">{percent(use(q))}</span>}</span>}
              </A>
            );
          })}
        </div>
      }
      head={[t("quota"), t("used"), t("runtime")]}
      rows={() => rows.map(({ p: { quota: q } }) => [q.name, amount(resource, q.used[resource] ?? "0"), amount(resource, q.runtime[resource] ?? "0")])}
    />
  );
}
