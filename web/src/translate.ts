// The view to translate in: the source, and beside it every model's translation.

import { languageName, type App, type Line } from "./app";
import { h, say } from "./dom";
import { SourceText, type Marked } from "./source";
import { TargetText } from "./target";
import type { Word } from "./tokens";
import type { Model } from "./types";

export function translateView(app: App): HTMLElement {
  let targets: TargetText[] = [];
  const mark = (line: Line, marks: Marked[]): void => source.mark(line, marks);
  const meant = (line: Line, word: Word | null): void => targets.forEach((target) => target.markFor(line, word));
  const source = new SourceText(app, meant);
  const heading = h("h2", {});
  const panes = h("div", { class: "panes" });
  const left = h("section", { class: "pane", "aria-label": "Source text" }, h("header", {}, heading), source.element);

  const chips = h("fieldset", { class: "chips", hidden: true });
  const chip = (model: Model): HTMLElement =>
    h("label", {}, h("input", {
      type: "checkbox", checked: !app.hidden.has(model.name),
      onchange: (event: Event) => app.toggle(model, (event.target as HTMLInputElement).checked),
    }), ` ${model.name}`);

  const renderChips = (): void => {
    chips.hidden = app.models.length < 2;
    const focused = [...chips.querySelectorAll("input")].indexOf(document.activeElement as HTMLInputElement);
    chips.replaceChildren(h("legend", { class: "unseen" }, "Models that are shown"), ...app.models.map(chip));
    chips.querySelectorAll("input")[focused]?.focus();
  };
  const render = (): void => {
    renderChips();
    heading.textContent = languageName(app.model.source_language);
    targets = app.shownModels.map((model) => new TargetText(app, model, mark));
    panes.replaceChildren(left, ...targets.map(({ element }) => element));
  };
  app.on("models", render);
  app.on("lines", () => targets.forEach((target) => target.render()));
  app.on("line", (line, model) => targets.find((target) => target.model === model)?.renderLine(line));
  app.on("place", () => targets.forEach((target) => target.renderPlace()));
  app.translated = (lines, model) => {
    const texts = lines.map((line) => app.textOf(line, model)).filter(Boolean);
    const isShown = panes.offsetParent && targets.some((target) => target.model === model);
    if (!app.origin.live || !isShown || !texts.length) return; // an error says itself
    say(`Translated by ${model.name}: ${texts.length > 1 ? `${texts.length} sentences` : texts[0]}`);
  };
  render();

  const help = app.origin.live
    ? "Hover a word to see its alignment. Click it, or step to it by Tab and the arrow keys and press Enter, to put another in its place."
    : "Hover a word to see its alignment. This page is a file: translating other texts and changing words need the model, by jointnmt serve.";
  return h("div", { class: "translate" }, chips, panes, h("p", { class: "hint help" }, help));
}
