// The view into the grid: a sentence with its translation, cell by cell, and the attention of the cell that is chosen.

import type { App, Line } from "./app";
import { unpack } from "./arrays";
import { Asking } from "./asking";
import { cellTable } from "./cell";
import { choice, h, isModified, offer, say } from "./dom";
import { gridFigure, legendElement, type Legend } from "./figure";
import { Frame, type FrameContent } from "./frame";
import type { View } from "./main";
import { measuresOf, rangeOf, type Measure } from "./measures";
import { savingButtons } from "./saving";
import { STRIP_TITLES, needsCell, stripsOf, type Cell, type Strip } from "./strips";
import { scale } from "./theme";
import { shown } from "./tokens";
import type { Inspection, Model } from "./types";

const GROUPS = { cells: "Cells", source: "Source tokens", target: "Target tokens" } as const;
const PAUSE = 150; // milliseconds on a cell, until its single heads are asked for

export function gridView(app: App): View {
  const view = new GridView(app);
  return { element: view.element, show: () => void view.show() };
}

class GridView {
  readonly element = h("div", { class: "grid-view" });
  private readonly colour = choice("Colour", [], "", (key) => this.want({ measure: key }));
  private readonly slider = h("input", { type: "range", min: 0, oninput: () => this.want({ layer: Number(this.slider.value) }) });
  private readonly layerName = h("span", {});
  private readonly layerField = h("label", { class: "field", hidden: true }, this.layerName, this.slider);
  private readonly headChoice = choice("Head", [], "", (value) => this.want({ head: value === "" ? null : Number(value) }));
  private readonly range = choice("Scale", [], "", (value) => this.want({ ownScale: value === "own" }));
  private readonly textChoice = choice("Translation", [], "", (value) => {
    this.text = value as "model" | "own";
    void this.show();
  });
  private readonly legend = h("div", { class: "legends" });
  private readonly readout = h("p", { class: "readout hint" });
  private readonly asking = new Asking(this.element, () => this.forget());
  private readonly details = h("aside", { class: "details", "aria-label": "The chosen cell" });
  private readonly explanation = h("p", { class: "hint" });
  private readonly frame: Frame;
  private readonly stage: HTMLElement;
  private inspection: Inspection | null = null;
  private asked: { model: Model; line: Line; target: string | null } | null = null; // what the inspection is of
  private cellRequest = new AbortController();
  private measures: Measure[] = [];
  private wanted = { measure: "alignment", layer: Infinity, head: null as number | null, ownScale: false };
  private cell: Cell | null = null;
  private strips: Strip[] = [];
  private text: "model" | "own" = "model";

  constructor(private readonly app: App) {
    this.frame = new Frame((cell, how) => (how === "click" ? this.choose(cell) : this.point(cell)));
    this.stage = h("div", {
      class: "stage", tabindex: "0", role: "application", "aria-roledescription": "grid of cells",
      "aria-label": "Grid of source and target tokens. Arrow keys move from cell to cell, Page Up and Page Down from layer to layer.",
      onkeydown: (event: KeyboardEvent) => this.pressed(event),
    }, this.frame.element);
    this.stage.addEventListener("pointerleave", () => this.point(null));
    const saving = savingButtons(() => this.asking.isWaiting ? null : this.inspection && {
      name: `grid-${this.measure.key}`, numbers: () => this.numbers(), svg: () => gridFigure(this.content(), this.title(), this.legends()),
    });
    this.element.append(h("div", { class: "toolbar" }, this.colour, this.layerField, this.headChoice, this.range, this.textChoice), this.asking.message,
      h("div", { class: "with-details" },
        h("div", { class: "main-side" }, h("div", { class: "row spread" }, this.legend, saving), this.readout, this.stage, this.explanation),
        this.details));
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== width && this.inspection && this.element.offsetParent) this.draw();
      width = innerWidth;
    });
  }

  /** The translation that the grid is of: null for the model's own. */
  private target(): string | null {
    const { line, model } = this.app;
    if (this.text === "own" && line.own) return line.own;
    const { translation } = this.app.rendering(line, model);
    const shownText = this.app.textOf(line, model);
    return translation && shownText !== translation.translation ? shownText : this.forced();
  }

  /** A translation whose beginning was changed by hand is no longer what the model would choose. */
  private forced(): string | null {
    const { line, model } = this.app;
    return this.app.rendering(line, model).prefix ? this.app.textOf(line, model) : null;
  }

  async show(): Promise<void> {
    const { app } = this;
    const { line, model } = app;
    this.offerText();
    if (!line.source.trim()) return this.asking.fail("Type a sentence above.");
    if (app.rendering(line, model).pending) return this.asking.wait();
    const target = this.target();
    const question = JSON.stringify([model.name, line.place, line.source, target]);
    if (this.asking.isAsked(question)) return this.draw();
    await this.asking.ask(question, (signal) => app.origin.inspect(model, line, target, signal), (found) => {
      this.inspection = found;
      this.asked = { model, line, target };
      this.measures = measuresOf(found);
      this.cell = null;
      this.strips = [];
      this.choose(this.firstCell());
    });
  }

  private forget(): void {
    this.inspection = null;
    this.cell = null;
    this.strips = [];
    this.cellRequest.abort();
    for (const field of [this.colour, this.layerField, this.headChoice, this.range]) field.hidden = true;
    this.offerText();
  }

  private offerText(): void {
    offer(this.textChoice, this.app.line.own ? [["model", "the model's"], ["own", "your own"]] : [], this.text);
  }

  private want(changes: Partial<typeof this.wanted>): void {
    Object.assign(this.wanted, changes);
    this.draw();
  }

  /** The cell to begin with: where a word in the middle of the translation is aligned. */
  private firstCell(): Cell {
    const t = Math.floor((this.inspection!.target_read.length - 1) / 2);
    const row = unpack(this.inspection!.alignment).at(t).values;
    return { s: row.indexOf(Math.max(...row)), t };
  }

  private get measure(): Measure {
    return this.measures.find(({ key }) => key === this.wanted.measure) ?? this.measures[0];
  }

  /** The layers to choose from: the measure's, or else those of the cell's attention. */
  private get layers(): string[] {
    const { layers } = this.measure;
    const deepest = Math.max(-1, ...this.strips.map(({ layer }) => layer));
    return layers.length ? layers : Array.from({ length: deepest + 1 }, (_, layer) => `layer ${layer + 1}`);
  }

  private get layer(): number {
    return Math.max(0, Math.min(this.wanted.layer, this.layers.length - 1));
  }

  private get head(): number | null {
    return this.wanted.head !== null && this.wanted.head < this.measure.heads ? this.wanted.head : null;
  }

  /** The layer whose strips are large: that of the measure, the input counted as the first. */
  private get stripLayer(): number {
    return this.layers[0] === "input" ? Math.max(0, this.layer - 1) : this.layer;
  }

  private content(): FrameContent {
    const { measure, layer, head, cell } = this;
    const { source_tokens, target_read, target_predicted } = this.inspection!;
    const base = this.measures[0];
    const values = measure.values(layer, head);
    const [low, high] = this.wanted.ownScale ? rangeOf(values) : measure.range;
    const colours = scale(measure.scale, low, high);
    const weights = scale("weight", 0, 1);
    return {
      source: source_tokens, read: target_read, predicted: target_predicted,
      cells: measure.of === "cells" ? values : base.values(0, null),
      cellScale: measure.of === "cells" ? colours : weights,
      tokens: measure.of === "cells" ? null : { side: measure.of, values, scale: colours },
      strips: this.strips, stripScale: weights, layer: this.stripLayer, selected: cell,
    };
  }

  private legends(): Legend[] {
    const { measure, layer, head } = this;
    const values = measure.values(layer, head);
    const range = this.wanted.ownScale ? rangeOf(values) : measure.range;
    const own: Legend = { title: this.title(), scale: scale(measure.scale, range[0], range[1]), range };
    const both = "Alignment; attention of the cell";
    const weights: Legend = { title: measure.of === "cells" ? "Attention of the cell" : both, scale: scale("weight", 0, 1), range: [0, 1] };
    return measure.key === "alignment" && !this.wanted.ownScale ? [{ ...weights, title: both }] : [own, weights];
  }

  private title(): string {
    const { measure, layer, head } = this;
    const parts = [measure.title, measure.layers[layer], measure.heads ? (head === null ? "mean of heads" : `head ${head + 1}`) : null];
    return parts.filter(Boolean).join(", ");
  }

  private draw(): void {
    if (!this.inspection) return;
    this.renderToolbar();
    this.legend.replaceChildren(...this.legends().map(legendElement));
    this.frame.render(this.content());
    this.explanation.textContent = explanation(this.inspection, this.strips);
    this.point(null);
  }

  private renderToolbar(): void {
    const { measure, wanted, layers, layer } = this;
    const groups = Object.entries(GROUPS).map(([of, name]) =>
      [name, this.measures.filter((each) => each.of === of).map(({ key, title }) => [key, title] as const)] as const);
    offer(this.colour, Object.fromEntries(groups.filter(([, options]) => options.length)), measure.key);
    this.layerField.hidden = layers.length < 2;
    this.layerName.textContent = `${measure.layers.length ? "Layer" : "Layer of the cell's attention"}: ${layers[layer]}`;
    this.slider.max = String(Math.max(1, layers.length - 1));
    this.slider.value = String(layer);
    this.slider.setAttribute("aria-valuetext", layers[layer] ?? "");
    const heads = Array.from({ length: measure.heads }, (_, head) => [String(head), String(head + 1)] as const);
    offer(this.headChoice, heads.length > 1 ? [["", "mean of all"], ...heads] : [], this.head === null ? "" : String(this.head));
    offer(this.range, [["all", measure.scale === "weight" ? "0 to 1" : "of all layers"], ["own", "of this picture"]], wanted.ownScale ? "own" : "all");
    this.offerText();
  }

  /** What is under the pointer, in words. */
  private point(cell: Cell | null): void {
    if (!this.inspection) return;
    this.frame.point(cell ?? this.cell);
    const at = cell ?? this.cell;
    this.readout.textContent = at ? this.describe(at) : "\u00a0";
  }

  private describe({ s, t }: Cell): string {
    const { source_tokens, target_predicted } = this.inspection!;
    const content = this.content();
    const names = `${shown(source_tokens[s])} × ${shown(target_predicted[t])}`;
    const value = content.cells.at(t).values[s];
    if (!content.tokens) return `${names}: ${this.title().toLowerCase()} ${value.toFixed(3)}`;
    const { side, values } = content.tokens;
    const place = side === "source" ? s : t;
    const token = side === "source" ? source_tokens[s] : target_predicted[t];
    return `${shown(token)}: ${this.title().toLowerCase()} ${values.values[place].toFixed(3)}; ${names}: alignment ${value.toFixed(3)}`;
  }

  /** Look at a cell: its attention below and beside the grid, its numbers in a table. */
  private choose(cell: Cell): void {
    const inspection = this.inspection!;
    this.cellRequest.abort();
    this.cellRequest = new AbortController();
    this.cell = cell;
    this.strips = stripsOf(inspection, cell, null);
    this.renderDetails();
    this.draw();
    if (needsCell(inspection)) void this.askCell(inspection, cell, this.cellRequest.signal);
  }

  private async askCell(inspection: Inspection, cell: Cell, signal: AbortSignal): Promise<void> {
    const { model, line, target } = this.asked!;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (signal.aborted) return;
    try {
      const exact = await this.app.origin.cell(model, line, target, cell, signal);
      if (signal.aborted) return;
      this.strips = stripsOf(inspection, cell, exact);
      this.draw();
    } catch (error) {
      if (!signal.aborted) this.details.append(h("p", { class: "hint" }, (error as Error).message));
    }
  }

  private renderDetails(): void {
    this.details.replaceChildren(...cellTable(this.inspection!, this.cell!));
  }

  private pressed(event: KeyboardEvent): void {
    if (!this.inspection || !this.cell || isModified(event)) return;
    const { s, t } = this.cell;
    const moves: Record<string, Cell> = {
      ArrowLeft: { s: s - 1, t }, ArrowRight: { s: s + 1, t }, ArrowUp: { s, t: t - 1 }, ArrowDown: { s, t: t + 1 },
      Home: { s: 0, t }, End: { s: this.inspection.source_tokens.length - 1, t },
    };
    const layers: Record<string, number> = { PageUp: -1, PageDown: 1 };
    if (event.key in moves) {
      const cell = moves[event.key];
      const inside = cell.s >= 0 && cell.t >= 0 && cell.s < this.inspection.source_tokens.length && cell.t < this.inspection.target_read.length;
      if (inside) this.choose(cell);
    } else if (event.key in layers) {
      this.wanted.layer = Math.max(0, Math.min(this.layers.length - 1, this.layer + layers[event.key]));
      this.draw();
    } else return;
    event.preventDefault();
    say(this.describe(this.cell));
  }

  private numbers(): unknown {
    const { inspection, measure, layer, head, cell } = this;
    const { model, translation, source_tokens, target_read, target_predicted } = inspection!;
    return {
      model, source_tokens, target_read, target_predicted, translation,
      measure: measure.title, of: measure.of, layer: measure.layers[layer] ?? null, head: measure.heads ? (head === null ? "mean" : head + 1) : null,
      values: measure.values(layer, head).nested(),
      cell: cell && {
        source_position: cell.s, target_position: cell.t,
        attention: this.strips.map(({ axis, place, layer: at, rows }) => ({
          along: axis, place, layer: at + 1, heads: rows.map((row) => Array.from(row, (value) => Number(value.toPrecision(6)))),
        })),
      },
    };
  }
}

/** What of the translation is not shown, and what the strips are, in words. */
function explanation({ target_read, left_out }: Inspection, strips: Strip[]): string {
  const titles = (axis: Strip["axis"]): string =>
    [...new Set(strips.filter((strip) => strip.axis === axis).map(({ place }) => `${place}: ${STRIP_TITLES[place]}`))].join("; ");
  const [below, beside] = [titles("source"), titles("target")];
  const cut = left_out > 0 && `The first ${target_read.length} of the translation's ${target_read.length + left_out} tokens are shown.`;
  return [cut, below && `Below the grid, one row a head, by layer: ${below}.`, beside && `Beside it, one column a head: ${beside}.`].filter(Boolean).join(" ");
}
