// The beam as a tree, drawn: one column a position, hypotheses by their rank or as branches.

import { hierarchy, tree as treeLayout } from "d3-hierarchy";
import { linkHorizontal } from "d3-shape";
import { s } from "./dom";
import { colour, scale } from "./theme";
import { shown } from "./tokens";
import type { Score, SearchNode, SearchTrace } from "./types";

export type Arrangement = "rank" | "tree";

const [WIDTH, HEIGHT, COLUMN, ROW, MARGIN] = [92, 32, 116, 40, 14];

interface Point {
  x: number;
  y: number;
}

/** Where each node stands, its left upper corner. */
function placesOf({ nodes }: SearchTrace, arrangement: Arrangement): Point[] {
  const x = (node: SearchNode): number => (node.position + 1) * COLUMN;
  if (arrangement === "rank") return nodes.map((node) => ({ x: x(node), y: node.rank * ROW }));
  const children = new Map<number, SearchNode[]>();
  for (const node of nodes)
    if (node.parent !== null) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const root = treeLayout<SearchNode>().nodeSize([ROW, COLUMN]).separation(() => 1)(hierarchy(nodes[0], ({ id }) => children.get(id)));
  const points: Point[] = [];
  root.each((each) => (points[each.data.id] = { x: x(each.data), y: each.x }));
  const top = Math.min(...points.map(({ y }) => y));
  return points.map((point) => ({ x: point.x, y: point.y - top }));
}

/** The nodes that lead to one, itself included, from the root on. */
export function pathTo(trace: SearchTrace, id: number): number[] {
  const path: number[] = [];
  for (let at: number | null = id; at !== null; at = trace.nodes[at].parent) path.unshift(at);
  return path;
}

export interface Drawn {
  trace: SearchTrace;
  arrangement: Arrangement;
  selected: number;
  own: Score | null;
}

/** The picture; nodes carry their number, so that a click can be told. */
export function treePicture({ trace, arrangement, selected, own }: Drawn): SVGSVGElement {
  const points = placesOf(trace, arrangement);
  const best = new Set(trace.finished.length ? pathTo(trace, trace.finished[0]) : []);
  const chosen = new Set(pathTo(trace, selected));
  const depth = Math.max(...trace.nodes.map(({ position }) => position), (own?.tokens.length ?? 0) - 1);
  const treeHeight = Math.max(...points.map(({ y }) => y)) + HEIGHT;
  const lane = own ? 34 + HEIGHT : 0;
  const [width, height] = [(depth + 1) * COLUMN + WIDTH + 2 * MARGIN, treeHeight + lane + 2 * MARGIN + 16];
  const picture = s("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The beam as a tree",
    "font-family": "system-ui, sans-serif", "font-size": 12,
  }, s("rect", { width, height, fill: colour("paper") }));
  const inner = s("g", { transform: `translate(${MARGIN} ${MARGIN + 16})` });
  for (let position = 0; position <= depth; position++)
    picture.append(s("text", { x: MARGIN + (position + 1) * COLUMN, y: MARGIN + 4, fill: colour("dim"), "font-size": 11 }, String(position + 1)));
  const order = [...trace.nodes].sort((a, b) => Number(best.has(a.id)) - Number(best.has(b.id)));
  for (const node of order) if (node.parent !== null) inner.append(edge(node, points, best.has(node.id), chosen.has(node.id)));
  for (const node of trace.nodes) inner.append(box(node, points[node.id], best.has(node.id), node.id === selected));
  if (own) inner.append(ownLane(own, trace, treeHeight + 34));
  picture.append(inner);
  return picture;
}

const link = linkHorizontal<{ source: [number, number]; target: [number, number] }, [number, number]>();

function edge(node: SearchNode, points: Point[], best: boolean, chosen: boolean): SVGPathElement {
  const [from, to] = [points[node.parent!], points[node.id]];
  const d = link({ source: [from.x + WIDTH, from.y + HEIGHT / 2], target: [to.x, to.y + HEIGHT / 2] });
  const pruned = node.fate === "pruned" || node.fate === "abandoned";
  return s("path", {
    d, fill: "none", stroke: colour(chosen ? "select" : best ? "accent" : "line-strong"), "stroke-width": best || chosen ? 2.5 : 1.2,
    "stroke-dasharray": pruned ? "3 3" : null,
  });
}

function box(node: SearchNode, { x, y }: Point, best: boolean, selected: boolean): SVGGElement {
  const { fate, piece, token_log_probability, behind } = node;
  const out = fate === "pruned" || fate === "abandoned";
  const group = s("g", { transform: `translate(${x} ${y})`, "data-node": node.id, style: "cursor:pointer" },
    s("title", {}, describe(node)),
    s("rect", {
      width: WIDTH, height: HEIGHT, rx: 5, fill: colour(best ? "accent-soft" : "paper"),
      stroke: colour(selected ? "select" : best ? "accent" : "line-strong"),
      "stroke-width": selected ? 3 : fate === "finished" ? 2 : 1, "stroke-dasharray": out ? "3 3" : null,
    }));
  if (node.parent === null) return withText(group, "start", "", false);
  group.append(s("rect", { x: 5, y: HEIGHT - 6, width: Math.max(1, (WIDTH - 10) * Math.exp(token_log_probability)), height: 3, fill: scale("weight", 0, 1)(0.45) }));
  const note = fate === "pruned" ? `−${behind.toFixed(2)}` : percent(token_log_probability);
  return withText(group, shown(piece), note, out);
}

function withText(group: SVGGElement, name: string, note: string, out: boolean): SVGGElement {
  const room = Math.floor((WIDTH - 16 - 6.4 * note.length) / 7.6);
  const short = name.length > room ? name.slice(0, room - 1) + "…" : name;
  group.append(
    s("text", { x: 6, y: 19, fill: colour(out ? "dim" : "ink") }, short),
    s("text", { x: WIDTH - 6, y: 19, "text-anchor": "end", fill: colour("dim"), "font-size": 10.5 }, note));
  return group;
}

/** A text of one's own under the tree, token by token; what the beam holds too stands out. */
function ownLane(own: Score, trace: SearchTrace, y: number): SVGGElement {
  const lane = s("g", { transform: `translate(0 ${y})` },
    s("text", { x: 0, y: -8, fill: colour("dim"), "font-size": 11 }, `Your own translation: score ${own.score.toFixed(2)}, log-probability ${own.log_probability.toFixed(2)}`));
  let at: number | null = 0;
  own.tokens.forEach((token, position) => {
    at = trace.nodes.find((node) => node.parent === at && at !== null && node.piece === token && node.fate !== "pruned")?.id ?? null;
    const value = own.token_log_probabilities[position];
    const group = s("g", { transform: `translate(${(position + 1) * COLUMN} 0)`, "data-own": position },
      s("title", {}, `${shown(token)}: ${percent(value)}, log-probability ${value.toFixed(3)}`),
      s("rect", { width: WIDTH, height: HEIGHT, rx: 5, fill: colour(at === null ? "paper" : "accent-soft"), stroke: colour(at === null ? "line-strong" : "accent") }),
      s("rect", { x: 5, y: HEIGHT - 6, width: Math.max(1, (WIDTH - 10) * Math.exp(value)), height: 3, fill: scale("weight", 0, 1)(0.45) }));
    lane.append(withText(group, shown(token), percent(value), false));
  });
  return lane;
}

export const percent = (logProbability: number): string => {
  const value = 100 * Math.exp(logProbability);
  return `${value >= 9.95 ? value.toFixed(0) : value.toFixed(1)}%`;
};

/** A node in words. */
export function describe(node: SearchNode): string {
  const { piece, position, fate, rank, token_log_probability, log_probability, score, behind } = node;
  if (node.parent === null) return "The beginning";
  const why = fate === "pruned" ? `pruned, ${behind.toFixed(2)} behind the last that was kept` : FATES[fate];
  return `${shown(piece)}, position ${position + 1}: ${percent(token_log_probability)}, log-probability so far ${log_probability.toFixed(2)}, score ${score.toFixed(2)}, rank ${rank + 1}; ${why}`;
}

export const FATES: Record<SearchNode["fate"], string> = {
  kept: "kept", finished: "finished", pruned: "pruned", abandoned: "still in the beam when the search ended",
};
