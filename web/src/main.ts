// The page: its head, its views, and where its answers come from.

import { App, languageName, pairOf } from "./app";
import { compareView } from "./compare";
import { choice, h, isModified } from "./dom";
import { gridView } from "./grid";
import { Carried, Server, type Origin } from "./origin";
import { searchView } from "./search";
import { sentenceBar } from "./sentence";
import { chosenTheme, followTheme } from "./theme";
import { translateView } from "./translate";
import type { Explorations } from "./types";

/** A view: what it shows is made when it is looked at. */
export interface View {
  element: HTMLElement;
  show: () => void;
}

const VIEWS = ["Translate", "Grid", "Search", "Compare"] as const;

async function start(root: HTMLElement): Promise<void> {
  const text = document.getElementById("document")?.textContent ?? "null";
  const explorations = JSON.parse(text) as Explorations | null;
  let app: App | null = null;
  const setTheme = followTheme(() => app?.emit("theme"));
  let origin: Origin;
  try {
    origin = explorations ? new Carried(explorations) : await Server.connect();
  } catch (error) {
    root.replaceChildren(h("main", {}, h("p", { class: "error", role: "alert" }, (error as Error).message)));
    return;
  }
  app = new App(origin);
  root.replaceChildren(...layout(app, setTheme));
  if (explorations) app.open(explorations.sentences);
}

function layout(app: App, setTheme: ReturnType<typeof followTheme>): HTMLElement[] {
  const bar = sentenceBar(app);
  const views: View[] = [{ element: translateView(app), show: () => undefined }, gridView(app), searchView(app), compareView(app)];
  const panels = views.map(({ element }, index) =>
    h("div", { role: "tabpanel", id: `view-${index}`, "aria-labelledby": `tab-${index}`, hidden: true }, element));
  const tabs = VIEWS.map((name, index) =>
    h("button", { type: "button", role: "tab", id: `tab-${index}`, "aria-controls": `view-${index}`, onclick: () => show(index) }, name));
  let shown = -1;

  const show = (index: number): void => {
    shown = index;
    tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(place === index));
      tab.tabIndex = place === index ? 0 : -1;
    });
    panels.forEach((panel, place) => (panel.hidden = place !== index));
    bar.hidden = index === 0;
    main.dataset.view = String(index);
    document.title = `${VIEWS[index]} · jointnmt`;
    history.replaceState(null, "", `#${VIEWS[index].toLowerCase()}`);
    views[index].show();
  };
  const list = h("div", { role: "tablist", "aria-label": "Views" }, ...tabs);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || isModified(event)) return;
    show((shown + step + VIEWS.length) % VIEWS.length);
    tabs[shown].focus();
  });
  // Only the view that is looked at is drawn; the others are when they are turned to.
  for (const event of ["place", "lines", "models", "theme"] as const) app.on(event, () => views[shown]?.show());
  app.on("line", (line, model) => line === app.line && model === app.model && views[shown]?.show());
  const named = (): number => VIEWS.findIndex((name) => `#${name.toLowerCase()}` === location.hash);
  addEventListener("hashchange", () => named() >= 0 && show(named()));
  const header = h("header", { class: "top" }, h("span", { class: "name" }, "jointnmt"), list, settings(app, setTheme));
  const main = h("main", {}, h("h1", { class: "unseen" }, "jointnmt: translate and explore"), bar, ...panels);
  queueMicrotask(() => show(Math.max(0, named())));
  return [header, main];
}

/** Languages and models where there are several, light and dark, the API. */
function settings(app: App, setTheme: ReturnType<typeof followTheme>): HTMLElement {
  const box = h("div", { class: "settings" });
  const pairs = new Map(app.origin.models.map((model) => [pairOf(model), model]).reverse() as [string, (typeof app.origin.models)[0]][]);
  if (pairs.size > 1) {
    const options = [...pairs].reverse().map(([pair, { source_language, target_language }]) =>
      [pair, `${languageName(source_language)} → ${languageName(target_language)}`] as const);
    box.append(choice("Languages", options, pairOf(app.model), (pair) => app.look({ model: pairs.get(pair)! })));
  }
  box.append(choice("Theme", [["auto", "as the system"], ["light", "light"], ["dark", "dark"]], chosenTheme(),
    (value) => setTheme(value as "auto")));
  if (app.origin.live) box.append(h("a", { href: "docs" }, "API"));
  return box;
}

void start(document.getElementById("page")!);
