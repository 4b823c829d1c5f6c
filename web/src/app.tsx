import "./style.css";
import { type ComponentChild, render } from "preact";
import { effect } from "@preact/signals";
import { language, link, place, read, signIn, stale, theme, topics } from "./store";
import { type Key, t } from "./text";
import { A, age, clock, Guard, kept, parts } from "./ui";
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
import { WhatIf, whatIfTopics } from "./page/whatif";
import { Pending, pendingTopics, PodPage, podTopics } from "./page/pending";

interface Page {
  title: Key;
  topics: () => string[];
  draw: () => ComponentChild;
  inMenu: boolean;
}

// pages are named by the first part of the path.
const pages: Record<string, Page> = {
  "": { title: "overview", topics: overviewTopics, draw: () => <Overview />, inMenu: true },
  pending: { title: "pending", topics: pendingTopics, draw: () => <Pending />, inMenu: true },
  pod: { title: "pod", topics: podTopics, draw: () => <PodPage />, inMenu: false },
  fleet: { title: "fleet", topics: fleetTopics, draw: () => <Fleet />, inMenu: true },
  node: { title: "node", topics: nodeTopics, draw: () => <NodePage />, inMenu: false },
  gpus: { title: "gpus", topics: gpuTopics, draw: () => <GPUs />, inMenu: true },
  quota: { title: "quotas", topics: quotaTopics, draw: () => <QuotaPage />, inMenu: true },
  gangs: { title: "gangs", topics: gangTopics, draw: () => <GangPage />, inMenu: true },
  decisions: { title: "decisions", topics: decisionTopics, draw: () => <Decisions />, inMenu: true },
  evictions: { title: "descheduling", topics: evictionTopics, draw: () => <EvictionPage />, inMenu: true },
  reservations: { title: "reservations", topics: reservationTopics, draw: () => <ReservationPage />, inMenu: true },
  system: { title: "system", topics: systemTopics, draw: () => <System />, inMenu: true },
  whatif: { title: "whatIf", topics: whatIfTopics, draw: () => <WhatIf />, inMenu: true },
};

const page = (): Page | undefined => (Object.hasOwn(pages, parts()[0]) ? pages[parts()[0]] : undefined);

effect(() => {
  topics.value = page()?.topics() ?? [];
});
effect(() => {
  const found = page();
  document.title = [parts().slice(1).join("/"), found ? t(found.title) : "", "Tenon"].filter(Boolean).join(" · ");
});

function Status() {
  const at = read.value;
  const { state, text } = link.value;
  const old = at && [clock(at), age(at.toISOString())] as const;
  const words =
    state === "lost" ? (old ? t("lost", ...old) : t("noData"))
    : state === "denied" ? (old ? t("deniedFrom", ...old) : "")
    : old && stale.value ? t("late", ...old)
    : state === "live" && old ? t("live", ...old)
    : t("connecting");
  return (
    <p class={"status " + (state === "live" && stale.value ? "lost" : state)} role="status">
      {words} {state !== "live" && text}
    </p>
  );
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

const themes = ["auto", "light", "dark"] as const;

function App() {
  const found = page();
  const nextTheme = () => (theme.value = themes[(themes.indexOf(theme.value) + 1) % themes.length]);
  return (
    <>
      <a class="skip" href="#content">{t("skip")}</a>
      <header>
        <A to="/" class="brand">Tenon</A>
        <nav aria-label={t("pages")}>
          {Object.entries(pages).filter(([, p]) => p.inMenu).map(([path, p]) => (
            <A to={"/" + path + kept()} current={p === found}>{t(p.title)}</A>
          ))}
        </nav>
        <span class="settings">
          <button type="button" onClick={nextTheme}>{t("theme", t(theme.value))}</button>
          <button type="button" lang={language.value === "en" ? "zh" : "en"}
            onClick={() => (language.value = language.value === "en" ? "zh" : "en")}>
            {language.value === "en" ? "中文" : "English"}
          </button>
        </span>
      </header>
      <Status />
      <main id="content" tabIndex={-1}>
        {link.value.state === "denied" && <SignIn />}
        <div class={stale.value ? "stale" : ""}>
          <Guard at={place.value.href}>{found ? found.draw() : <p>{t("notFound")}</p>}</Guard>
        </div>
      </main>
    </>
  );
}

render(<App />, document.getElementById("app")!);
