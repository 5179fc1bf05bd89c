// The view of two models on one sentence: where their translations differ, and how each scores the other's.

import type { App } from "./app";
import { Asking } from "./asking";
import { choice, h, offer, s } from "./dom";
import type { View } from "./main";
import { savingButtons } from "./saving";
import { table } from "./search";
import { spansOf } from "./target";
import { colour } from "./theme";
import { differences, shown, wordsOf } from "./tokens";
import { percent } from "./tree";
import type { Comparison, Model, Score } from "./types";

export function compareView(app: App): View {
  const view = new CompareView(app);
  return { element: view.element, show: () => void view.show() };
}

class CompareView {
  readonly element = h("div", { class: "compare-view" });
  private readonly asking = new Asking(this.element);
  private readonly sides = [this.side("One", 0), this.side("Other", 1)];
  private readonly body = h("div", { class: "figure" });
  private names: [string, string] = ["", ""];
  private comparison: Comparison | null = null;
  private text = 0;

  private readonly lacking = h("p", { class: "hint" }, "To compare, two models of one language pair are needed: jointnmt serve ONE OTHER. With one, your own translation is scored beside the model's.");

  constructor(private readonly app: App) {
    this.element.append(h("div", { class: "toolbar" }, ...this.sides, this.lacking), this.asking.message, this.body);
  }

  private side(label: string, side: 0 | 1): HTMLElement {
    return choice(label, [], "", (name) => {
      const [left, right] = this.models();
      this.names = side ? [left.name, name] : [name, right.name];
      void this.show();
    });
  }

  /** The two models, left and right. */
  private models(): [Model, Model] {
    const { models } = this.app;
    const find = (name: string, place: number): Model => models.find((each) => each.name === name) ?? models[Math.min(place, models.length - 1)];
    const left = find(this.names[0], 0);
    const right = find(this.names[1], 1);
    return [left, right];
  }

  async show(): Promise<void> {
    const { line, models, origin } = this.app;
    const both = this.models();
    this.lacking.hidden = models.length > 1;
    this.sides.forEach((side, index) => offer(side, models.map(({ name }) => [name, name] as const), both[index].name));
    if (!line.source.trim()) return this.asking.fail("Type a sentence above.");
    const pair = [...new Set(both)];
    const question = JSON.stringify([pair.map(({ name }) => name), line.place, line.source, line.own]);
    if (this.asking.isAsked(question)) return this.draw();
    await this.asking.ask(question, (signal) => origin.compare(pair, line, line.own || null, signal), (found) => {
      this.comparison = found;
      this.draw();
    });
  }

  private draw(): void {
    const { comparison } = this;
    if (!comparison) return;
    const pair = [...new Set(this.models())].filter(({ name }) => comparison.scores[name]);
    if (!pair.length) return; // of other models: what was asked for is under way
    const texts = comparison.texts.map((each, index) => ({ ...each, index })).filter(({ by }) => !by.length || by.some((name) => pair.some((model) => model.name === name)));
    this.text = texts.some(({ index }) => index === this.text) ? this.text : texts[0].index;
    const of = (model: Model): Score => comparison.scores[model.name][texts.find(({ by }) => by.includes(model.name))?.index ?? texts[0].index];
    const rows = texts.map(({ text, by, index }) =>
      h("tr", {}, h("td", { class: "text", lang: this.app.model.target_language }, h("div", { class: "brief" }, text || "(empty)")),
        h("td", { class: "text" }, by.filter((name) => pair.some((model) => model.name === name)).join(", ") || "your own"),
        ...pair.map((model) => this.scoreCell(comparison, texts.map((each) => each.index), model, index))));
    const options = texts.map(({ text, index }) => [String(index), text] as const);
    const picture = (): SVGSVGElement => tokenPicture(comparison, pair, this.text);
    const stage = h("div", { class: "stage scroller", tabindex: "0", role: "group", "aria-label": "Log-probability of each token" }, picture());
    const saving = savingButtons(() => ({ name: "comparison", numbers: () => comparison, svg: picture }));
    const hint = pair.length > 1 && of(pair[0]).target === of(pair[1]).target ? h("p", { class: "hint" }, "Both models translate alike.") : null;
    const parts = [
      h("div", { class: "panes pair" }, ...this.marked(pair.map((model) => ({ model, score: of(model) })))), hint,
      table("Scores, by which each model's search ranks translations, and in brackets the log-probability; the best text of each model stands out", ["translation", "of", ...pair.map(({ name }) => `score by ${name}`)], rows),
      h("div", { class: "row spread" },
        choice("Token by token", options, String(this.text), (value) => {
          this.text = Number(value);
          stage.replaceChildren(picture());
        }), saving),
      stage,
    ];
    this.body.replaceChildren(...parts.filter((part) => part !== null));
  }

  private scoreCell(comparison: Comparison, indices: number[], model: Model, index: number): HTMLElement {
    const scores = comparison.scores[model.name];
    const best = indices.reduce((found, each) => (scores[each].score > scores[found].score ? each : found), indices[0]);
    const { score, log_probability } = scores[index];
    return h("td", {}, h(index === best ? "b" : "span", {}, score.toFixed(3)), ` (${log_probability.toFixed(2)})`);
  }

  /** The translations side by side, words that the other lacks marked. */
  private marked(sides: { model: Model; score: Score }[]): HTMLElement[] {
    const words = sides.map(({ score }) => wordsOf(score.target, score.tokens, this.app.model.target_language));
    const only = sides.length > 1 ? differences(words[0].map(({ text }) => text), words[1].map(({ text }) => text)) : [new Set<number>()];
    return sides.map(({ model, score }, side) => {
      const sheet = h("p", { class: "sheet lines", lang: model.target_language }, ...spansOf(score.target, words[side]));
      sheet.querySelectorAll("[data-word]").forEach((span, index) => only[side].has(index) && span.replaceWith(h("mark", { class: side ? "right" : "left" }, span.textContent)));
      return h("section", { class: "pane", "aria-label": `Translation by ${model.name}` }, h("header", {}, h("h2", {}, model.name), h("span", { class: "hint" }, h("span", {}, model.family))), sheet);
    });
  }
}

const [COLUMN, BAR, KEY] = [74, 110, 20];
/** The width of a letter of a model's name, at most on average. */
const LETTER = 7.5;

/** The log-probability of each token of a text by each model, as bars that hang from 0. */
function tokenPicture({ scores, texts }: Comparison, models: Model[], text: number): SVGSVGElement {
  const answers = models.map(({ name }) => scores[name][text]);
  const lowest = Math.min(-1, ...answers.flatMap((score) => score.token_log_probabilities));
  // Models that segment otherwise have tokens of their own, one below the other.
  const alike = answers.every(({ tokens }) => tokens.join("\n") === answers[0].tokens.join("\n"));
  const rows = alike ? [answers] : answers.map((score) => [score]);
  const longestKey = 42 + LETTER * Math.max(...models.map(({ name }) => name.length));
  const width = Math.max(longestKey, COLUMN * Math.max(...answers.map(({ tokens }) => tokens.length)) + 20);
  const top = KEY * (models.length + 1); // a key below the other: side by side, a phone has no room for them
  const height = top + rows.length * (BAR + 60);
  const colours = [colour("left"), colour("right")];
  const picture = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Log-probability of each token of: ${texts[text].text}`, "font-family": "system-ui, sans-serif", "font-size": 12 },
    s("rect", { width, height, fill: colour("paper") }));
  models.forEach(({ name }, index) => picture.append(
    s("rect", { x: 12, y: 10 + KEY * index, width: 12, height: 12, rx: 2, fill: colours[index] }),
    s("text", { x: 30, y: 20 + KEY * index, class: "key", fill: colour("ink") }, name)));
  rows.forEach((row, place) => {
    const y = top + place * (BAR + 60) + 24;
    picture.append(s("line", { x1: 8, x2: width - 8, y1: y, y2: y, stroke: colour("line-strong") }));
    row[0].tokens.forEach((token, t) => picture.append(...bars(row, t, token, y, lowest, alike ? 0 : place, colours)));
  });
  return picture;
}

function bars(row: Score[], t: number, token: string, y: number, lowest: number, first: number, colours: string[]): SVGElement[] {
  const x = 12 + t * COLUMN;
  const name = shown(token);
  const label = s("text", { x: x + (COLUMN - 8) / 2, y: y - 7, "text-anchor": "middle", fill: colour("ink") }, name.length > 9 ? `${name.slice(0, 8)}…` : name);
  const wide = (COLUMN - 14) / row.length;
  const each = row.flatMap(({ token_log_probabilities }, index) => {
    const value = token_log_probabilities[t];
    const long = Math.max(1, (BAR * value) / lowest);
    return [
      s("rect", { x: x + index * wide, y, width: wide - 2, height: long, fill: colours[first + index] }, s("title", {}, `${name}: ${percent(value)}, log-probability ${value.toFixed(3)}`)),
      s("text", { x: x + index * wide + wide / 2 - 1, y: y + long + 12, "text-anchor": "middle", "font-size": 10, fill: colour("dim") }, value > -0.05 ? "0" : value.toFixed(1)),
    ];
  });
  return [label, ...each];
}
