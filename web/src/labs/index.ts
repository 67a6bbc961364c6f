/** Which picture belongs to which lab. Each loads when it is first shown. */
import type { Component } from "svelte";
import type { Result, State } from "../pure/types";
import type { Lab } from "../state/lab.svelte";
import { t, type Key } from "../state/text";

export interface PictureProps {
  lab: Lab;
  state: State;
  result: Result;
}
type Loader = () => Promise<{ default: Component<PictureProps> }>;

const PICTURES: Record<string, Loader> = {
  order: () => import("./Order.svelte"),
  pe: () => import("./Pe.svelte"),
  ffn: () => import("./Ffn.svelte"),
  layernorm: () => import("./LayerNorm.svelte"),
  stack: () => import("./Stack.svelte"),
  block: () => import("./Block.svelte"),
  "residual-path": () => import("./ResidualPath.svelte"),
  norms: () => import("./Norms.svelte"),
  rope: () => import("./Rope.svelte"),
  swiglu: () => import("./Swiglu.svelte"),
  mask: () => import("./Mask.svelte"),
  embeddings: () => import("./Embeddings.svelte"),
  attention: () => import("./Attention.svelte"),
  heads: () => import("./Heads.svelte"),
  depth: () => import("./Depth.svelte"),
  "whole-model": () => import("./WholeModel.svelte"),
  "small-gpt": () => import("./SmallGpt.svelte"),
  "encoder-decoder": () => import("./EncoderDecoder.svelte"),
  sampling: () => import("./Sampling.svelte"),
  "kv-cache": () => import("./KvCache.svelte"),
};

export const component: (id: string) => Promise<{ default: Component<PictureProps> }> = (id) => PICTURES[id]();
export const titleOf = (id: string): string => (id in PICTURES ? t(`lab.title.${id}` as Key) : id);
export const aboutOf = (id: string): string => t(`lab.about.${id}` as Key);
