import { Context, type Effect } from "effect"
import type { CurrentCaller } from "../domain/CurrentCaller.ts"
import type { InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import type { CredentialId } from "../domain/Identifiers.ts"
import type { CredentialStatus } from "../domain/routing/CredentialStatus.ts"
import type { Explanation } from "../domain/routing/Explanation.ts"
import type { PlanRequest } from "../domain/routing/RoutingRequest.ts"

/**
 * Says which credentials of the `CurrentCaller` serve a request, and why the others do not. Opens no key.
 * @effect-expect-leaking CurrentCaller
 */
export class Explanations extends Context.Service<
  Explanations,
  {
    /** Fails with `InvalidParams` for a workspace that create would refuse (E19). */
    readonly explain: (
      request: PlanRequest
    ) => Effect.Effect<Explanation, InvalidParams | ServiceUnavailable, CurrentCaller>
    /** Whether a credential is used, and why not. */
    readonly status: (id: CredentialId) => Effect.Effect<CredentialStatus, NotFound | ServiceUnavailable, CurrentCaller>
    /** Whether rows are verified; without a keyring explanations go by the columns. */
    readonly verifies: boolean
  }
>()("byok/Explanations") {}
