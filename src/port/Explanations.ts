import { Context } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { InvalidParams, NotFound } from "../domain/Errors.ts"
import type { CredentialId } from "../domain/Identifiers.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import type { CredentialStatus } from "../domain/routing/CredentialStatus.ts"
import type { Explanation } from "../domain/routing/Explanation.ts"
import type { PlanRequest } from "../domain/routing/RoutingRequest.ts"
import type { PageMemory } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * Explains which credentials of the `CurrentPrincipal` serve a request, and why others do not. Opens no key.
 * @effect-expect-leaking CurrentPrincipal
 */
export class Explanations extends Context.Service<
  Explanations,
  {
    /** Fails with `InvalidParams` for a workspace that create would refuse (E19), or for too many credentials. */
    readonly explain: (
      request: PlanRequest,
      memory?: PageMemory
    ) => Answer<Explanation, InvalidParams, CurrentPrincipal>
    readonly status: (id: CredentialId) => Answer<CredentialStatus, NotFound, CurrentPrincipal>
    /** The statuses of credentials of one workspace; null for a credential that was deleted meanwhile. */
    readonly statuses: (
      listed: ReadonlyArray<Credential>
    ) => Answer<ReadonlyArray<CredentialStatus | null>, never, CurrentPrincipal>
    /** Whether rows are verified; without a keyring, explanations trust the columns. */
    readonly verifies: boolean
  }
>()("byok/Explanations") {}
