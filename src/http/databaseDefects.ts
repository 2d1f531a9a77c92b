import { Effect, Record } from "effect"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"

/** Makes a failure of the database a defect, which `Envelope` answers with 503 or 500 (D11). */
export const orDefect = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.catchIf(effect, (error) => error instanceof DatabaseFailure, Effect.die) as Effect.Effect<
    A,
    Exclude<E, DatabaseFailure>,
    R
  >

type WithDefects<Service> = {
  readonly [K in keyof Service]: Service[K] extends (...args: infer Args) => Effect.Effect<infer A, infer E, infer R>
    ? (...args: Args) => Effect.Effect<A, Exclude<E, DatabaseFailure>, R>
    : Service[K] extends Effect.Effect<infer A, infer E, infer R>
      ? Effect.Effect<A, Exclude<E, DatabaseFailure>, R>
      : Service[K]
}

/** A service for the handlers of a contract: each of its operations has `orDefect`. */
export const withDefects = <Service extends object>(service: Service) =>
  Record.map(service as Record<string, unknown>, (operation) =>
    Effect.isEffect(operation)
      ? orDefect(operation)
      : typeof operation === "function"
        ? (...args: ReadonlyArray<unknown>) =>
            orDefect(Reflect.apply(operation, service, args) as Effect.Effect<unknown>)
        : operation
  ) as WithDefects<Service>
