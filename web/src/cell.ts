// The numbers of one cell, as tables.

import { unpack } from "./arrays";
import { h } from "./dom";
import type { Cell } from "./strips";
import { shown } from "./tokens";
import type { Inspection, Packed } from "./types";

type Column = readonly [name: string, values: (number | null)[]]; // by layer, the input first

export function cellTable(inspection: Inspection, cell: Cell): HTMLElement[] {
  const { s, t } = cell;
  const { source_tokens, target_read, target_predicted, token_log_probabilities } = inspection;
  const probability = 100 * Math.exp(token_log_probabilities[t]);
  const facts: [string, string][] = [
    ["Source token", `${shown(source_tokens[s])} (${s + 1})`],
    ["Target read so far", `… ${shown(target_read[t])} (${t})`],
    ["Predicted next", `${shown(target_predicted[t])}, ${probability.toFixed(1)}%`],
    ["Alignment", unpack(inspection.alignment).at(t).values[s].toFixed(3)],
  ];
  const list = h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  const places: [string, "cells" | "source" | "target"][] = [["grid", "cells"], ["prenet", "source"], ["encoder", "source"], ["decoder", "target"]];
  const tables = places.flatMap(([place, of]) => {
    const columns = columnsOf(inspection, place, cell);
    if (!columns.length) return [];
    const name = of === "cells" ? "The cell" : `${shown(of === "source" ? source_tokens[s] : target_predicted[t])} in the ${place === "prenet" ? "PreNet" : place}`;
    return table(`${name}, by layer`, columns);
  });
  return [h("h2", {}, `${shown(source_tokens[s])} × ${shown(target_predicted[t])}`), list, ...tables];
}

function columnsOf({ states, entropy, gates }: Inspection, place: string, { s, t }: Cell): Column[] {
  const found = states[place];
  if (!found) return [];
  const at = place === "grid" ? [s, t] : [place === "decoder" ? t : s];
  const columns: Column[] = [["norm", byLayer(found.norm, at)], ["change", [null, ...byLayer(found.change, at)]]];
  const entropies = place === "grid" ? ["source", "target"] : place === "decoder" ? ["decoder", "cross"] : [place];
  for (const name of entropies) {
    const packed = entropy[name];
    if (packed) columns.push([entropies.length > 1 ? `entropy, ${name}` : "entropy", [null, ...headMeans(packed, at)]]);
  }
  const gated = place === "grid" ? ["source", "target"] : place === "encoder" ? ["encoder", "cross"] : [place];
  for (const name of gated) {
    const packed = gates[name];
    if (!packed) continue;
    const [keys, values] = [0, 1].map((which) => byLayer(packed, [...at, which]));
    const of = gated.length > 1 ? `, ${name}` : "";
    columns.push([`gate of keys${of}`, [null, ...keys]], [`gate of values${of}`, [null, ...values]]);
  }
  return columns;
}

const byLayer = (packed: Packed, at: number[]): number[] =>
  Array.from({ length: packed.shape[0] }, (_, layer) => unpack(packed).at(layer, ...at).values[0]);

function headMeans(packed: Packed, at: number[]): number[] {
  const numbers = unpack(packed);
  const [layers, heads] = numbers.shape;
  const mean = (layer: number): number => {
    let sum = 0;
    for (let head = 0; head < heads; head++) sum += numbers.at(layer, head, ...at).values[0];
    return sum / heads;
  };
  return Array.from({ length: layers }, (_, layer) => mean(layer));
}

function table(caption: string, columns: Column[]): HTMLElement {
  const rows = Array.from({ length: columns[0][1].length }, (_, layer) =>
    h("tr", {}, h("th", { scope: "row" }, layer ? String(layer) : "input"),
      ...columns.map(([, values]) => h("td", {}, values[layer]?.toFixed(2) ?? ""))));
  return h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layer"), ...columns.map(([name]) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...rows)));
}
