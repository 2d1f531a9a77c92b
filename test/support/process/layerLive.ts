import { layer } from "@effect/vitest"
import type { Layer } from "effect"

/** `layer`, in real time: its tests have neither the test clock nor the test console. */
export const layerLive = <R, E>(provided: Layer.Layer<R, E>, options: Parameters<typeof layer>[1] = {}) =>
  layer(provided, { ...options, excludeTestServices: true })
