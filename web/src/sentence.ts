// The sentence, the model and the translation that pictures are of.

import { partOf, type App } from "./app";
import { choice, debounced, h, offer } from "./dom";

const PAUSE = 500;

export function sentenceBar(app: App): HTMLElement {
  const { live } = app.origin;
  const source = h("input", { type: "text", readonly: !live, placeholder: "Type a sentence", spellcheck: "false", dir: "auto" });
  const own = h("input", { type: "text", readonly: !live, placeholder: "optional", spellcheck: "false", dir: "auto" });
  let part = partOf(app.line); // what the field's text stands for
  const typed = debounced(PAUSE, async () => {
    const found = await app.setSource(part, source.value);
    if (found && document.activeElement === source) part = found; // else it shows a single line again
  });
  const ownTyped = debounced(PAUSE, () => app.look({ own: own.value }));
  for (const [field, { later, now }] of [[source, typed], [own, ownTyped]] as const) {
    field.addEventListener("input", later);
    field.addEventListener("change", now); // before another sentence is looked at
  }
  const model = choice("Model", [], "", (name) => app.look({ model: app.models.find((each) => each.name === name)! }));
  model.classList.add("model");
  // Disabled, a button would lose the focus at the last sentence.
  const step = (by: number, text: string, label: string): HTMLElement =>
    h("button", {
      type: "button", "aria-label": label,
      onclick: () => app.look({ current: app.current + by }),
    }, text);
  const [before, next] = [step(-1, "‹", "Sentence before"), step(1, "›", "Next sentence")];
  const place = h("span", { class: "hint" });
  const stepper = h("span", { class: "stepper", role: "group", "aria-label": "Sentences" }, before, place, next);
  const ownField = h("label", { class: "field wide" }, h("span", {}, "Your own translation"), own);

  const render = (): void => {
    const { lines, current, line, models } = app;
    if (document.activeElement !== source) {
      source.value = line.source;
      part = partOf(line);
    }
    if (document.activeElement !== own) own.value = line.own;
    source.lang = app.model.source_language;
    own.lang = app.model.target_language;
    ownField.hidden = !live && !line.own;
    offer(model, models.map(({ name }) => [name, name] as const), app.model.name);
    stepper.hidden = lines.length < 2;
    place.textContent = `${current + 1} of ${lines.length}`;
    before.setAttribute("aria-disabled", String(current === 0));
    next.setAttribute("aria-disabled", String(current === lines.length - 1));
  };
  for (const event of ["place", "lines", "models"] as const) app.on(event, render);
  render();
  return h("div", { class: "sentence" }, h("label", { class: "field wide" }, h("span", {}, "Sentence"), source), ownField, model, stepper);
}
