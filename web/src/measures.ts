// What cells and tokens can be coloured by.

import { Numbers, unpack } from "./arrays";
import type { Inspection, Packed } from "./types";

export interface Measure {
  key: string;
  title: string;
  of: "cells" | "source" | "target"; // cells [T, S], source tokens [S], target tokens [T]
  scale: "weight" | "magnitude";
  layers: string[]; // their names; none if there is no choice
  heads: number; // none: 0
  values: (layer: number, head: number | null) => Numbers; // head null: the mean
  range: [low: number, high: number]; // over all layers and heads
}

const PLACES: Record<string, string> = {
  grid: "cell", source: "along the source", target: "along the target", prenet: "PreNet", encoder: "encoder",
  decoder: "decoder", cross: "cross-attention",
};

/** What the tokens or cells of a place are: gates of cross-attention belong to the source, its entropy to the target. */
function sideOf(place: string, gates = false): Measure["of"] {
  if (place === "prenet" || place === "encoder" || (place === "cross" && gates)) return "source";
  return place === "decoder" || place === "cross" ? "target" : "cells";
}

/** All measures of an answer, the alignment first. */
export function measuresOf(inspection: Inspection): Measure[] {
  const found = [alignment(inspection.alignment)];
  if (inspection.attention.cross) found.push(crossAttention(inspection.attention.cross));
  for (const [place, states] of Object.entries(inspection.states)) {
    if (!states) continue;
    found.push(state(place, "norm", states.norm), state(place, "change", states.change));
  }
  for (const [place, packed] of Object.entries(inspection.entropy)) if (packed) found.push(entropy(place, packed));
  for (const [place, packed] of Object.entries(inspection.gates))
    if (packed) found.push(gate(place, packed, 0), gate(place, packed, 1));
  return found;
}

function alignment(packed: Packed): Measure {
  const values = (): Numbers => unpack(packed);
  return { key: "alignment", title: "Alignment", of: "cells", scale: "weight", layers: [], heads: 0, values, range: [0, 1] };
}

function crossAttention(packed: Packed): Measure {
  const numbers = unpack(packed);
  const [layers, heads] = numbers.shape;
  return {
    key: "cross", title: "Cross-attention", of: "cells", scale: "weight", layers: named(layers), heads, range: [0, 1],
    values: (layer, head) => (head === null ? numbers.at(layer).mean() : numbers.at(layer, head)),
  };
}

function state(place: string, what: "norm" | "change", packed: Packed): Measure {
  const numbers = unpack(packed);
  const of = sideOf(place);
  const names = what === "norm" ? ["input", ...named(numbers.shape[0] - 1)] : named(numbers.shape[0]);
  const title = what === "norm" ? "Norm" : "Change from layer to layer";
  return {
    key: `${what}-${place}`, title: `${title}, ${PLACES[place] ?? place}`, of, scale: "magnitude", layers: names, heads: 0,
    range: rangeOf(numbers),
    values: (layer) => (of === "cells" ? numbers.at(layer).transposed() : numbers.at(layer)),
  };
}

function entropy(place: string, packed: Packed): Measure {
  const numbers = unpack(packed);
  const [layers, heads] = numbers.shape;
  const of = sideOf(place);
  const oriented = (found: Numbers): Numbers => (of === "cells" ? found.transposed() : found);
  return {
    key: `entropy-${place}`, title: `Entropy of attention, ${PLACES[place] ?? place}`, of, scale: "magnitude",
    layers: named(layers), heads: heads > 1 ? heads : 0, range: [0, rangeOf(numbers)[1]],
    values: (layer, head) => oriented(head === null ? numbers.at(layer).mean() : numbers.at(layer, head)),
  };
}

function gate(place: string, packed: Packed, which: 0 | 1): Measure {
  const numbers = unpack(packed);
  const of = sideOf(place, true);
  const values = (layer: number): Numbers => {
    const { shape, values: both } = numbers.at(layer);
    const one = new Numbers(shape.slice(0, -1), both.filter((_, index) => index % 2 === which));
    return of === "cells" ? one.transposed() : one;
  };
  const title = `Gate of ${which ? "values" : "keys"}, ${PLACES[place] ?? place}`;
  return { key: `gate-${place}-${which}`, title, of, scale: "magnitude", layers: named(numbers.shape[0]), heads: 0, values, range: [0, 1] };
}

const named = (layers: number): string[] => Array.from({ length: layers }, (_, layer) => `layer ${layer + 1}`);

/** Least and greatest value. */
export function rangeOf({ values }: Numbers): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
