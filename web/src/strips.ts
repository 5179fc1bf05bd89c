// The attention of one cell: rows of weights along the source and along the target, by place, layer and head.

import { Numbers, unpack } from "./arrays";
import type { CellAnswer, Inspection } from "./types";

export interface Strip {
  axis: "source" | "target"; // the axis of the weights
  place: string;
  layer: number;
  rows: Float32Array[]; // one a head
}

export interface Cell {
  s: number;
  t: number;
}

/** Places in the order in which they are shown, with their axis and the query whose row it is. */
const PLACES = [
  ["source", "source", "t,s"], ["cross", "source", "t"], ["prenet", "source", "s"], ["encoder", "source", "s"],
  ["target", "target", "s,t"], ["decoder", "target", "t"],
] as const;

export const STRIP_TITLES: Record<string, string> = {
  source: "attention along the source, of the cell", cross: "cross-attention of the target token",
  prenet: "PreNet self-attention of the source token", encoder: "encoder self-attention of the source token",
  target: "attention along the target, of the cell", decoder: "decoder self-attention of the target token",
};

/** The strips of a cell; rows of the grid that the answer does not hold come from `exact`, if that is there. */
export function stripsOf({ attention }: Inspection, cell: Cell, exact: CellAnswer | null): Strip[] {
  return PLACES.flatMap(([place, axis, query]) => {
    if (exact && (place === "source" || place === "target")) return exactStrips(place, exact);
    const packed = attention[place];
    if (!packed) return [];
    const numbers = unpack(packed);
    const indices = query.split(",").map((name) => cell[name as keyof Cell]);
    return Array.from({ length: numbers.shape[0] }, (_, layer) => ({
      axis, place, layer, rows: headsOf(numbers, layer).map((head) => head.at(...indices).values),
    }));
  });
}

function headsOf(numbers: Numbers, layer: number): Numbers[] {
  return Array.from({ length: numbers.shape[1] }, (_, head) => numbers.at(layer, head));
}

function exactStrips(place: "source" | "target", exact: CellAnswer): Strip[] {
  return exact.attention[place].map((heads, layer) => ({
    axis: place, place, layer, rows: heads.map((weights) => Float32Array.from(weights)),
  }));
}

/** Whether single heads of the grid have to be asked for. */
export const needsCell = ({ states, grid_heads }: Inspection): boolean => Boolean(states.grid) && grid_heads !== "each";
