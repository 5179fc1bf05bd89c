// The sentence, the model and the translation that pictures are of.

import type { App } from "./app";
import { choice, debounced, h } from "./dom";

const PAUSE = 500;

export function sentenceBar(app: App): HTMLElement {
  const bar = h("div", { class: "sentence" });
  const source = h("input", { type: "text", readonly: !app.origin.live, placeholder: "Type a sentence", spellcheck: "false" });
  const own = h("input", { type: "text", placeholder: "optional", spellcheck: "false" });
  const typed = debounced(PAUSE, () => app.setSource(source.value));
  const ownTyped = debounced(PAUSE, () => app.look({ own: own.value }));
  source.addEventListener("input", typed);
  own.addEventListener("input", ownTyped);

  const render = (): void => {
    const { lines, current, models, model, origin } = app;
    if (document.activeElement !== source) source.value = app.line.source;
    if (document.activeElement !== own) own.value = app.line.own;
    source.lang = model.source_language;
    own.lang = model.target_language;
    const step = (by: number, text: string, label: string): HTMLElement =>
      h("button", {
        type: "button", "aria-label": label, disabled: current + by < 0 || current + by >= lines.length,
        onclick: () => app.look({ current: current + by }),
      }, text);
    const several = h("span", { class: "stepper", role: "group", "aria-label": "Sentence" },
      step(-1, "‹", "Sentence before"), h("span", { class: "hint" }, `${current + 1} of ${lines.length}`), step(1, "›", "Next sentence"));
    const modelChoice = (): HTMLElement => {
      const found = choice("Model", models.map(({ name }) => [name, name] as const), model.name, (name) =>
        app.look({ model: models.find((each) => each.name === name)! }));
      found.classList.add("model");
      return found;
    };
    const parts = [
      h("label", { class: "field wide" }, h("span", {}, "Sentence"), source),
      origin.live || app.line.own ? h("label", { class: "field wide" }, h("span", {}, "Your own translation"), own) : null,
      models.length > 1 ? modelChoice() : null,
      lines.length > 1 ? several : null,
    ];
    own.readOnly = !origin.live;
    const focused = document.activeElement;
    bar.replaceChildren(...parts.filter((part) => part !== null));
    if (focused instanceof HTMLElement && bar.contains(focused)) focused.focus();
  };
  for (const event of ["place", "lines", "models"] as const) app.on(event, render);
  render();
  return bar;
}
