import { userInfo } from "node:os"
import { Effect, type Layer } from "effect"
import { type Actor, CurrentActor } from "../domain/Actor.ts"

const userName = () => {
  try {
    return userInfo().username
  } catch {
    return undefined
  }
}

/** The user running the command, by name if the operating system knows one. */
const operator = (): Actor => {
  const user = userName()
  return user === undefined ? { kind: "cli" } : { kind: "cli", user }
}

/** Provides an operation with its layer, and with the user running the command as its actor. */
export const asOperator =
  <I, E2>(layer: Layer.Layer<I, E2>) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    operation.pipe(Effect.provide(layer), Effect.provideServiceEffect(CurrentActor, Effect.sync(operator)))
