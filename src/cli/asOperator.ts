import { userInfo } from "node:os"
import { type Context, Effect, type Layer } from "effect"
import { type Actor, CurrentActor } from "../domain/CurrentCaller.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"

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

/** Runs an operation of a service on its layer, with the user running the command as its actor. */
export const operatorOn =
  <I, S, L, E2>(service: Context.Key<I, S>, layer: Layer.Layer<L, E2>) =>
  <A, E, R>(operation: (service: S) => Effect.Effect<A, E, R>) =>
    asOperator(layer)(Effect.flatMap(service, operation))

export const withAccounts = operatorOn(Accounts, CommandLayers.unsealed)
