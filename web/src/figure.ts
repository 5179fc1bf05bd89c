// The grid as an SVG picture that stands by itself: what the frame shows, with a title and a legend.

import { h, s } from "./dom";
import { TOKENS, cellSize, paintMatrix, paintStrip, paintTokens, thickness, type FrameContent, type Paint } from "./frame";
import { STRIP_TITLES } from "./strips";
import { colour, type Scale } from "./theme";
import { shown } from "./tokens";

const FONT = "system-ui, sans-serif";
const LEGEND = 22; // from one to the next

export interface Legend {
  title: string;
  scale: Scale;
  range: [number, number];
}

/** The legend on the screen. */
export function legendElement({ title, scale, range: [low, high] }: Legend): HTMLElement {
  const bar = h("span", { class: "bar", "aria-hidden": "true" });
  const stops = Array.from({ length: 9 }, (_, index) => scale(low + ((high - low) * index) / 8));
  bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
  return h("div", { class: "legend" }, h("span", {}, title), h("span", { class: "number" }, low.toFixed(2)), bar,
    h("span", { class: "number" }, high.toFixed(2)));
}

export function gridFigure(content: FrameContent, title: string, legends: Legend[]): SVGSVGElement {
  const size = Math.max(16, cellSize(1200, content));
  const longest = (texts: string[]): number => Math.max(3, ...texts.map((text) => text.length));
  const tokensAt = { left: 12 + 7.2 * (longest(content.read) + longest(content.predicted)) + 12, top: 44 + 7.2 * longest(content.source) };
  const side = content.tokens?.side;
  const left = tokensAt.left + (side === "target" ? TOKENS : 0);
  const top = tokensAt.top + (side === "source" ? TOKENS : 0);
  const root = s("svg", { "font-family": FONT, "font-size": 12, fill: colour("ink") });
  const ground = s("rect", { width: "100%", height: "100%", fill: colour("paper") });
  root.append(ground, text(12, 22, title, { "font-size": 14, "font-weight": 600 }));

  const painter = (x: number, y: number): Paint => {
    const group = s("g", { transform: `translate(${x} ${y})` });
    root.append(group);
    return (px, py, width, height, fill) => group.append(s("rect", { x: px, y: py, width, height, fill }));
  };
  content.source.forEach((piece, index) => {
    const x = left + index * size + size * 0.7;
    const y = tokensAt.top - 6;
    root.append(text(x, y, shown(piece), { transform: `rotate(-90 ${x} ${y})` }));
  });
  content.predicted.forEach((piece, t) => {
    const y = top + t * size + size * 0.7;
    root.append(text(tokensAt.left - 8, y, shown(piece), { "text-anchor": "end" }),
      text(12, y, shown(content.read[t]), { fill: colour("dim") }));
  });
  if (content.tokens)
    paintTokens(painter(side === "source" ? left : tokensAt.left, side === "source" ? tokensAt.top : top), content.tokens, size);
  paintMatrix(painter(left, top), content.cells, size, content.cellScale);
  const right = left + content.source.length * size + 8;
  const below = top + content.predicted.length * size + 8;
  const [width, height] = strips(root, painter, content, size, { left, top, right, below });
  legends.forEach((legend, index) => root.append(legendGroup(legend, left, height + 10 + LEGEND * index)));
  const longestLegend = Math.max(...legends.map((legend) => keyPlace(legend) + 200));
  root.setAttribute("width", String(Math.ceil(Math.max(width, left + longestLegend) + 16)));
  root.setAttribute("height", String(Math.ceil(height + 22 + LEGEND * legends.length)));
  return root;
}

/** The strips below and on the right; returns how far they reach. */
function strips(
  root: SVGSVGElement,
  painter: (x: number, y: number) => Paint,
  content: FrameContent,
  size: number,
  { left, top, right, below }: { left: number; top: number; right: number; below: number },
): [number, number] {
  for (const strip of content.strips) {
    const thick = thickness(strip, content.layer, content.strips);
    const across = strip.rows.length * thick;
    const name = `${strip.place} ${strip.layer + 1}`;
    if (strip.axis === "source") {
      paintStrip(painter(left, below), strip, size, thick, content.stripScale);
      root.append(text(left - 8, below + across / 2 + 4, name, { "text-anchor": "end", "font-size": 10 }, STRIP_TITLES[strip.place]));
      below += across + 4;
    } else {
      const x = right + across / 2 + 4;
      paintStrip(painter(right, top), strip, size, thick, content.stripScale);
      root.append(text(x, top - 6, name, { "font-size": 10, transform: `rotate(-90 ${x} ${top - 6})` }, STRIP_TITLES[strip.place]));
      right += across + 4;
    }
  }
  return [right, below];
}

/** Where the colours of a legend begin, after its title. */
const keyPlace = ({ title }: Legend): number => 7 * (title.length + 8);

function legendGroup(legend: Legend, x: number, y: number): SVGGElement {
  const { title, scale, range: [low, high] } = legend;
  const group = s("g", { transform: `translate(${x} ${y})` }, text(0, 10, `${title}   ${low.toFixed(2)}`));
  const from = keyPlace(legend);
  for (let index = 0; index < 48; index++)
    group.append(s("rect", { x: from + index * 3, y: 0, width: 3, height: 12, fill: scale(low + ((high - low) * index) / 47) }));
  group.append(text(from + 152, 10, high.toFixed(2)));
  return group;
}

function text(x: number, y: number, content: string, attributes: Record<string, unknown> = {}, title?: string): SVGTextElement {
  return s("text", { x, y, ...attributes }, content, title ? s("title", {}, title) : null);
}
