// What the server answers and the embedded document holds; docs/explore.md describes it.

export interface Model {
  name: string;
  source_language: string;
  target_language: string;
  family: string;
  parameters: number;
  has_alignments: boolean;
  beam_size: number;
}

export interface Limits {
  lines: number; // of a request's texts, at most
  body_bytes: number;
  num_best: number;
}

export interface Candidate {
  text: string;
  score: number;
  log_probability: number;
  complete: boolean;
  tokens: string[];
  token_log_probabilities: number[];
  alignment?: number[][]; // [target token][source token]
}

export interface Translation {
  source: string;
  source_tokens: string[];
  translation: string;
  candidates: Candidate[];
}

export interface Packed {
  shape: number[];
  dtype: "float32" | "unorm16";
  data: string; // base64
}

export type Packs = Record<string, Packed | null | undefined>;

export interface Inspection {
  model: string;
  family: string;
  translation: string;
  source_tokens: string[];
  target_read: string[];
  target_predicted: string[];
  token_log_probabilities: number[];
  alignment: Packed; // [T, S]
  attention: Packs;
  grid_heads: "each" | "mean" | null;
  entropy: Packs;
  states: Record<string, { norm: Packed; change: Packed } | null | undefined>;
  gates: Packs;
  left_out: number; // target positions
}

export interface CellAnswer {
  model: string;
  source_position: number;
  target_position: number;
  attention: Record<string, number[][][]>; // [layer][head][keys]
}

export interface SearchNode {
  id: number;
  parent: number | null;
  position: number;
  piece: string;
  fate: "kept" | "finished" | "pruned" | "abandoned";
  rank: number;
  token_log_probability: number;
  log_probability: number;
  score: number;
  behind: number;
}

export interface SearchTrace {
  model: string;
  source_tokens: string[];
  beam_size: number;
  length_penalty: number;
  length_offset: number;
  nodes: SearchNode[];
  finished: number[];
  translations: string[];
}

export interface Choice {
  piece: string;
  log_probability: number;
}

export interface Score {
  source: string;
  target: string;
  score: number;
  log_probability: number;
  tokens: string[];
  token_log_probabilities: number[];
  first_choices: boolean[];
  alternatives?: Choice[][];
}

export interface Alternative {
  word: string; // empty: the sentence ends here
  prefix: string;
  log_probability: number; // of the word's first piece
  candidate: Candidate;
}

export interface Alternatives {
  source_tokens: string[];
  alternatives: Alternative[];
}

export interface Comparison {
  source: string;
  texts: { text: string; by: string[] }[];
  models: string[];
  scores: Record<string, Score[]>;
}

export interface Explored {
  translation: Translation;
  inspection: Inspection | null;
  target_inspection?: Inspection | null;
  search: SearchTrace | null;
  score: Score | null;
}

export interface Explorations {
  format: number;
  generator: string;
  models: Model[];
  sentences: { source: string; target: string | null; comparison: Comparison; by_model: Record<string, Explored> }[];
}
