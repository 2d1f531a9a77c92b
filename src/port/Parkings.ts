import { Context, type Effect, type Option } from "effect"
import type { CredentialId } from "../domain/CredentialId.ts"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { FoundKey } from "./LeakedKeys.ts"

/** Keys that no router is offered, although their credentials allow it. */
export class Parkings extends Context.Service<
  Parkings,
  {
    /** Ends the mark that the current key of a credential has leaked, if it has one. None if there is no such credential. */
    readonly clear: (id: CredentialId) => Effect.Effect<Option.Option<FoundKey>, ServiceUnavailable>
  }
>()("byok/Parkings") {}
