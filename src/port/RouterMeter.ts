import { Context } from "effect"
import type { ParkedCause } from "../domain/routing/Health.ts"
import type { Exclusion } from "../domain/routing/Plan.ts"
import type { Seal } from "../domain/routing/Pool.ts"

/** What became of a plan; `exhausted` has no step. */
export type PlanResult = "ok" | "exhausted" | "unknown_workspace" | "unavailable"

/** What became of a lease: why it was refused, or that the database cannot be asked. */
export type LeaseResult =
  "ok" | "changed" | "parked" | "on_trial" | Exclude<Seal, "verified" | "unverified"> | "pools_unavailable"

/** Measures what routers are asked and what they learn. */
export interface RouterMeter {
  readonly planned: (result: PlanResult) => void
  /** A credential was left out of a plan. */
  readonly excluded: (reason: Exclusion["reason"]) => void
  readonly leased: (result: LeaseResult) => void
  /** A pause began or grew. */
  readonly parked: (cause: Exclude<ParkedCause, "leaked">) => void
}

/** Measures nothing unless it is replaced. */
export const RouterMeter = Context.Reference<RouterMeter>("byok/RouterMeter", {
  defaultValue: () => ({ planned: () => {}, excluded: () => {}, leased: () => {}, parked: () => {} })
})
