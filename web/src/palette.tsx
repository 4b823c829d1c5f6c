// The command palette: Ctrl-K or / finds pods, nodes, quotas, gangs, pages and commands by name.
import { effect, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Decision, Gang, List, Load, PendingGroup, Quota } from "./view";
import { go, language, pendingTopic, theme, updates } from "./store";
import { type Key, t } from "./text";
import { amount, nodePath, number, percent, podPath } from "./ui";
import { gangPath } from "./page/gangs";
import { quotaPath } from "./page/quota";

export const open = signal(false);
const typed = signal("");
const chosen = signal(0);
effect(() => {
  typed.value;
  chosen.value = 0;
});

export const paletteTopics = () => (open.value ? [pendingTopic(), "nodes", "quotas", "gangs", "decisions"] : []);

interface Entry {
  name: string;
  says?: string;
  to?: string;
  copies?: string;
}

const items = <T,>(topic: string) => (updates.value[topic]?.answer as List<T> | undefined)?.items ?? [];

// rank is how well a name matches what was typed: the prefix of it or of a part of it, a substring, or its letters in order; 0 is none.
export function rank(name: string, typed: string): number {
  const n = name.toLowerCase(), w = typed.toLowerCase().trim();
  const at = n.indexOf(w);
  if (at === 0 || (at > 0 && "/-. ".includes(n[at - 1]))) {
    return 4 - at / 1000;
  }
  if (at > 0) {
    return 2 - at / 1000;
  }
  let i = 0;
  for (const c of n) {
    i += c === w[i] ? 1 : 0;
  }
  return i === w.length && w.length > 2 ? 1 / n.length : 0;
}

function entries(pages: Entry[]): [Key, Entry[]][] {
  const waiting = items<PendingGroup>(pendingTopic()).flatMap((g) => g.pods.map((p) => [p, g.rootCause] as const));
  const placed = items<Decision>("decisions").map((d) => [d.pod, d.node] as const);
  const pods = [...new Map([...placed, ...waiting])];
  const name = typed.value.trim();
  const words = name && pods.map(([p]) => p).filter((p) => rank(p, name)).sort((a, b) => rank(b, name) - rank(a, name))[0];
  return [
    ["pods", pods.map(([p, says]) => ({ name: p, says, to: podPath(p) }))],
    ["nodes", items<Load>("nodes").map((n) => ({
      name: n.node, says: n.health?.findings?.[0]?.text ?? percent(number(n.requested) / number(n.allocatable)) + " CPU", to: nodePath(n.node),
    }))],
    ["quotas", items<Quota>("quotas").filter((q) => Object.keys(q.max).length).map((q) => ({
      name: q.name, says: `${amount("cpu", q.used.cpu ?? "0")} / ${amount("cpu", q.runtime.cpu ?? "0")} CPU`, to: quotaPath(q.name),
    }))],
    ["gangs", items<Gang>("gangs").map((g) => ({ name: g.name, says: `${g.boundChildren.length} / ${g.minRequiredNumber}`, to: gangPath(g.name) }))],
    ["pages", pages],
    ["commands", [
      ...(words ? [`tenon explain pod/${words.split("/")[1]} -n ${words.split("/")[0]}`] : []),
      "tenon status", "tenon top", "tenon top gpu", "tenon explain -A", "tenon quota --rounds", "tenon gang -A", "tenon evictions --past", "tenon sysdump",
    ].map((c) => ({ name: c, says: t("copy"), copies: c }))],
  ];
}

const mostShown = 8;

export function Palette({ pages }: { pages: Entry[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    open.value ? dialog.current?.showModal() : dialog.current?.close();
  }, [open.value]);
  const groups = !open.value ? [] : entries(pages).map(([title, all]) => {
    const found = all.map((e) => [rank(e.name, typed.value), e] as const).filter(([n, e]) => n > 0 || e.copies?.includes(" pod/"));
    return [title, found.sort(([a], [b]) => b - a).slice(0, mostShown).map(([, e]) => e)] as const;
  }).filter(([, found]) => found.length);
  const all = groups.flatMap(([, found]) => found), at = Math.min(chosen.value, all.length - 1);
  const take = (e: Entry | undefined) => {
    if (e?.to) {
      go(e.to);
    } else if (e?.copies) {
      navigator.clipboard.writeText(e.copies);
    }
    open.value = false;
  };
  const press = (e: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step && all.length) {
      chosen.value = (at + step + all.length) % all.length;
      dialog.current?.querySelector(`#found-${chosen.value}`)?.scrollIntoView({ block: "nearest" });
      e.preventDefault();
    } else if (e.key === "Enter") {
      take(all[at]);
      e.preventDefault();
    }
  };
  return (
    <dialog class="palette" ref={dialog} aria-label={t("search")} onClose={() => (open.value = false)} onKeyDown={press}
      onClick={(e) => e.target === dialog.current && (open.value = false)}>
      {open.value && <>
      <input type="text" placeholder={t("searchFor")} aria-label={t("searchFor")} role="combobox" aria-expanded="true" aria-controls="found"
        aria-activedescendant={at >= 0 ? "found-" + at : undefined} value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
      <div id="found" role="listbox" aria-label={t("search")} tabIndex={-1}>
        {groups.map(([title, found]) => (
          <div role="group" aria-label={t(title)}>
            <p class="quiet small" aria-hidden="true">{t(title)}</p>
            {found.map((e) => {
              const i = all.indexOf(e);
              return (
                <div role="option" id={"found-" + i} aria-selected={i === at} class="found" onClick={() => take(e)} onMouseMove={() => (chosen.value = i)}>
                  <span class="code cut" title={e.name}>{e.name}</span> <span class="quiet cut">{e.says}</span>
                </div>
              );
            })}
          </div>
        ))}
      </div>
      {!all.length && <p class="empty">{t("foundNothing")}</p>}
      <p class="quiet small foot"><kbd>↑</kbd> <kbd>↓</kbd> {t("chooseKey")} · <kbd>↵</kbd> {t("openKey")} · <kbd>Esc</kbd></p>
      </>}
    </dialog>
  );
}

// Keys that hold on each page: g and the first letter of a page, / and Ctrl-K, t and l.
const places: Record<string, string> = { o: "/", p: "/pending", f: "/fleet", u: "/gpus", q: "/quota", g: "/gangs", t: "/time", d: "/decisions", w: "/whatif", s: "/system" };
let before = "";
addEventListener("keydown", (e) => {
  const writing = (e.target as Element).closest?.("input, textarea, select, dialog");
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
    open.value = !open.peek();
    e.preventDefault();
  } else if (!writing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    if (before === "g" && Object.hasOwn(places, e.key)) {
      go(places[e.key]);
    } else if (e.key === "/") {
      open.value = true;
      e.preventDefault();
    } else if (e.key === "t") {
      nextTheme();
    } else if (e.key === "l") {
      nextLanguage();
    } else if (e.key === "j" || e.key === "k") {
      const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")], i = rows.indexOf(document.activeElement as HTMLElement);
      rows[Math.max(0, Math.min(rows.length - 1, i + (e.key === "j" ? 1 : -1)))]?.focus();
    }
  }
  before = before === "g" ? "" : e.key;
});

const themes = ["auto", "light", "dark"] as const;
export const nextTheme = () => (theme.value = themes[(themes.indexOf(theme.value) + 1) % themes.length]);
export const nextLanguage = () => (language.value = language.value === "en" ? "zh" : "en");
