// Arrays of the answers as numbers, by index.

import type { Packed } from "./types";

export class Numbers {
  private readonly strides: number[];

  constructor(
    readonly shape: readonly number[],
    readonly values: Float32Array,
  ) {
    this.strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1));
  }

  /** What the indices lead to: the row, matrix, ... that begins there, without a copy. */
  at(...indices: number[]): Numbers {
    const begin = indices.reduce((sum, index, axis) => sum + index * this.strides[axis], 0);
    return new Numbers(this.shape.slice(indices.length), this.values.subarray(begin, begin + this.strides[indices.length - 1]));
  }

  /** The mean over the first axis. */
  mean(): Numbers {
    const [count] = this.shape;
    const size = this.strides[0];
    const sum = new Float32Array(size);
    for (let i = 0; i < count; i++) for (let j = 0; j < size; j++) sum[j] += this.values[i * size + j] / count;
    return new Numbers(this.shape.slice(1), sum);
  }

  /** A matrix with its axes exchanged. */
  transposed(): Numbers {
    const [rows, columns] = this.shape;
    const values = new Float32Array(rows * columns);
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) values[j * rows + i] = this.values[i * columns + j];
    return new Numbers([columns, rows], values);
  }

  /** Nested lists, for JSON; rounded to what is to be read. */
  nested(): unknown {
    if (this.shape.length <= 1) return Array.from(this.values, (value) => Number(value.toPrecision(6)));
    return Array.from({ length: this.shape[0] }, (_, index) => this.at(index).nested());
  }
}

const decoded = new WeakMap<Packed, Numbers>();

/** The numbers of an array, decoded when first asked for. */
export function unpack(packed: Packed): Numbers {
  const known = decoded.get(packed);
  if (known) return known;
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0)).buffer;
  const values =
    packed.dtype === "float32"
      ? new Float32Array(bytes)
      : Float32Array.from(new Uint16Array(bytes), (value) => value / 65535);
  const numbers = new Numbers(packed.shape, values);
  decoded.set(packed, numbers);
  return numbers;
}
