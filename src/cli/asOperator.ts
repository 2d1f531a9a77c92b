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

/** The user who runs the command, by the operating system's name if it has one. */
const operator = (): Actor => {
  const user = userName()
  return user === undefined ? { kind: "cli" } : { kind: "cli", user }
}

/** Runs an operation with what it needs, in the name of the user who runs the command. */
export const asOperator =
  <I, E2>(layer: Layer.Layer<I, E2>) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    operation.pipe(Effect.provide(layer), Effect.provideServiceEffect(CurrentActor, Effect.sync(operator)))
