import { Schema } from "effect"
import { timestamp } from "../Credential.ts"
import { CredentialId, WorkspaceId } from "../Identifiers.ts"
import { Provider } from "../Provider.ts"
import { Region } from "../Region.ts"
import { parkedCauses } from "./Health.ts"
import { sections } from "./Plan.ts"
import { untrustedSeals } from "./Pool.ts"
import { Strategy } from "./RoutingRequest.ts"

const Name = Schema.NullOr(Schema.String)
const SectionName = Schema.Literals(sections)
const Position = Schema.NullOr(Schema.Int).annotate({ description: "Index in `steps`; null if it is not used." })
const message = Schema.String.annotate({ description: "The reason as a sentence." })

const Step = Schema.Union([
  Schema.Struct({
    kind: Schema.tag("own"),
    provider: Provider,
    section: SectionName,
    credential_id: CredentialId,
    name: Name,
    label: Schema.String,
    region: Schema.NullOr(Region),
    on_trial: Schema.Boolean.annotate({ description: "Whether a parking has just ended: one request tries the key." })
  }),
  Schema.Struct({ kind: Schema.tag("shared"), provider: Provider })
])

const reasonSchema = <Reason extends Schema.Constraint, Fields extends Schema.Struct.Fields>(
  reason: Reason,
  fields: Fields
) => Schema.Struct({ reason, message, ...fields })

const UntrustedSeal = Schema.Literals(untrustedSeals)

/** An `Exclusion` with its sentence. */
const Excluded = Schema.Union([
  reasonSchema(Schema.Literals(["no_token", "disabled", "api_key_not_allowed", "user_not_allowed"]), {}),
  reasonSchema(Schema.tag("model_not_allowed"), {
    hint: Schema.optionalKey(
      Schema.String.annotate({ description: "A member of `allowed_models` that is almost the requested model." })
    )
  }),
  reasonSchema(Schema.tag("region"), { declared: Schema.NullOr(Region), host: Region }),
  reasonSchema(Schema.tag("zdr"), { declared: Schema.NullOr(Schema.Boolean) }),
  reasonSchema(Schema.tag("seal"), { seal: UntrustedSeal }),
  reasonSchema(Schema.tag("parked"), {
    cause: Schema.Literals(parkedCauses),
    until: Schema.NullOr(timestamp("When it is tried again; null if not before its key is replaced."))
  })
])
export type Excluded = typeof Excluded.Type

/** A `SharedReason` with its sentence. */
const Removed = Schema.Union([
  reasonSchema(Schema.Literals(["none_there", "region", "zdr"]), {}),
  reasonSchema(Schema.Literals(["is_required", "is_byok_only"]), { credential_id: CredentialId }),
  reasonSchema(Schema.tag("seal"), { credential_id: CredentialId, seal: UntrustedSeal })
])
export type Removed = typeof Removed.Type

/** A plan for people and dashboards: which keys serve a request, and why others do not. Contains no key. */
export const Explanation = Schema.Struct({
  workspace_id: WorkspaceId,
  model: Schema.String,
  host: Region,
  requires_zdr: Schema.Boolean,
  strategy: Strategy,
  steps: Schema.Array(Step),
  providers: Schema.Array(
    Schema.Struct({
      provider: Provider,
      credentials: Schema.Array(
        Schema.Struct({
          credential_id: CredentialId,
          name: Name,
          label: Schema.String,
          section: SectionName,
          position: Position,
          excluded: Schema.Array(Excluded)
        })
      ),
      shared: Schema.Struct({ position: Position, removed: Schema.Array(Removed) })
    })
  ),
  retry_at: Schema.NullOr(
    timestamp("Without steps, the earliest end of a parking that alone excludes a credential; otherwise null.")
  )
}).annotate({ identifier: "Explanation" })
export type Explanation = typeof Explanation.Type
