// The grid on the screen: labels, cells and strips in one frame. Cells are drawn on canvases, labels are text.

import type { Numbers } from "./arrays";
import { h } from "./dom";
import type { Cell, Strip } from "./strips";
import { colour, type Scale } from "./theme";
import { shown } from "./tokens";

export interface FrameContent {
  source: string[];
  read: string[];
  predicted: string[];
  cells: Numbers; // [T, S]
  cellScale: Scale;
  tokens: { side: "source" | "target"; values: Numbers; scale: Scale } | null;
  strips: Strip[];
  stripScale: Scale;
  layer: number; // whose strips are larger
  selected: Cell | null;
}

const [SMALLEST, SCROLLED] = [11, 13]; // cells that all fit, and those that are scrolled
export const TOKENS = 14; // thickness of the coloured tokens
const [THIN, THICK] = [6, 13]; // a head's strip, of other layers and of the one that is looked at

export type Paint = (x: number, y: number, width: number, height: number, fill: string) => void;

/** A matrix as squares with a gap between them. */
export function paintMatrix(paint: Paint, cells: Numbers, size: number, scale: Scale): void {
  const [rows, columns] = cells.shape;
  const gap = size >= 10 ? 1 : 0.5;
  for (let t = 0; t < rows; t++)
    for (let s = 0; s < columns; s++)
      paint(s * size, t * size, size - gap, size - gap, scale(cells.values[t * columns + s]));
}

/** Rows of weights, one a head; along the target they are columns. */
export function paintStrip(paint: Paint, strip: Strip, size: number, thickness: number, scale: Scale): void {
  strip.rows.forEach((row, head) =>
    row.forEach((weight, place) => {
      const [along, across] = [place * size, head * thickness];
      if (strip.axis === "source") paint(along, across, size - 1, thickness - 1, scale(weight));
      else paint(across, along, thickness - 1, size - 1, scale(weight));
    }));
}

/** Tokens as squares along their side. */
export function paintTokens(paint: Paint, { side, values, scale }: NonNullable<FrameContent["tokens"]>, size: number): void {
  values.values.forEach((value, place) =>
    side === "source"
      ? paint(place * size, 0, size - 1, TOKENS - 3, scale(value))
      : paint(0, place * size, TOKENS - 3, size - 1, scale(value)));
}

/** How thick a head's strip is drawn. */
export function thickness(strip: Strip, layer: number, strips: readonly Strip[]): number {
  const last = Math.max(...strips.filter(({ place }) => place === strip.place).map((each) => each.layer));
  return strip.layer === Math.min(layer, last) ? THICK : THIN;
}

/** How large a cell is, so that all fits into the width if that can be; where it cannot, it is large enough for a finger. */
export function cellSize(width: number, { source, predicted, strips, layer }: FrameContent): number {
  const right = strips.filter(({ axis }) => axis === "target");
  const beside = right.reduce((sum, strip) => sum + strip.rows.length * thickness(strip, layer, strips) + 4, 0);
  const labels = Math.min(170, width * 0.36);
  const fitting = Math.floor((width - labels - beside - 24) / source.length);
  return Math.max(fitting < SMALLEST ? SCROLLED : SMALLEST, Math.min(48, fitting, Math.floor(820 / predicted.length)));
}

export class Frame {
  readonly element = h("div", { class: "frame" });
  private size = 20;
  private cells: HTMLCanvasElement | null = null;
  private labels: { source: HTMLElement[]; target: HTMLElement[] } = { source: [], target: [] };

  constructor(private readonly picked: (cell: Cell, how: "hover" | "click") => void) {}

  /** Draw everything. */
  render(content: FrameContent): void {
    this.size = cellSize(this.element.closest(".main-side")!.clientWidth - 18, content);
    const { size } = this;
    const { source, predicted, read } = content;
    this.element.style.setProperty("--cell", `${size}px`);
    this.cells = canvas(source.length * size, predicted.length * size, (paint, context) => {
      paintMatrix(paint, content.cells, size, content.cellScale);
      if (content.selected) outline(context, content.selected, size);
    });
    this.cells.classList.add("grid-cells");
    this.listen(this.cells);
    this.labels = {
      source: source.map((piece) => h("span", { class: "column" }, h("span", {}, shown(piece)))),
      target: predicted.map((piece, t) =>
        h("span", { class: "line" }, h("span", { class: "read" }, shown(read[t])), h("span", {}, shown(piece)))),
    };
    const at = this.element.querySelector(".scroller");
    const [left, top] = [at?.scrollLeft ?? 0, at?.scrollTop ?? 0];
    const scroller = h("div", { class: "scroller" }, this.table(content));
    this.element.replaceChildren(scroller);
    scroller.scrollTo(left, top);
    this.point(content.selected);
  }

  /** Make the labels of a cell's row and column stand out. */
  point(cell: Cell | null): void {
    this.labels.source.forEach((label, s) => label.classList.toggle("on", s === cell?.s));
    this.labels.target.forEach((label, t) => label.classList.toggle("on", t === cell?.t));
  }

  private table(content: FrameContent): HTMLElement {
    const { size } = this;
    const bottom = content.strips.filter(({ axis }) => axis === "source");
    const right = content.strips.filter(({ axis }) => axis === "target");
    const { tokens } = content;
    const table = h("div", { class: "cells" });
    table.style.gridTemplateColumns = `max-content ${tokens?.side === "target" ? "max-content" : "0"} max-content repeat(${right.length}, max-content)`;
    const put = (element: HTMLElement, row: number, column: number): void => {
      element.style.gridArea = `${row} / ${column}`;
      table.append(element);
    };
    put(h("div", { class: "corner" }, h("span", {}, "read"), h("span", {}, "predicted")), 1, 1);
    put(h("div", { class: "columns" }, ...this.labels.source), 1, 3);
    put(h("div", { class: "lines-of" }, ...this.labels.target), 3, 1);
    put(this.cells!, 3, 3);
    if (tokens) put(this.tokenCanvas(tokens), ...(tokens.side === "source" ? [2, 3] : [3, 2]) as [number, number]);
    bottom.forEach((strip, index) => {
      put(h("div", { class: "strip-name" }, stripName(strip)), 4 + index, 1);
      put(stripCanvas(strip, size, content), 4 + index, 3);
    });
    right.forEach((strip, index) => {
      put(h("div", { class: "strip-name upright" }, h("span", {}, stripName(strip))), 1, 4 + index);
      put(stripCanvas(strip, size, content), 3, 4 + index);
    });
    return table;
  }

  private tokenCanvas(tokens: NonNullable<FrameContent["tokens"]>): HTMLCanvasElement {
    const long = tokens.values.values.length * this.size;
    const [width, height] = tokens.side === "source" ? [long, TOKENS] : [TOKENS, long];
    return canvas(width, height, (paint) => paintTokens(paint, tokens, this.size));
  }

  private listen(cells: HTMLCanvasElement): void {
    const cellOf = (event: PointerEvent | MouseEvent): Cell => ({
      s: Math.max(0, Math.min(this.labels.source.length - 1, Math.floor(event.offsetX / this.size))),
      t: Math.max(0, Math.min(this.labels.target.length - 1, Math.floor(event.offsetY / this.size))),
    });
    cells.addEventListener("pointermove", (event) => this.picked(cellOf(event), "hover"));
    cells.addEventListener("click", (event) => this.picked(cellOf(event), "click"));
  }
}

const stripName = ({ place, layer }: Strip): string => `${place} ${layer + 1}`;

function stripCanvas(strip: Strip, size: number, { strips, layer, stripScale, source, predicted }: FrameContent): HTMLCanvasElement {
  const thick = thickness(strip, layer, strips);
  const across = strip.rows.length * thick;
  const along = (strip.axis === "source" ? source : predicted).length * size;
  const [width, height] = strip.axis === "source" ? [along, across] : [across, along];
  return canvas(width, height, (paint) => paintStrip(paint, strip, size, thick, stripScale));
}

function canvas(width: number, height: number, draw: (paint: Paint, context: CanvasRenderingContext2D) => void): HTMLCanvasElement {
  const dots = Math.min(devicePixelRatio || 1, 2);
  const element = h("canvas", { width: Math.ceil(width * dots), height: Math.ceil(height * dots) });
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
  const context = element.getContext("2d")!;
  context.scale(dots, dots);
  draw((x, y, w, h, fill) => {
    context.fillStyle = fill;
    context.fillRect(x, y, w, h);
  }, context);
  return element;
}

function outline(context: CanvasRenderingContext2D, { s, t }: Cell, size: number): void {
  context.lineWidth = 2;
  context.strokeStyle = colour("select");
  context.strokeRect(s * size, t * size, size - 1, size - 1);
}
