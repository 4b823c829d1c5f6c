import "./style.css";
import { type ComponentChild, render } from "preact";
import { effect } from "@preact/signals";
import { language, link, now, place, read, signIn, stale, theme, topics } from "./store";
import { type Key, t } from "./text";
import { A, age, clock, duration, Guard, Icon, kept, parts } from "./ui";
import { nextLanguage, nextTheme, open, Palette, paletteTopics } from "./palette";
import { Overview, overviewTopics } from "./page/overview";
import { Fleet, fleetTopics } from "./page/fleet";
import { NodePage, nodeTopics } from "./page/node";
import { Decisions, decisionTopics } from "./page/decisions";
import { GPUs, gpuTopics } from "./page/gpus";
import { GangPage, gangTopics } from "./page/gangs";
import { QuotaPage, quotaTopics } from "./page/quota";
import { EvictionPage, evictionTopics } from "./page/evictions";
import { ReservationPage, reservationTopics } from "./page/reservations";
import { System, systemTopics } from "./page/system";
import { Time, timeTopics } from "./page/time";
import { WhatIf, whatIfTopics } from "./page/whatif";
import { Pending, pendingTopics, PodPage, podTopics } from "./page/pending";

interface Page {
  title: Key;
  topics: () => string[];
  draw: () => ComponentChild;
  menu?: 1 | 2; // its part of the menu
}

// pages are named by the first part of the path.
const pages: Record<string, Page> = {
  "": { title: "overview", topics: overviewTopics, draw: () => <Overview />, menu: 1 },
  pending: { title: "pending", topics: pendingTopics, draw: () => <Pending />, menu: 1 },
  pod: { title: "pod", topics: podTopics, draw: () => <PodPage /> },
  fleet: { title: "fleet", topics: fleetTopics, draw: () => <Fleet />, menu: 1 },
  node: { title: "node", topics: nodeTopics, draw: () => <NodePage /> },
  gpus: { title: "gpus", topics: gpuTopics, draw: () => <GPUs />, menu: 1 },
  quota: { title: "quotas", topics: quotaTopics, draw: () => <QuotaPage />, menu: 1 },
  gangs: { title: "gangs", topics: gangTopics, draw: () => <GangPage />, menu: 1 },
  time: { title: "time", topics: timeTopics, draw: () => <Time />, menu: 1 },
  whatif: { title: "whatIf", topics: whatIfTopics, draw: () => <WhatIf />, menu: 1 },
  decisions: { title: "decisions", topics: decisionTopics, draw: () => <Decisions />, menu: 2 },
  evictions: { title: "descheduling", topics: evictionTopics, draw: () => <EvictionPage />, menu: 2 },
  reservations: { title: "reservations", topics: reservationTopics, draw: () => <ReservationPage />, menu: 2 },
  system: { title: "system", topics: systemTopics, draw: () => <System />, menu: 2 },
};

const page = (): Page | undefined => (Object.hasOwn(pages, parts()[0]) ? pages[parts()[0]] : undefined);

effect(() => {
  topics.value = [...new Set([...(page()?.topics() ?? []), ...paletteTopics()])];
});
effect(() => {
  const found = page();
  document.title = [parts().slice(1).join("/"), found ? t(found.title) : "", "Tenon"].filter(Boolean).join(" · ");
});

// inHead are the pages whose heads a page without an own entry of the menu belongs to.
const inHead: Record<string, string> = { node: "fleet", pod: "pending" };

// Live says that the server answers, and how old its answer is.
function Live() {
  const at = read.value, live = link.value.state === "live" && !stale.value;
  return (
    <span class={"live" + (live ? "" : " off")} title={at && t("live", clock(at), age(at.toISOString()))}>
      {live ? "● " + t("liveNow") : "◐ " + t(link.value.state === "connecting" ? "connecting" : "old")}{" "}
      <span class="age" aria-hidden="true">{at && duration((now.value - at.getTime()) / 1000)}</span>
    </span>
  );
}

// Banner says why what the page shows is old. A change of it is announced.
function Banner() {
  const at = read.value;
  const { state, text } = link.value;
  const old = at && [clock(at), age(at.toISOString())] as const;
  const words =
    state === "lost" ? (old ? t("lost", ...old) : t("noData"))
    : state === "denied" ? (old ? t("deniedFrom", ...old) : "")
    : old && stale.value ? t("late", ...old) : "";
  const all = [words, state === "lost" || state === "denied" ? text : ""].filter(Boolean).join(" ");
  return <p class="banner" role="status">{all || null}</p>;
}

// SignIn asks for a token. The tabs of the console keep it until they are closed.
function SignIn() {
  const enter = (e: SubmitEvent) => {
    e.preventDefault();
    signIn(String(new FormData(e.currentTarget as HTMLFormElement).get("token")).trim());
  };
  return (
    <form class="figure form" onSubmit={enter}>
      <label>{t("token")} <input type="password" name="token" size={48} required autocomplete="off" /></label>
      <button type="submit" class="primary">{t("signIn")}</button>
      <span class="quiet">{t("tokenIs")}</span>
    </form>
  );
}

function App() {
  const found = page(), inMenu = pages[inHead[parts()[0]] ?? ""] ?? found;
  const current = Object.hasOwn(inHead, parts()[0]) ? inMenu : found;
  const menu = Object.entries(pages).filter(([, p]) => p.menu);
  const path = (name: string) => "/" + name + kept();
  const entry = ([name, p]: [string, Page]) => <A to={path(name)} current={p === current}>{t(p.title)}</A>;
  return (
    <>
      <a class="skip" href="#content">{t("skip")}</a>
      <header class="top">
        <A to="/" class="brand">Tenon</A>
        <nav aria-label={t("pages")}>
          {menu.filter(([, p]) => p.menu === 1).map(entry)}
          <span class="second" aria-hidden="true" />
          {menu.filter(([, p]) => p.menu === 2).map(entry)}
        </nav>
        <span class="settings">
          <button type="button" class="search" onClick={() => (open.value = true)} title={t("searchFor")}>
            <span>{t("search")}</span> <kbd>Ctrl K</kbd><b class="narrow">⌕</b>
          </button>
          <Live />
          <button type="button" class="icon" onClick={nextTheme} title={t("theme", t(theme.value))} aria-label={t("theme", t(theme.value))}>
            <Icon name={({ auto: "half", light: "sun", dark: "moon" } as const)[theme.value]} />
          </button>
          <button type="button" class="icon" lang={language.value === "en" ? "zh" : "en"} onClick={nextLanguage}>
            {language.value === "en" ? "中文" : "EN"}
          </button>
        </span>
      </header>
      <Banner />
      <main id="content" tabIndex={-1}>
        {link.value.state === "denied" && <SignIn />}
        <div class={stale.value ? "stale" : ""}>
          <Guard at={place.value.href}>{found ? found.draw() : <p>{t("notFound")}</p>}</Guard>
        </div>
      </main>
      <Palette pages={menu.map(([name, p]) => ({ name: t(p.title), to: path(name) }))} />
    </>
  );
}

render(<App />, document.getElementById("app")!);
