import { Schema } from "effect"
import { timestamp } from "./Credential.ts"
import { ChangeableField } from "./CredentialChanges.ts"
import { AccountId, ApiKeyHash, CredentialId, LinkId, WorkspaceId } from "./Identifiers.ts"
import { Purpose } from "./Link.ts"
import { Actor, actorKinds, ApiKeyRole } from "./Principal.ts"
import { StoredProvider } from "./Provider.ts"

const event = <const Action extends string, const Fields extends Schema.Struct.Fields>(
  action: Action,
  fields: Fields
) => Schema.Struct({ action: Schema.Literal(action), ...fields, actor: Actor })

/** Provider and label after the event; before it, for a deletion. */
const credential = {
  account_id: AccountId,
  workspace_id: WorkspaceId,
  credential_id: CredentialId,
  provider: StoredProvider,
  label: Schema.String
}

/** A refusal of a key by its upstream, when it begins or ends. */
const refusal = {
  ...credential,
  key_version: Schema.Int,
  model: Schema.NullOr(Schema.String),
  cause: Schema.Literals(["rejected", "forbidden", "quota_exhausted"])
}

/** One action in the audit log and its actor. Contains no name of a credential, no provider key and no hash of one. */
export const AuditEvent = Schema.Union([
  event("account.create", { account_id: AccountId }),
  /** Recorded after the deletions of the account's contents. */
  event("account.delete", { account_id: AccountId }),
  event("workspace.create", { account_id: AccountId, workspace_id: WorkspaceId }),
  event("workspace.default", { account_id: AccountId, workspace_id: WorkspaceId }),
  event("workspace.delete", { account_id: AccountId, workspace_id: WorkspaceId }),
  event("api_key.issue", { account_id: AccountId, api_key_hash: ApiKeyHash, role: ApiKeyRole }),
  event("api_key.revoke", { account_id: AccountId, api_key_hash: ApiKeyHash }),
  event("link.create", { account_id: AccountId, workspace_id: WorkspaceId, link_id: LinkId, purpose: Purpose }),
  event("link.revoke", { account_id: AccountId, link_id: LinkId }),
  /** Revoked by the service, because its row was altered in the database. */
  event("link.altered", { account_id: AccountId, workspace_id: WorkspaceId, link_id: LinkId }),
  event("credential.create", credential),
  /** The changed members without their values, and the new revision. */
  event("credential.update", { ...credential, revision: Schema.Int, fields: Schema.Array(ChangeableField) }),
  /** Follows an update that replaced the provider key; versions begin at 1. */
  event("credential.rotate", { ...credential, key_version: Schema.Int }),
  event("credential.delete", credential),
  event("credential.reorder", {
    account_id: AccountId,
    workspace_id: WorkspaceId,
    provider: StoredProvider,
    credential_ids: Schema.Array(CredentialId)
  }),
  /** A search for a leaked key: how many credentials it covered, and how many of them have the key. */
  event("leak.search", { searched: Schema.Int, found: Schema.Int }),
  /** Marks a key version as leaked. */
  event("credential.park", { ...credential, key_version: Schema.Int }),
  /** Removes the mark. Replacing the key also ends it, without this event. */
  event("credential.unpark", { ...credential, key_version: Schema.Int }),
  /** An upstream began to refuse the key for this cause, for one model or for all. Rate limits are not recorded. */
  event("credential.rejected", refusal),
  /** The upstream accepts the key again. */
  event("credential.recovered", refusal),
  event("keyring.register", { kek_id: Schema.String }),
  /** An operator lets a key seal although no key of its keyring has sealed yet. */
  event("keyring.admit", { kek_id: Schema.String }),
  event("keyring.promote", { kek_id: Schema.String }),
  event("keyring.retire", { kek_id: Schema.String }),
  /** Undoes a retirement, because a credential or link was sealed under the key meanwhile. */
  event("keyring.reinstate", { kek_id: Schema.String }),
  /** Number of data keys, of credentials or links, rewrapped under `kek_id`, by previous key. */
  event("keyring.rewrap", { kek_id: Schema.String, from: Schema.Record(Schema.String, Schema.Int) })
])
export type AuditEvent = typeof AuditEvent.Type

/** An audit event without its actor. */
export type AuditAct = AuditEvent extends infer Event
  ? Event extends AuditEvent
    ? Omit<Event, "actor">
    : never
  : never

/** The id of an event for its account: the UUID of its entry, and the place of the event in the entry, from 0. */
export const EventId = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d{1,4}$/, { message: "must be the id of an event" })
)

/** An audit event as its account reads it. The action decides which optional members are present. */
export const AccountEvent = Schema.Struct({
  id: EventId.annotate({
    description: "What one transaction did to one credential differs only after the point.",
    examples: ["0b7ee4d0-9c2d-4a4e-8f0a-3d1c5b9a7e21.0"]
  }),
  at: timestamp("When it happened."),
  action: Schema.String.annotate({ description: "What was done. Further actions may be added." }),
  workspace_id: Schema.optionalKey(WorkspaceId),
  credential_id: Schema.optionalKey(CredentialId),
  provider: Schema.optionalKey(StoredProvider),
  label: Schema.optionalKey(
    Schema.String.annotate({ description: "The label after the event; before it, for a deletion." })
  ),
  key_version: Schema.optionalKey(Schema.Int),
  model: Schema.optionalKey(
    Schema.NullOr(Schema.String).annotate({
      description: "The model for which the key was refused; null for every one."
    })
  ),
  cause: Schema.optionalKey(Schema.String.annotate({ description: "Why the upstream refused the key." })),
  revision: Schema.optionalKey(Schema.Int),
  fields: Schema.optionalKey(Schema.Array(Schema.String).annotate({ description: "The members that were changed." })),
  credential_ids: Schema.optionalKey(Schema.Array(CredentialId).annotate({ description: "The new order." })),
  api_key_hash: Schema.optionalKey(ApiKeyHash),
  role: Schema.optionalKey(Schema.String),
  link_id: Schema.optionalKey(LinkId),
  purpose: Schema.optionalKey(Schema.String),
  actor: Schema.Struct({
    kind: Schema.Literals(actorKinds).annotate({
      description:
        "An API key, the owner of a key with a `link`, the gateway (`in_process` or `gateway`), an operator (`cli`) or the service."
    }),
    api_key_hash: Schema.optionalKey(ApiKeyHash),
    link_id: Schema.optionalKey(LinkId),
    name: Schema.optionalKey(
      Schema.NullOr(Schema.String).annotate({ description: "The name of the API key; null if it is gone." })
    )
  })
}).annotate({ identifier: "Event" })
export type AccountEvent = typeof AccountEvent.Type
