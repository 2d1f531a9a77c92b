import type { Effect, Scope } from "effect"
import type { Skipped } from "../support/process/Skipped.ts"

/** What a check has to say. */
export interface Finding {
  readonly problems: ReadonlyArray<string>
  /** Measured along the way. */
  readonly figures?: ReadonlyArray<string>
}

/** A change of one file that breaks it. */
export interface Mistake {
  readonly file: string
  readonly text: string
  readonly instead: string
}

/** Checks one piece of deployment material in a copy of `deploy`. */
export interface Check {
  readonly piece: string
  /** Takes minutes, so `npm test` leaves it out. */
  readonly slow?: boolean
  readonly run: (deploy: string) => Effect.Effect<Finding, Skipped, Scope.Scope>
  /** What the check must find, each alone. */
  readonly mistakes: ReadonlyArray<Mistake>
}
