import { Effect, Layer } from "effect"
import * as Persistence from "../wiring/Persistence.ts"
import { Audit } from "../service/Audit.ts"
import { readSettings } from "../wiring/Settings.ts"

/** Runs an operation on the audit log of the settings' database; no keyring is needed. */
export const inspectAudit = <A, E>(operation: (audit: Audit["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(readSettings, (settings) =>
    Effect.provide(Effect.flatMap(Audit, operation), Layer.provide(Audit.layer, Persistence.layer(settings)))
  )
