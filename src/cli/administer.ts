import * as SecureRandomLive from "../crypto/SecureRandomLive.ts"
import { Effect, Layer } from "effect"
import { CurrentActor } from "../domain/Actor.ts"
import * as Persistence from "../wiring/Persistence.ts"
import { Accounts } from "../service/Accounts.ts"
import { readSettings } from "../wiring/Settings.ts"
import { cliActor } from "./cliActor.ts"

/** Runs an operation on accounts against the database of the settings; no keyring is needed. */
export const administer = <A, E>(operation: (accounts: Accounts["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(readSettings, (settings) =>
    Effect.provide(
      Effect.flatMap(Accounts, operation),
      Accounts.layer.pipe(Layer.provide([Persistence.layer(settings), SecureRandomLive.layer]))
    )
  ).pipe(Effect.provideService(CurrentActor, cliActor()))
